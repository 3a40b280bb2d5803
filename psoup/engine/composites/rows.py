"""What a worker reads of a composite's legs and keeps under a budget: columns of stems by row
group, runs of `joins/<id>` by row group, ends of keyed rows.

Files never change, so that what was read stays true for as long as a process lives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.caches import LruCache
from datastem.instants import FOR_EVER
from psoup.engine.composites.keys import buckets
from psoup.engine.composites.runs import KeyRun
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import group_bounds, reader

# Beside its arrays a value has its key and its objects.
_OVERHEAD = 512

ReadCache = LruCache[tuple[str, ...], Any]


@lru_cache(maxsize=1)
def read_cache(limit: int) -> ReadCache:
    """Keeps what this process has read, of at most `limit` bytes."""
    return LruCache(limit, _OVERHEAD)


class StemRows:
    """Rows of a stem's files by their ids."""

    def __init__(self, root: Path, files: Iterable[DataFile], cache: ReadCache) -> None:
        self._root = root
        self._files = [file for file in files if file.low]
        self._cache = cache

    def fetch(self, ids: Int64s, names: Sequence[str]) -> tuple[Int64s, pa.RecordBatch]:
        """The rows with these ascending ids that are there: their ids, and the named columns."""
        found, parts = [np.empty(0, np.int64)], []
        for file in self._files:
            low, high = np.searchsorted(ids, [file.low["_row_id"], file.high["_row_id"] + 1])
            if low < high:
                for own, columns in self._of_file(file, ids[low:high], names):
                    found.append(own)
                    parts.append(columns)
        there = np.concatenate(found)
        if not parts:
            return there, pa.RecordBatch.from_arrays([pa.nulls(0)] * len(names), names=list(names))
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        if (there[1:] > there[:-1]).all():
            return there, rows
        order = np.argsort(there)
        return there[order], rows.take(pa.array(order))

    def _of_file(
        self, file: DataFile, ids: Int64s, names: Sequence[str]
    ) -> Iterator[tuple[Int64s, pa.RecordBatch]]:
        for group, (low, high) in self._groups(file, int(ids[0]), int(ids[-1]) + 1):
            first, last = np.searchsorted(ids, [low, high + 1])
            if first == last:
                continue
            wanted, own = ids[first:last], self._ids(file, group)
            places = np.minimum(np.searchsorted(own, wanted), len(own) - 1)
            there = own[places] == wanted
            if there.any():
                at = pa.array(places[there])
                columns = [column.take(at) for column in self._columns(file, group, names)]
                yield wanted[there], pa.RecordBatch.from_arrays(columns, names=list(names))

    def _groups(self, file: DataFile, low: int, high: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """The row groups that may have ids in `[low, high)`, and the bounds of their ids."""
        bounds = self._cache.find(
            (file.path,), lambda: _bounds(reader(self._root, file).metadata, "_row_id"), len
        )
        for group, each in enumerate(bounds):
            if each[0] < high and each[1] >= low:
                yield group, each

    def _ids(self, file: DataFile, group: int) -> Int64s:
        (column,) = self._columns(file, group, ["_row_id"])
        ids: Int64s = column.to_numpy()
        return ids

    def _columns(self, file: DataFile, group: int, names: Sequence[str]) -> list[pa.Array]:
        keys = [(file.path, str(group), name) for name in names]
        found = {key: self._cache.get(key) for key in keys}
        missing = [key for key, column in found.items() if column is None]
        if missing:
            table = reader(self._root, file).row_group(group, [name for _, _, name in missing])
            for key in missing:
                column = table.column(key[2]).combine_chunks()
                self._cache.put(key, column, column.nbytes)
                found[key] = column
        return [found[key] for key in keys]


class JoinState:
    """The runs in the files of `joins/<id>`."""

    def __init__(self, root: Path, files: Iterable[DataFile], cache: ReadCache) -> None:
        self._root = root
        self._files = list(files)
        self._cache = cache

    def runs(self, hashes: Int64s | None = None) -> Iterator[KeyRun]:
        """The runs that may have rows with some hashes; all where none are given."""
        wanted = None if hashes is None else np.unique(buckets(hashes))
        for file in self._files:
            for group, (low, high) in enumerate(self._groups(file)):
                if wanted is None or np.diff(np.searchsorted(wanted, [low, high + 1]))[0]:
                    yield self._run(file, group)

    def _groups(self, file: DataFile) -> list[tuple[int, int]]:
        """The least and the greatest bucket of each row group."""
        groups: list[tuple[int, int]] = self._cache.find(
            (file.path,), lambda: _bounds(reader(self._root, file).metadata, "bucket"), len
        )
        return groups

    def _run(self, file: DataFile, group: int) -> KeyRun:
        run: KeyRun = self._cache.find(
            (file.path, str(group)),
            lambda: KeyRun.of(reader(self._root, file).row_group(group)),
            lambda run: run.nbytes,
        )
        return run

    def ids(self, side: int) -> Int64s:
        """The ids, ascending, of the rows that a side has."""
        found = [run.sides[side].ids for run in self.runs() if side in run.sides]
        return np.sort(np.concatenate([np.empty(0, np.int64), *found]))


class RowEnds:
    """The ends of rows of a keyed stream that rows with ids below `before` have caused, from files
    of the closures table."""

    def __init__(
        self, root: Path, files: Iterable[DataFile], before: int, cache: ReadCache
    ) -> None:
        self._root = root
        self._files = [file for file in files if file.low]
        self._before = before
        self._cache = cache

    def ends(self, ids: Int64s) -> Int64s:
        """The end of each of the rows with these ascending ids; FOR_EVER where none is known."""
        found = np.full(len(ids), FOR_EVER)
        for file in self._files:
            low, high = np.searchsorted(ids, [file.low["row_id"], file.high["row_id"] + 1])
            if low < high:
                rows, ends, by = self._read(file)
                first, last = np.searchsorted(rows, [ids[low], ids[high - 1] + 1])
                part = slice(first, last)
                places = np.minimum(np.searchsorted(ids, rows[part]), len(ids) - 1)
                known = (ids[places] == rows[part]) & (by[part] < self._before)
                np.minimum.at(found, places[known], ends[part][known])
        return found

    def _read(self, file: DataFile) -> tuple[Int64s, Int64s, Int64s]:
        columns: tuple[Int64s, Int64s, Int64s] = self._cache.find(
            (file.path,), lambda: self._columns(file), lambda each: 3 * each[0].nbytes
        )
        return columns

    def _columns(self, file: DataFile) -> tuple[Int64s, ...]:
        table = reader(self._root, file).read(["row_id", "end", "by"])
        return tuple(column.cast(pa.int64()).to_numpy() for column in table.columns)


def _bounds(metadata: Any, column: str) -> list[tuple[int, int]]:
    """The least and the greatest value of an integer column in each row group."""
    return [group_bounds(metadata, group, column) for group in range(metadata.num_row_groups)]
