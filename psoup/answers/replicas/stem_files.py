"""The files of a stem: whole blocks of them, or a few rows by id.

A file has row groups of at most `STEM_GROUP_ROWS` rows, and none reaches over a block's edge. A
few rows are read from the row groups that have them, and only the columns that are needed: an
answer that needs a hundred rows then costs the same however many rows are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS, BLOCK_ROWS
from datastem.codec import with_optional
from datastem.memory import Memory
from datastem.schema import Column
from datastem.segments import RowSegment
from psoup.store import CorruptStore, DataFile, DeltaFolder
from psoup.store.delta.reading import (
    NO_COLUMNS,
    DataReader,
    group_bounds,
    group_range,
    reader,
    single_batch,
)

# Bytes that a parsed footer takes in memory for each byte of the file's.
_FOOTER_FACTOR = 9


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Neighbouring row groups of a file, or the whole file if `groups` is None."""

    root: Path
    file: DataFile
    groups: range | None


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A file whose footer is parsed. Of each row group: the bounds `[low, high)` of its row ids,
    and the number of its rows, as arrays in the order of the groups."""

    path: str
    reader: DataReader
    low: Int64s
    high: Int64s
    rows: Int64s

    @classmethod
    def of(cls, root: Path, file: DataFile) -> _OpenFile:
        """Open a file. Raises CorruptStore, FileNotFoundError."""
        opened = reader(root, file)
        metadata = opened.metadata
        numbers = range(metadata.num_row_groups)
        bounds = [group_range(metadata, number, "_row_id") for number in numbers]
        low, high = np.array(bounds, np.int64).reshape(-1, 2).T
        rows = np.array([metadata.row_group(number).num_rows for number in numbers], np.int64)
        return cls(file.path, opened, low, high, rows)

    @property
    def nbytes(self) -> int:
        return int(self.reader.metadata.serialized_size) * _FOOTER_FACTOR


@dataclass(frozen=True, slots=True)
class _FileColumns:
    """Columns to read, and the optional ones that files may lack."""

    schema: pa.Schema
    optional: Mapping[str, Column]

    def complete(self, table: pa.Table, names: Sequence[str]) -> pa.Table:
        return with_optional(table, names, self.optional)


class StemFiles:
    """The files of one stem. Thread-safe: it caches only what never changes in files.

    The footers of files that are larger than a block are kept while `memory` has room for them.
    """

    def __init__(
        self,
        folder: DeltaFolder,
        schema: pa.Schema,
        memory: Memory,
        optional: Mapping[str, Column] = NO_COLUMNS,
    ) -> None:
        self._folder = folder
        # One tuple, so that threads never see the parts of different schemas.
        self._columns = schema, optional
        self._memory = memory
        self._segments: dict[str, tuple[RowSegment, ...]] = {}
        # By a hash of the file's path, which is their number in `memory`, too.
        self._open: dict[int, _OpenFile] = {}

    def alter(self, schema: pa.Schema, optional: Mapping[str, Column]) -> None:
        """Read rows with these columns from now on; files may lack the optional ones."""
        self._columns = schema, optional

    def segments(self, files: Iterable[DataFile]) -> list[RowSegment]:
        """Return the runs of rows in some files. Opens the files that are larger than a block."""
        before = self._segments
        present = {file.path: before.get(file.path) or self._read_segments(file) for file in files}
        # Replaced as a whole: other threads never see it half filled, and removed files leave it.
        # From here on only `present` is read, since another thread may replace it again.
        self._segments = present
        for number in {hash(path) for path in before.keys() - present.keys()}:
            self._memory.drop((self, number))
            self.evict(number)
        return [segment for segments in present.values() for segment in segments]

    def forget(self) -> None:
        """Give back the memory."""
        self.segments(())

    def evict(self, number: int) -> None:
        """Drop a footer. Called by the memory when it needs the room."""
        self._open.pop(number, None)

    def read(
        self, segments: Sequence[RowSegment], lo: int, hi: int, names: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Return the rows of segments with ids in `[lo, hi)`, by ascending id; with `names`, only
        those columns.

        Raises FileNotFoundError if the engine has removed a file since, CorruptStore if one is
        damaged.
        """
        columns = self._chosen(names)
        schema, whole = columns.schema, names is None
        tables = [self._read(segment.source, columns, whole) for segment in segments]
        if not tables:
            return single_batch(schema.empty_table())
        table = _by_id(pa.concat_tables(tables).cast(schema))
        if any(segment.row_lo < lo or segment.row_hi > hi for segment in segments):
            begin, end = np.searchsorted(table.column("_row_id").to_numpy(), [lo, hi])
            table = table.slice(begin, end - begin)
        return single_batch(table)

    def pick(
        self, segments: Sequence[RowSegment], ids: Int64s, names: Sequence[str]
    ) -> pa.RecordBatch:
        """Return the rows of segments with these ascending ids, by ascending id, with these
        columns and `_row_id`; ids without a row are left out.

        Only the row groups that have some of the ids are read. Raises what `read` raises.
        """
        columns = self._chosen(["_row_id", *(name for name in names if name != "_row_id")])
        tables = [columns.schema.empty_table()]
        # The segments of one file are next to each other, since they are by ascending id; if not,
        # the file is read twice.
        for _, run in groupby(segments, key=lambda segment: segment.source.file.path):
            run_segments = list(run)
            low = run_segments[0].row_lo
            high = max(segment.row_hi for segment in run_segments)
            inside = ids[slice(*np.searchsorted(ids, [low, high]))]
            if len(inside):
                tables.append(self._pick(run_segments, inside, columns))
        return single_batch(_by_id(pa.concat_tables(tables)))

    def _pick(self, segments: Sequence[RowSegment], ids: Int64s, columns: _FileColumns) -> pa.Table:
        """Return the rows of segments of one file with these ascending ids."""
        source, schema = segments[0].source, columns.schema
        opened = self._opened(source.root, source.file)
        # How many of the ids each row group may have.
        counts = np.searchsorted(ids, opened.high) - np.searchsorted(ids, opened.low)
        chosen = np.flatnonzero(counts > 0)
        if not len(chosen):
            return schema.empty_table()
        low, high, rows = opened.low[chosen], opened.high[chosen], opened.rows[chosen]
        # Without gaps the place of a row follows from its id, and the column of ids is not read.
        dense = bool((high - low == rows).all())
        names = schema.names[1:] if dense and len(schema) > 1 else schema.names
        stored = opened.reader.scattered_groups(chosen.tolist(), names)
        table = columns.complete(stored, names)
        if len(names) < len(schema):
            # The place of each row group's first row in the table.
            starts = np.cumsum(rows) - rows
            group = np.searchsorted(low, ids, "right") - 1
            present = (group >= 0) & (ids < high[group])
            ids, group = ids[present], group[present]
            places = starts[group] + ids - low[group]
            table = table.take(pa.array(places))
            arrays = [pa.chunked_array([pa.array(ids)]), *table.columns]
            return pa.Table.from_arrays(arrays, names=schema.names).cast(schema)
        places = np.flatnonzero(np.isin(table.column("_row_id").to_numpy(), ids))
        return table.take(pa.array(places)).cast(schema)

    def _chosen(self, names: Sequence[str] | None) -> _FileColumns:
        schema, optional = self._columns
        if names is not None:
            schema = pa.schema([schema.field(name) for name in names])
        return _FileColumns(schema, optional)

    def _opened(self, root: Path, file: DataFile) -> _OpenFile:
        """Return a file with its footer, which is kept if it is not small."""
        number = hash(file.path)
        cached = self._open.get(number)
        if cached is not None and cached.path == file.path:
            self._memory.touch((self, number))
            return cached
        opened = _OpenFile.of(root, file)
        # A file that an older view still reads is not kept: nothing would drop it.
        if file.rows > BLOCK_ROWS and file.path in self._segments:
            self._keep(opened)
        return opened

    def _keep(self, opened: _OpenFile) -> None:
        number = hash(opened.path)
        self._open[number] = opened
        self._memory.hold((self, number), opened.nbytes)
        self._memory.shrink()

    def _read(self, source: RowGroups, columns: _FileColumns, whole: bool) -> pa.Table:
        names = columns.schema.names
        if source.groups is not None:
            opened = self._opened(source.root, source.file)
            return columns.complete(opened.reader.row_groups(source.groups, names), names)
        file = reader(source.root, source.file)
        return columns.complete(file.whole() if whole else file.read(names), names)

    def _read_segments(self, file: DataFile) -> tuple[RowSegment, ...]:
        """Return the runs of rows in a file: the whole file, or its row groups by block."""
        root, sides = self._folder.root, (file.low, file.high)
        has_bounds = all(name in side for name in ("_row_id", "_ts") for side in sides)
        # A file this small is read as a whole anyway, and its bounds are known: it stays closed.
        if has_bounds and file.rows <= BLOCK_ROWS:
            return (_whole_segment(root, file),)
        try:
            opened = _OpenFile.of(root, file)
        except (CorruptStore, FileNotFoundError):
            # Answers that need its rows fail when they read them; the others are not affected.
            return (_whole_segment(root, file),)
        self._keep(opened)
        return tuple(_group_segments(root, file, opened))


