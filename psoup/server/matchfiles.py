"""Stored matches in memory: row groups of the matches files, under a budget."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from psoup.server.files import match_groups, read_match_group
from psoup.store import CorruptStore, DataFile
from results.bitmap import Lows
from results.matches import MatchPieces
from results.ranges import Range

log = logging.getLogger("psoup.server")

_OVERHEAD = 500


class MatchCache:
    """What was used longest ago leaves first. Thread-safe; two threads may read a group twice.

    Files never change, so nothing here is ever stale. A file that is damaged is not read again.
    """

    def __init__(self, limit: int, is_newest: Callable[[int], bool] = lambda epoch: False) -> None:
        """`is_newest` tells whether no epoch came after a version of the epochs table."""
        self.limit = limit
        self._is_newest = is_newest
        self._lock = threading.Lock()
        self._spans: OrderedDict[str, list[Range]] = OrderedDict()
        self._groups: OrderedDict[tuple[str, int], MatchPieces] = OrderedDict()
        self._used = 0
        self._lost: dict[str, str] = {}

    @property
    def used(self) -> int:
        return self._used

    def find(
        self, root: Path, file: DataFile, predicate: int, block: int, epoch: int
    ) -> Iterator[Lows]:
        """Raises FileNotFoundError where the engine has removed the file since, CorruptStore where
        it is damaged, or gone although no epoch is newer than the one that names it. `epoch` is
        the version of the epochs table that brought that."""
        with self.reading(file, epoch):
            yield from self._find(root, file, predicate, block)

    @contextmanager
    def reading(self, file: DataFile, epoch: int) -> Iterator[None]:
        """Around whatever reads a file; raises what `find` raises."""
        if file.path in self._lost:
            raise CorruptStore(self._lost[file.path])
        try:
            yield
        except CorruptStore as error:
            self._lose(file, error)
            raise
        except FileNotFoundError as error:
            if not self._is_newest(epoch):
                raise
            self._lose(file, error)
            raise CorruptStore(str(error)) from error

    def _lose(self, file: DataFile, error: Exception) -> None:
        log.error("%s; its matches are computed here", error)
        self._lost[file.path] = str(error)

    def _find(self, root: Path, file: DataFile, predicate: int, block: int) -> Iterator[Lows]:
        for group, (lo, hi) in enumerate(self._spans_of(root, file)):
            if lo <= predicate < hi:
                yield from self._pieces(root, file, group).find(predicate, block)

    def _spans_of(self, root: Path, file: DataFile) -> list[Range]:
        with self._lock:
            spans = self._spans.get(file.path)
            if spans is not None:
                self._spans.move_to_end(file.path)
                return spans
        spans = match_groups(root, file)
        with self._lock:
            if file.path not in self._spans:
                self._spans[file.path] = spans
                self._used += _OVERHEAD
                self._shrink()
        return spans

    def _pieces(self, root: Path, file: DataFile, group: int) -> MatchPieces:
        key = file.path, group
        with self._lock:
            pieces = self._groups.get(key)
            if pieces is not None:
                self._groups.move_to_end(key)
                return pieces
        pieces = MatchPieces(read_match_group(root, file, group))
        with self._lock:
            if key not in self._groups:
                self._groups[key] = pieces
                self._used += pieces.nbytes
                self._shrink()
        return pieces

    def _shrink(self) -> None:
        while self._used > self.limit and len(self._groups) > 1:
            _, gone = self._groups.popitem(last=False)
            self._used -= gone.nbytes
        while self._used > self.limit and len(self._spans) > 1:
            self._spans.popitem(last=False)
            self._used -= _OVERHEAD
