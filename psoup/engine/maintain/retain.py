"""Retention: files without a row that a request may still see leave the tables.

A row is retained while ts > NOW - RETAIN; the grace is added on top, for clocks that differ and
answers that are under way.
"""

from __future__ import annotations

import time

from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.pieces import ROW_SEGMENT_BITS
from psoup.engine.settings import EngineSettings
from psoup.store.datafile import DataFile
from psoup.store.state import StreamState

_ALL = 1 << 62


class Retain:
    def __init__(self, settings: EngineSettings) -> None:
        self._grace = int(settings.grace * 1_000_000)
        self._every = settings.housekeeping
        self._next = 0.0

    def advance(self, ledger: Ledger) -> bool:
        if time.monotonic() < self._next:
            return False
        gone = {
            stream.id: files
            for stream in ledger.state.streams.values()
            if (files := self._gone(ledger, stream))
        }
        for stream_id, files in gone.items():
            ledger.commit(stem_name(stream_id), (), files, operation="RETAIN")
        matches = _orphans(ledger)
        if matches:
            ledger.commit("matches", (), matches, operation="RETAIN")
        if gone or matches:
            ledger.publish("retain")
            return True
        self._next = time.monotonic() + self._every
        return False

    def _gone(self, ledger: Ledger, stream: StreamState) -> list[DataFile]:
        if stem_name(stream.id) not in ledger.tables:
            return []
        files = ledger.files(stem_name(stream.id))
        if stream.dropped:
            return files
        now = stream.reached if stream.schema.ordered_by else _clock(ledger)
        if stream.schema.retain is None or now is None:
            return []
        limit = now - stream.schema.retain - self._grace
        return [file for file in files if file.high.get("_ts", now) <= limit]


def _clock(ledger: Ledger) -> int:
    return max(ledger.state.clock, time.time_ns() // 1000)


def _orphans(ledger: Ledger) -> list[DataFile]:
    """Match files of segments without rows, and of dropped streams."""
    first = {
        stream.id: ledger.floor(stream.id) >> ROW_SEGMENT_BITS
        for stream in ledger.state.streams.values()
        if not stream.dropped
    }
    return [
        file
        for file in ledger.files("matches")
        if int(file.partition["segment"]) < first.get(int(file.partition["stream_id"]), _ALL)
    ]
