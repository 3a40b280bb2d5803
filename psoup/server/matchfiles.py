"""Stored matches in memory: row groups of the matches files, under a budget."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from psoup.server.files import match_groups, read_match_group
from results.bitmap import Lows
from results.matches import MatchPieces
from results.ranges import Range

_OVERHEAD = 500


class MatchCache:
    """What was used longest ago leaves first. Thread-safe; two threads may read a group twice.

    Files never change, so nothing here is ever stale.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._spans: OrderedDict[Path, list[Range]] = OrderedDict()
        self._groups: OrderedDict[tuple[Path, int], MatchPieces] = OrderedDict()
        self._used = 0

    @property
    def used(self) -> int:
        return self._used

    def find(self, path: Path, predicate: int, block: int) -> Iterator[Lows]:
        """Raises FileNotFoundError where the engine has removed the file since."""
        for group, (lo, hi) in enumerate(self._spans_of(path)):
            if lo <= predicate < hi:
                yield from self._pieces(path, group).find(predicate, block)

    def _spans_of(self, path: Path) -> list[Range]:
        with self._lock:
            spans = self._spans.get(path)
            if spans is not None:
                self._spans.move_to_end(path)
                return spans
        spans = match_groups(path)
        with self._lock:
            if path not in self._spans:
                self._spans[path] = spans
                self._used += _OVERHEAD
                self._shrink()
        return spans

    def _pieces(self, path: Path, group: int) -> MatchPieces:
        key = path, group
        with self._lock:
            pieces = self._groups.get(key)
            if pieces is not None:
                self._groups.move_to_end(key)
                return pieces
        pieces = MatchPieces(read_match_group(path, group))
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