def _by_id(table: pa.Table) -> pa.Table:
    """Return rows by ascending id. They nearly always are: files follow each other, but one that
    was damaged and is back may lie within one that was merged around it."""
    row_ids = table.column("_row_id").to_numpy()
    return table.sort_by("_row_id") if (row_ids[1:] < row_ids[:-1]).any() else table


def _group_segments(root: Path, file: DataFile, opened: _OpenFile) -> Iterator[RowSegment]:
    """Yield the row groups of a file, those of one block together."""
    metadata = opened.reader.metadata

    def block(group: int) -> tuple[int, int]:
        # The first and the last block: a row group that reaches over an edge is by itself.
        first = int(opened.low[group]) >> BLOCK_BITS
        last = int(opened.high[group] - 1) >> BLOCK_BITS
        return first, last if first == last else -group

    for _, run in groupby(range(metadata.num_row_groups), key=block):
        groups = list(run)
        times = [group_bounds(metadata, group, "_ts") for group in groups]
        yield RowSegment(
            int(opened.low[groups].min()),
            int(opened.high[groups].max()),
            min(low for low, _ in times),
            max(high for _, high in times),
            RowGroups(root, file, range(groups[0], groups[-1] + 1)),
        )


def _whole_segment(root: Path, file: DataFile) -> RowSegment:
    bounds = (file.low["_row_id"], file.high["_row_id"] + 1, file.low["_ts"], file.high["_ts"])
    return RowSegment(*bounds, RowGroups(root, file, None))
