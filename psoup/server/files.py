"""Rows and matches out of the engine's Parquet files, no more of a file than is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from datastem.blocks import BLOCK_ROWS
from datastem.codec import stem_schema
from datastem.schema import StreamSchema
from datastem.segments import RowSegment
from psoup.store import DataFile, DeltaFolder
from psoup.store.reading import group_bounds, reader
from results.id_sets import Range


@dataclass(frozen=True, slots=True)
class Source:
    """One row group of a file, or all of it where `group` is None."""

    root: Path
    file: DataFile
    group: int | None


class StemFiles:
    """The files of one stem. Thread-safe: nothing is kept but what files never change."""

    def __init__(self, folder: DeltaFolder, schema: StreamSchema) -> None:
        self._folder = folder
        self._schema = stem_schema(schema)
        self._segments: dict[str, tuple[RowSegment, ...]] = {}

    def segments(self, files: Iterable[DataFile]) -> list[RowSegment]:
        """The files' runs of rows. Looks into those that are larger than a block."""
        self._segments = {
            file.path: self._segments.get(file.path) or self._look(file) for file in files
        }
        return [segment for found in self._segments.values() for segment in found]

    def read(
        self, segments: Sequence[RowSegment], lo: int, hi: int, names: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Raises FileNotFoundError where the engine has removed a file since, CorruptStore where
        one is damaged."""
        schema = self._schema
        if names is not None:
            schema = pa.schema([schema.field(name) for name in names])
        whole = names is None
        tables = [_read(segment.source, schema.names, whole) for segment in segments]
        if not tables:
            return _one_batch(schema.empty_table())
        table = pa.concat_tables(tables).cast(schema)
        if any(segment.row_lo < lo or segment.row_hi > hi for segment in segments):
            ids = table.column("_row_id")
            table = table.filter(
                pa.compute.and_(pa.compute.greater_equal(ids, lo), pa.compute.less(ids, hi))
            )
        return _one_batch(table.sort_by("_row_id") if len(tables) > 1 else table)

    def _look(self, file: DataFile) -> tuple[RowSegment, ...]:
        root = self._folder.root
        known = all(name in side for name in ("_row_id", "_ts") for side in (file.low, file.high))
        if known and file.rows <= BLOCK_ROWS:
            bounds = (file.low["_row_id"], file.high["_row_id"] + 1, file.low["_ts"])
            return (RowSegment(*bounds, file.high["_ts"], Source(root, file, None)),)
        metadata = reader(root, file).metadata
        return tuple(
            RowSegment(
                *_group_bounds(metadata, group, "_row_id", 1),
                *_group_bounds(metadata, group, "_ts", 0),
                Source(root, file, group),
            )
            for group in range(metadata.num_row_groups)
        )


def match_groups(root: Path, file: DataFile) -> list[Range]:
    """The predicate ids `[lo, hi)` of each row group of a matches file."""
    metadata = reader(root, file).metadata
    return [
        _group_bounds(metadata, group, "predicate_id", 1)
        for group in range(metadata.num_row_groups)
    ]


def read_match_group(root: Path, file: DataFile, group: int) -> pa.RecordBatch:
    return _one_batch(reader(root, file).row_group(group, ["predicate_id", "block", "bitmap"]))


def _read(source: Source, columns: list[str], whole: bool) -> pa.Table:
    file = reader(source.root, source.file)
    if source.group is not None:
        return file.row_group(source.group, columns).select(columns)
    return (file.whole() if whole else file.read(columns)).select(columns)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _group_bounds(metadata: Any, group: int, name: str, past: int) -> Range:
    low, high = group_bounds(metadata, group, name)
    return low, high + past
