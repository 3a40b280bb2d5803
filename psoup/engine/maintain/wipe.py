"""The wait until erased rows are off the disk.

When no table has erased rows any more, their bytes may still be in files of the log, in files that
no commit names, and, as the bounds of files, in old commits and checkpoints of the stems. All of
these exist at that moment, so this chore lists them then and waits until each is gone. No clock is
compared. An engine that starts lists again what is there, which may be more and is never less.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.maintain.discard import files_below, unnamed
from psoup.engine.settings import EngineSettings
from psoup.store.backup.pins import PinWatch
from psoup.store.log.position import Position


@dataclass(slots=True)
class Traces:
    """What may have bytes of the rows that were erased up to a position: `files`, and what the
    Delta logs of `stems` have below a version of each. `since` is when two checkpoints replaced
    those, None before."""

    position: Position
    files: set[Path]
    stems: dict[str, int]
    since: float | None = None


class Wipe:
    """The chore that notes up to which position erased rows have left the disk."""

    def __init__(self, settings: EngineSettings) -> None:
        self._every = max(settings.housekeeping, settings.commit_grace / 8)
        self._commit_grace = settings.commit_grace
        self._pins = PinWatch(settings.pin_timeout)
        self._next = 0.0
        # In the order of their positions. Each waits for its own files, so that erasures in quick
        # succession do not put each other off.
        self._waiting: deque[Traces] = deque()

    def advance(self, ledger: Ledger) -> bool:
        if ledger.epoch.erased <= ledger.wiped:
            return False
        if not self._waiting or self._waiting[-1].position < ledger.epoch.erased:
            self._begin(ledger)
            return True
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + self._every
        is_pinned = self._pins.are_held(ledger.store.root, ledger.fence.delete)
        for traces in self._waiting:
            traces.files = {path for path in traces.files if path.exists()}
            if not is_pinned:
                self._shorten(ledger, traces)
        is_wiped = False
        while self._waiting and not self._waiting[0].files and not self._waiting[0].stems:
            ledger.wiped, is_wiped = self._waiting.popleft().position, True
        if is_wiped:
            ledger.publish("erase")
        return is_wiped

    def _begin(self, ledger: Ledger) -> None:
        """List the traces of what the last epoch has erased from the tables."""
        position = ledger.epoch.erased
        log = ledger.store.log.folder
        logged = files_below(log, position.version).files.values()
        files = {*unnamed(ledger), *(log.path_of(file) for file in logged)}
        names = [name for name in map(stem_name, _touched(ledger)) if name in ledger.tables]
        stems = {name: ledger.tables[name].version for name in names}
        for name in names:
            # Commits are dropped behind two checkpoints. An idle stem gets no later commit by
            # itself.
            ledger.commit(name, operation="ERASE")
        if names:
            ledger.publish("erase")
        self._waiting.append(Traces(position, files, stems))

    def _shorten(self, ledger: Ledger, traces: Traces) -> None:
        """Drop the old commits and checkpoints of stems, once two checkpoints replace them for the
        grace of commits."""
        traces.stems = {
            name: version for name, version in traces.stems.items() if name in ledger.tables
        }
        if traces.since is None:
            for name, version in traces.stems.items():
                folder = ledger.folder(name)
                if folder.floor() < version:
                    ledger.fence.checkpoint(folder, version)
                    # Last, so that Delta's pointer leads to the newest.
                    ledger.fence.checkpoint(folder, ledger.tables[name].version)
            traces.since = time.monotonic()
        if time.monotonic() - traces.since < self._commit_grace:
            return
        for name, version in list(traces.stems.items()):
            ledger.fence.drop_commits(ledger.folder(name), version)
            if not ledger.folder(name).obsolete_commits(version):
                del traces.stems[name]


def _touched(ledger: Ledger) -> Iterator[int]:
    """Yield the ids of streams of which rows were erased that may have traces, and of composites
    over one of these."""
    state = ledger.state
    streams = {
        stream_id
        for stream_id, erasures in state.erasures.items()
        if erasures.records[-1].position > ledger.wiped
    }
    yield from streams
    for composite_id, composite in state.composites.items():
        if not streams.isdisjoint(composite.legs):
            yield composite_id
