"""Retention: files without a row that a request may still see leave the tables.

A row is retained while ts > NOW - RETAIN; the grace is added on top, for clocks that differ and
answers that are under way. NOW is what the log says, less the jumps that nobody has confirmed: a
wrong clock, the engine's own included, deletes nothing. Rows of keyed streams leave one by one, by
`thin`.
"""

from __future__ import annotations

import time

from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.pieces import ROW_SEGMENT_BITS
from psoup.engine.settings import EngineSettings
from psoup.store.delta.files import DataFile
from psoup.store.layout import SEGMENTED
from psoup.store.state.losses import Hole
from psoup.store.state.state import StreamState


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
            ledger.histories.forget(stream_id)
        orphans = {name: files for name in SEGMENTED if (files := _orphans(ledger, name))}
        for name, files in orphans.items():
            ledger.commit(name, (), files, operation="RETAIN")
        losses = ledger.state.losses
        ledger.state.losses = losses.only(lambda hole: not self._is_past(ledger, hole))
        if gone or orphans or losses != ledger.state.losses:
            ledger.publish("retain")
            return True
        self._next = time.monotonic() + self._every
        return False

    def _gone(self, ledger: Ledger, stream: StreamState) -> list[DataFile]:
        if stem_name(stream.id) not in ledger.tables:
            return []
        files = list(ledger.tables[stem_name(stream.id)].files.values())
        if stream.dropped:
            return files
        limit = None if stream.schema.key else retained_after(ledger, stream, self._grace)
        if limit is None:
            return []
        return [file for file in files if file.high.get("_ts", limit + 1) <= limit]

    def _is_past(self, ledger: Ledger, hole: Hole) -> bool:
        """Whether the rows would be gone by now, had they not been lost."""
        stream = ledger.state.streams[hole.stream_id]
        if stream.dropped:
            return True
        limit = None if stream.schema.key else retained_after(ledger, stream, self._grace)
        return limit is not None and hole.ts_hi is not None and hole.ts_hi <= limit


def retained_after(ledger: Ledger, stream: StreamState, grace: int) -> int | None:
    """What is no later than this instant is not retained; None where everything is."""
    state = ledger.state
    now = stream.reached if stream.schema.ordered_by else state.clock
    if stream.schema.retain is None or now is None:
        return None
    return now - state.jumps.unconfirmed - stream.schema.retain - grace


def _orphans(ledger: Ledger, name: str) -> list[DataFile]:
    """Files of segments without rows, and of dropped streams."""
    held = {
        (str(stream.id), str(file.low["_row_id"] >> ROW_SEGMENT_BITS))
        for stream in ledger.state.streams.values()
        if not stream.dropped and stem_name(stream.id) in ledger.tables
        for file in ledger.tables[stem_name(stream.id)].files.values()
        if file.low
    }
    return [
        file
        for file in ledger.files(name)
        if (file.partition["stream_id"], file.partition["segment"]) not in held
    ]
