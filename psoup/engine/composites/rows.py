"""The caches of a worker for a composite's legs: columns of stems by row group, runs of
`joins/<id>` by row group, ends of keyed rows.

Files never change, so an entry stays valid as long as the process lives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.caches import LruCache
from datastem.instants import FOR_EVER
from datastem.schema import Column
from psoup.engine.composites.runs import KeyRun
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import NO_COLUMNS, group_bounds, reader

# What an entry takes beside its arrays: its cache key and its objects.
_ENTRY_OVERHEAD_BYTES = 512

ReadCache = LruCache[tuple[str, ...], Any]


@lru_cache(maxsize=1)
def read_cache(limit: int) -> ReadCache:
    """Return the cache of this process, of at most `limit` bytes."""
    return LruCache(limit, _ENTRY_OVERHEAD_BYTES)


class StemRows:
    """Rows of a stem's files by their ids."""

    def __init__(
        self,
        root: Path,
        files: Iterable[DataFile],
        cache: ReadCache,
        optional: Mapping[str, Column] = NO_COLUMNS,
    ) -> None:
        self._root = root
        self._files = [file for file in files if file.low]
        self._cache = cache
        self._optional = optional

    def fetch(self, ids: Int64s, names: Sequence[str]) -> tuple[Int64s, pa.RecordBatch]:
        """Return the rows with these ascending ids that exist: their ids, and the named columns."""
        id_parts, parts = [np.empty(0, np.int64)], []
        for file in self._files:
            # The ids ascend, so those within the bounds of a file are one slice.
            low, high = np.searchsorted(ids, [file.low["_row_id"], file.high["_row_id"] + 1])
            if low < high:
                for file_ids, columns in self._of_file(file, ids[low:high], names):
                    id_parts.append(file_ids)
                    parts.append(columns)
        existing_ids = np.concatenate(id_parts)
        if not parts:
            return existing_ids, pa.RecordBatch.from_arrays(
                [pa.nulls(0)] * len(names), names=list(names)
            )
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        # The files may not be in the order of their rows.
        if (existing_ids[1:] > existing_ids[:-1]).all():
            return existing_ids, rows
        order = np.argsort(existing_ids)
        return existing_ids[order], rows.take(pa.array(order))

    def _of_file(
        self, file: DataFile, ids: Int64s, names: Sequence[str]
    ) -> Iterator[tuple[Int64s, pa.RecordBatch]]:
        for group, (low, high) in self._groups(file, int(ids[0]), int(ids[-1]) + 1):
            first, last = np.searchsorted(ids, [low, high + 1])
            if first == last:
                continue
            requested, group_ids = ids[first:last], self._ids(file, group)
            # The place of each requested id in the row group; a missing id gets that of another.
            places = np.minimum(np.searchsorted(group_ids, requested), len(group_ids) - 1)
            matches = group_ids[places] == requested
            if matches.any():
                at = pa.array(places[matches])
                columns = [column.take(at) for column in self._columns(file, group, names)]
                yield requested[matches], pa.RecordBatch.from_arrays(columns, names=list(names))

    def _groups(self, file: DataFile, low: int, high: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield the row groups that may have ids in `[low, high)`, and the bounds of their ids."""
        bounds = self._cache.find(
            (file.path,), lambda: _bounds(reader(self._root, file).metadata, "_row_id"), len
        )
        for group, id_bounds in enumerate(bounds):
            if id_bounds[0] < high and id_bounds[1] >= low:
                yield group, id_bounds

    def _ids(self, file: DataFile, group: int) -> Int64s:
        (column,) = self._columns(file, group, ["_row_id"])
        ids: Int64s = column.to_numpy()
        return ids

    def _columns(self, file: DataFile, group: int, names: Sequence[str]) -> list[pa.Array]:
        keys = [(file.path, str(group), name) for name in names]
        columns = {key: self._cache.get(key) for key in keys}
        missing = [key for key, column in columns.items() if column is None]
        if missing:
            source = reader(self._root, file, self._optional)
            table = source.row_group(group, [name for _, _, name in missing])
            for key in missing:
                column = table.column(key[2]).combine_chunks()
                self._cache.put(key, column, column.nbytes)
                columns[key] = column
        return [columns[key] for key in keys]


class JoinState:
    """The runs in the files of `joins/<id>`."""

    def __init__(self, root: Path, files: Iterable[DataFile], cache: ReadCache) -> None:
        self._root = root
        self._files = list(files)
        self._cache = cache

    def runs(self, buckets: Int64s | None = None, *, least_id: int = 0) -> Iterator[KeyRun]:
        """Yield the runs that may have rows of these ascending buckets, all runs if None, and with
        ids from `least_id` on."""
        for file in self._files:
            if file.high.get("row_id", least_id) < least_id:
                continue
            for group, (low, high) in enumerate(self._groups(file)):
                # Whether one of the buckets is within the bounds of the row group.
                if buckets is None or np.diff(np.searchsorted(buckets, [low, high + 1]))[0]:
                    yield self._run(file, group)

    def _groups(self, file: DataFile) -> list[tuple[int, int]]:
        """Return the least and the greatest bucket of each row group."""
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

    def ids(self, sides: Collection[int]) -> Int64s:
        """Return the ascending ids of the rows of any of these sides."""
        parts = [
            rows.ids for run in self.runs() for side, rows in run.sides.items() if side in sides
        ]
        return np.unique(np.concatenate([np.empty(0, np.int64), *parts]))


class RowEnds:
    """The ends of rows of a keyed stream, from files of the closures table. Only ends count that
    rows with ids below `before` have caused."""

    def __init__(
        self, root: Path, files: Iterable[DataFile], before: int, cache: ReadCache
    ) -> None:
        self._root = root
        self._files = [file for file in files if file.low]
        self._before = before
        self._cache = cache

    def ends(self, ids: Int64s) -> Int64s:
        """Return the end of each of the rows with these ascending ids; FOR_EVER if it has none."""
        row_ends = np.full(len(ids), FOR_EVER)
        for file in self._files:
            low, high = np.searchsorted(ids, [file.low["row_id"], file.high["row_id"] + 1])
            if low < high:
                rows, ends, by = self._read(file)
                # The file's closures are sorted by row id: those of these rows are within `part`.
                first, last = np.searchsorted(rows, [ids[low], ids[high - 1] + 1])
                part = slice(first, last)
                places = np.minimum(np.searchsorted(ids, rows[part]), len(ids) - 1)
                valid = (ids[places] == rows[part]) & (by[part] < self._before)
                # A row may have several closures: late rows end it earlier.
                np.minimum.at(row_ends, places[valid], ends[part][valid])
        return row_ends

    def _read(self, file: DataFile) -> tuple[Int64s, Int64s, Int64s]:
        columns: tuple[Int64s, Int64s, Int64s] = self._cache.find(
            (file.path,), lambda: self._columns(file), lambda arrays: 3 * arrays[0].nbytes
        )
        return columns

    def _columns(self, file: DataFile) -> tuple[Int64s, ...]:
        table = reader(self._root, file).read(["row_id", "end", "by"])
        return tuple(column.cast(pa.int64()).to_numpy() for column in table.columns)


def _bounds(metadata: Any, column: str) -> list[tuple[int, int]]:
    """Return the least and the greatest value of an integer column in each row group."""
    return [group_bounds(metadata, group, column) for group in range(metadata.num_row_groups)]
