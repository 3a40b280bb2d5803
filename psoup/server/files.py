"""Rows and matches out of the engine's Parquet files, no more of a file than is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from datastem.blocks import BLOCK_ROWS
from datastem.codec import stem_schema
from datastem.schema import StreamSchema
from datastem.stem import Segment
from psoup.store import DataFile, DeltaFolder
from results.ranges import Range

_EVERYTHING = (-(1 << 62), 1 << 62)


@dataclass(frozen=True, slots=True)
class Source:
    """One row group of a file, or all of it where `group` is None."""

    path: Path
    group: int | None


class StemFiles:
    """The files of one stem. Thread-safe: nothing is kept but what files never change."""

    def __init__(self, folder: DeltaFolder, schema: StreamSchema) -> None:
        self._folder = folder
        self._schema = stem_schema(schema)
        self._segments: dict[str, tuple[Segment, ...]] = {}

    def segments(self, files: Iterable[DataFile]) -> list[Segment]:
        """The files' runs of rows. Looks into those that are larger than a block."""
        self._segments = {
            file.path: self._segments.get(file.path) or self._look(file) for file in files
        }
        return [segment for found in self._segments.values() for segment in found]

    def read(
        self, segments: Sequence[Segment], lo: int, hi: int, names: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Raises FileNotFoundError where the engine has removed a file since."""
        schema = self._schema
        if names is not None:
            schema = pa.schema([schema.field(name) for name in names])
        tables = [_read(segment.source, schema.names) for segment in segments]
        if not tables:
            return _one_batch(schema.empty_table())
        table = pa.concat_tables(tables).cast(schema)
        if any(segment.row_lo < lo or segment.row_hi > hi for segment in segments):
            ids = table.column("_row_id")
            table = table.filter(
                pa.compute.and_(pa.compute.greater_equal(ids, lo), pa.compute.less(ids, hi))
            )
        return _one_batch(table.sort_by("_row_id") if len(tables) > 1 else table)

    def _look(self, file: DataFile) -> tuple[Segment, ...]:
        path = self._folder.path_of(file)
        known = all(name in side for name in ("_row_id", "_ts") for side in (file.low, file.high))
        if known and file.rows <= BLOCK_ROWS:
            bounds = (file.low["_row_id"], file.high["_row_id"] + 1, file.low["_ts"])
            return (Segment(*bounds, file.high["_ts"], Source(path, None)),)
        metadata = pq.read_metadata(path)
        return tuple(
            Segment(
                *_group_bounds(metadata, group, "_row_id", 1),
                *_group_bounds(metadata, group, "_ts", 0),
                Source(path, group),
            )
            for group in range(metadata.num_row_groups)
        )


def match_groups(path: Path) -> list[Range]:
    """The predicate ids `[lo, hi)` of each row group of a matches file."""
    metadata = pq.read_metadata(path)
    return [
        _group_bounds(metadata, group, "predicate_id", 1)
        for group in range(metadata.num_row_groups)
    ]


def read_match_group(path: Path, group: int) -> pa.RecordBatch:
    columns = ["predicate_id", "block", "bitmap"]
    return _one_batch(pq.ParquetFile(path).read_row_group(group, columns=columns))


def _read(source: Source, columns: list[str]) -> pa.Table:
    file = pq.ParquetFile(source.path)
    if source.group is None:
        return file.read(columns=columns).select(columns)
    return file.read_row_group(source.group, columns=columns).select(columns)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _group_bounds(metadata: Any, group: int, name: str, past: int) -> Range:
    """Of an integer or instant column; everything where the file has no statistics."""
    place = metadata.schema.names.index(name)
    found = metadata.row_group(group).column(place).statistics
    if found is None or not found.has_min_max:
        return _EVERYTHING
    return int(found.min_raw), int(found.max_raw) + past
