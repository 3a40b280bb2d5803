"""Scrubbing: files are read at intervals to check them, a few in each round.

So damage is found while it can still be repaired, not when the rows are needed.
"""

from __future__ import annotations

import logging
import time
from collections import deque

from psoup.engine.ledger import Ledger
from psoup.engine.repair.mend import check_holes, mend
from psoup.engine.settings import EngineSettings
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import DataFileGone, reader
from psoup.store.errors import CorruptStore

log = logging.getLogger(__name__)


class Scrub:
    """The chore that checks files, and repairs damaged ones."""

    def __init__(self, settings: EngineSettings) -> None:
        self._every = settings.housekeeping
        self._bytes = settings.scrub_bytes
        self._next = 0.0
        self._queue: deque[tuple[str, DataFile]] = deque()
        self._reported: set[str] = set()

    def advance(self, ledger: Ledger) -> bool:
        """Check a few files. Return True if an epoch was published: one was damaged, or
        restored."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._every
        if check_holes(ledger):
            return True
        if not self._queue:
            self._queue.extend(
                (name, file) for name in ledger.tables for file in ledger.files(name)
            )
        return self._check_files(ledger)

    def _check_files(self, ledger: Ledger) -> bool:
        size, mended = 0, False
        while self._queue and size < self._bytes:
            name, file = self._queue.popleft()
            # The file may have been merged since it was queued.
            if file.path in ledger.tables[name].files:
                mended |= self._check(ledger, name, file)
                size += file.size
        return mended

    def _check(self, ledger: Ledger, name: str, file: DataFile) -> bool:
        try:
            reader(ledger.folder(name).root, file).check()
            return False
        except (CorruptStore, DataFileGone) as damage:
            return self._mend(ledger, damage.file)

    def _mend(self, ledger: Ledger, name: str) -> bool:
        try:
            mend(ledger, name)
            return True
        except CorruptStore as error:
            # Report it once; reads of the file report it again.
            if name not in self._reported:
                self._reported.add(name)
                log.error("damage was found: %s", error)
            return False
