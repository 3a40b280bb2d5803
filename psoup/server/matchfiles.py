"""Stored matches in memory: row groups of the matches files, under a budget."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from datastem.arrays import UInt16s
from psoup.server.files import match_groups, read_match_group
from psoup.store import DataFile
from results.id_sets import Range
from results.stored_matches import MatchPieces

_OVERHEAD = 500


class MatchFileCache:
    """What was used longest ago leaves first. Thread-safe; two threads may read a group twice.

    Files never change, so nothing here is ever stale.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._spans: OrderedDict[str, list[Range]] = OrderedDict()
        self._groups: OrderedDict[tuple[str, int], MatchPieces] = OrderedDict()
        self._used = 0

    @property
    def used(self) -> int:
        return self._used

    def find(self, root: Path, file: DataFile, predicate: int, block: int) -> Iterator[UInt16s]:
        """Raises FileNotFoundError where the engine has removed the file since, CorruptStore where
        it is damaged."""
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
