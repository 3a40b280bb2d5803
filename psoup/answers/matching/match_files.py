"""The engine's files of matches: which rows each predicate matches, as bitmaps by block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from datastem.arrays import UInt16s
from datastem.caches import LruCache
from psoup.store import CorruptStore, DataFile
from psoup.store.delta.reading import group_range, reader, single_batch
from results.id_sets import Range
from results.stored_matches import MatchPieces

log = logging.getLogger("psoup.answers")

# Memory of the predicate ranges of one file, about.
_SPANS_BYTES = 500


class MatchFileCache:
    """A cache of row groups of matches files, under a budget. Thread-safe.

    Files never change, so entries are never stale. Two threads may read one group twice. A damaged
    file is not read again.
    """

    def __init__(
        self, root: Path, limit: int, is_newest: Callable[[int], bool] = lambda epoch: False
    ) -> None:
        """Open the cache. `is_newest` must return True if no epoch followed a version of the epochs
        table."""
        self._root = root
        self._is_newest = is_newest
        self._damaged: dict[str, str] = {}
        self._cache: LruCache[tuple[str, int | None], MatchPieces | list[Range]] = LruCache(limit)

    @property
    def used(self) -> int:
        return self._cache.used

    def find(self, file: DataFile, predicate: int, block: int, epoch: int) -> Iterator[UInt16s]:
        """Yield the matches of a predicate in a block, in one piece or several.

        `epoch` is the version of the epochs table that names the file. Raises FileNotFoundError if
        the engine has removed the file since, CorruptStore if the file is damaged, or missing
        although no epoch is newer.
        """
        with self._reading(file, epoch):
            yield from self._find(file, predicate, block)

    def bitmaps(self, file: DataFile, predicate: int, epoch: int) -> list[tuple[int, bytes]]:
        """Return the blocks and bitmaps of a predicate in a file, read without the cache; an empty
        list if the file is damaged. Raises FileNotFoundError as `find` does."""
        try:
            with self._reading(file, epoch):
                return [
                    piece
                    for group, (lo, hi) in enumerate(_read_spans(self._root, file))
                    if lo <= predicate < hi
                    for piece in _read_pieces(self._root, file, group).every(predicate)
                ]
        except CorruptStore:
            return []

    @contextmanager
    def _reading(self, file: DataFile, epoch: int) -> Iterator[None]:
        """Guard a block that reads a file, so that it raises what `find` raises."""
        if file.path in self._damaged:
            raise CorruptStore(self._damaged[file.path])
        try:
            yield
        except CorruptStore as error:
            self._mark_damaged(file, error)
            raise
        except FileNotFoundError as error:
            # A newer epoch, which the caller can plan with, may do without the file.
            if not self._is_newest(epoch):
                raise
            self._mark_damaged(file, error)
            raise CorruptStore(str(error)) from error

    def _mark_damaged(self, file: DataFile, error: Exception) -> None:
        log.error("%s; its matches are computed here", error)
        self._damaged[file.path] = str(error)

    def _find(self, file: DataFile, predicate: int, block: int) -> Iterator[UInt16s]:
        for group, (lo, hi) in enumerate(self._spans(file)):
            if lo <= predicate < hi:
                yield from self._pieces(file, group).find(predicate, block)

    def _spans(self, file: DataFile) -> list[Range]:
        key = file.path, None
        spans = self._cache.get(key)
        if not isinstance(spans, list):
            spans = _read_spans(self._root, file)
            self._cache.put(key, spans, _SPANS_BYTES)
        return spans

    def _pieces(self, file: DataFile, group: int) -> MatchPieces:
        key = file.path, group
        pieces = self._cache.get(key)
        if not isinstance(pieces, MatchPieces):
            pieces = _read_pieces(self._root, file, group)
            self._cache.put(key, pieces, pieces.nbytes)
        return pieces


def _read_spans(root: Path, file: DataFile) -> list[Range]:
    """Return the predicate ids `[lo, hi)` of each row group of a matches file."""
    metadata = reader(root, file).metadata
    return [
        group_range(metadata, group, "predicate_id") for group in range(metadata.num_row_groups)
    ]


def _read_pieces(root: Path, file: DataFile, group: int) -> MatchPieces:
    """Return the matches of one row group."""
    columns = ["predicate_id", "block", "bitmap"]
    return MatchPieces(single_batch(reader(root, file).row_group(group, columns)))
