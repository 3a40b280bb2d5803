"""The work of executors: insert rows into a stem, probe the queries, write what came of it.

A task needs nothing of the driver but its job, and the shared folder; what it keeps between tasks
is in `predicates`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS
from datastem.schema import OP, StreamSchema
from psoup.engine import pieces
from psoup.engine.implied import matched_ids
from psoup.engine.jobs import Outcome, SparkJob, Written
from psoup.engine.ledger import stem_name
from psoup.engine.predicates import Ranges, predicates_of
from psoup.store.delta.durable import MAX_WRITER_THREADS
from psoup.store.delta.files import DataFile, write_data_file
from psoup.store.delta.reading import reader, row_groups, single_batch
from psoup.store.log.decoding import rows_of
from psoup.store.log.events import Data
from psoup.store.log.log import read_events
from psoup.store.state.losses import Hole

STEM_BOUNDS = ("_row_id", "_ts", "_position", "_stamp")
MATCH_BOUNDS = ("predicate_id", "block", "lo", "hi")
CLOSURE_BOUNDS = ("row_id", "by")
# A server that wants the matches of one predicate reads the row group it is in.
GROUP_ROWS = 1 << 12


@dataclass(frozen=True, slots=True)
class Slice:
    """Old rows [lo, hi) of a stream, in these files, for the predicates in these ranges.

    Where there are `wider` predicates, each of the others implies one of them, and `pieces` are the
    files that have their matches.
    """

    stream_id: int
    predicates: Ranges
    lo: int
    hi: int
    files: tuple[DataFile, ...]
    wider: tuple[int, ...] = ()
    pieces: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True)
class LogFile:
    """The file of one commit of the log."""

    version: int
    file: DataFile

    @property
    def size(self) -> int:
        return self.file.size


# Neighbours in the log, so that their rows are one run of ids in each stream.
Task = tuple[LogFile, ...]


@dataclass(frozen=True, slots=True)
class Intake:
    """Log files to take in, and the streams that live at the end of the step."""

    files: Task
    schemas: Mapping[int, StreamSchema]


def fresh(job: SparkJob, work: Intake) -> list[Outcome]:
    """Takes in new rows: every log file is decoded, stored and matched.

    Files are written in threads: some are synced while others are matched.
    """
    rows: dict[int, list[pa.RecordBatch]] = {}
    outcomes: list[Outcome] = []
    for file in work.files:
        for entry in read_events(Path(job.root) / "log", file.file, file.version):
            event = entry.event
            if isinstance(event, Data) and event.rows and event.stream_id in work.schemas:
                found = rows_of(entry, event, work.schemas[event.stream_id], file.file.path)
                if isinstance(found, Hole):
                    outcomes.append(found)
                else:
                    rows.setdefault(event.stream_id, []).append(found)
    known = predicates_of(job.root)
    known.advance(job.predicates, job.excluded)
    with ThreadPoolExecutor(MAX_WRITER_THREADS) as pool:
        writing = []
        for stream_id, parts in rows.items():
            batch = pa.concat_batches(parts)
            writing.append(pool.submit(insert, job, stream_id, pa.Table.from_batches([batch])))
            for found in pieces.probe(known.stem(stream_id).index, stream_id, batch):
                writing.append(pool.submit(write_pieces, job, stream_id, found))
    return [*outcomes, *(outcome for written in writing for outcome in written.result())]


def backfill(job: SparkJob, work: Slice) -> list[Outcome]:
    """Matches old rows with the predicates that have not met them yet, and reads only the columns
    that those need."""
    known = predicates_of(job.root)
    known.advance(job.predicates, job.excluded)
    stem = known.stem(work.stream_id, work.predicates)
    if stem.empty:
        return []
    matched = None
    if work.wider:
        root = Path(job.root) / "matches"
        matched = matched_ids(root, work.pieces, work.wider, work.lo, work.hi)
        if matched is not None and not len(matched):
            return []
    rows = _read(job, work, stem.columns)
    if matched is not None:
        rows = rows.filter(pa.array(np.isin(rows.column("_row_id").to_numpy(), matched)))
    tables = pieces.probe(stem.index, work.stream_id, rows)
    return [file for table in tables for file in write_pieces(job, work.stream_id, table)]


def insert(
    job: SparkJob, stream_id: int, rows: pa.Table, bounds: Sequence[str] = STEM_BOUNDS
) -> list[Outcome]:
    """Writes rows, ascending by id, as files of the stem; none reaches over a segment's edge."""
    name = stem_name(stream_id)
    ids = rows.column("_row_id").to_numpy()
    return [
        Written(
            name,
            write_data_file(
                Path(job.root) / name,
                rows.slice(first, last - first),
                bounds=bounds,
                sync=job.sync,
                cuts=_block_edges(ids[first:last]),
            ),
        )
        for first, last in pieces.runs(ids >> pieces.ROW_SEGMENT_BITS)
    ]


def _block_edges(ids: Int64s) -> list[int]:
    """The places at which row groups end, so that a reader of a block reads no other block."""
    return [first for first, _ in pieces.runs(ids >> BLOCK_BITS)][1:]


def write_pieces(job: SparkJob, stream_id: int, found: pa.Table) -> list[Outcome]:
    """Writes pieces, sorted, as one file for each segment."""
    files = write_segments(Path(job.root) / "matches", stream_id, found, MATCH_BOUNDS, job.sync)
    return [Written("matches", file) for file in files]


def write_segments(
    root: Path, stream_id: int, rows: pa.Table, bounds: Sequence[str], sync: bool
) -> list[DataFile]:
    """Writes rows of a segmented table as one file for each segment, in their order."""
    segments = rows.column("segment")
    return [
        write_data_file(
            root,
            rows.filter(pc.equal(segments, segment)),
            partition={"stream_id": str(stream_id), "segment": str(segment)},
            bounds=bounds,
            sync=sync,
            row_group_rows=GROUP_ROWS,
        )
        for segment in np.unique(segments.to_numpy()).tolist()
    ]


def _read(job: SparkJob, work: Slice, columns: frozenset[str]) -> pa.RecordBatch:
    """The rows of a slice; its files come in the order of their ids."""
    root = Path(job.root) / stem_name(work.stream_id)
    tables = []
    for file in work.files:
        source = reader(root, file)
        groups = row_groups(source.metadata, "_row_id", work.lo, work.hi)
        declared = [name for name in source.metadata.schema.names if name in columns]
        tables.append(source.row_groups(groups, ["_row_id", "_ts", OP, *declared]))
    rows = pa.concat_tables(tables)
    ids = rows.column("_row_id")
    inside = pc.and_(pc.greater_equal(ids, work.lo), pc.less(ids, work.hi))
    found = single_batch(rows.filter(inside))
    ids = found.column("_row_id").to_numpy()
    # A file that was damaged and is back may lie within one that was merged around it.
    return found.sort_by("_row_id") if (ids[1:] < ids[:-1]).any() else found
