"""The work of executors: insert rows into a stem, probe the queries, write what came of it.

A task needs nothing of the driver but its job, and the shared folder; what it keeps between tasks
is in `predicates`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS
from datastem.codec import stem_schema
from datastem.schema import OP, StreamSchema
from psoup.engine.ledger import stem_name
from psoup.engine.matching.implied import matched_ids
from psoup.engine.matching.predicates import Ranges, predicates_of
from psoup.engine.spark.jobs import Outcome, Probed, SparkJob, Written
from psoup.engine.steps import pieces
from psoup.engine.steps.pieces import EVERY_ID, IdRange
from psoup.store.delta.durable import MAX_WRITER_THREADS
from psoup.store.delta.files import PLAIN, DataFile, FileEncoding, write_data_file
from psoup.store.delta.reading import reader, single_batch
from psoup.store.layout import STEM_GROUP_ROWS
from psoup.store.log.decoding import rows_of
from psoup.store.log.events import Data
from psoup.store.log.log import read_events
from psoup.store.state.losses import Hole
from querystem.index import QueryStem

STEM_BOUNDS = ("_row_id", "_ts", "_position", "_stamp")
MATCH_BOUNDS = ("predicate_id", "block", "lo", "hi")
# Bitmaps are most of the bytes of matches (docs/explanation/decisions/files.md).
MATCH_ENCODING = FileEncoding("zstd", 1, ("lo", "hi"))
CLOSURE_BOUNDS = ("row_id", "by")
# A server that wants the matches of one predicate reads the row group it is in.
GROUP_ROWS = 1 << 12
# A probe that takes less is far from being divided, so no predicates of it are sampled.
_SAMPLED_SECONDS, _SAMPLED_IDS = 0.01, 64


@dataclass(frozen=True, slots=True)
class Slice:
    """Old rows [lo, hi) of a stream, in these files, for the predicates in these ranges and in the
    range `group`.

    If there are `wider` predicates, each of the others implies one of them, and `pieces` are the
    files that have their matches.
    """

    stream_id: int
    predicates: Ranges
    lo: int
    hi: int
    files: tuple[DataFile, ...]
    wider: tuple[int, ...] = ()
    pieces: tuple[DataFile, ...] = ()
    group: IdRange = EVERY_ID


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
    """A cell of a step's grid: log files to take in, the streams to take of them, and by stream the
    range of predicate ids to match their rows with. One cell of a chunk `stores` its rows."""

    files: Task
    schemas: Mapping[int, StreamSchema]
    groups: Mapping[int, IdRange]
    stores: bool = True


def fresh(job: SparkJob, work: Intake) -> list[Outcome]:
    """Take in new rows: decode every log file, and store and match its rows.

    Files are written in threads: they are synced while others are matched.
    """
    rows: dict[int, list[pa.RecordBatch]] = {}
    outcomes: list[Outcome] = []
    for file in work.files:
        for entry in read_events(Path(job.root) / "log", file.file, file.version):
            event = entry.event
            if isinstance(event, Data) and event.rows and event.stream_id in work.schemas:
                # A predicate that has ended, and is in an index still, may read a dropped column.
                schema = work.schemas[event.stream_id].with_dropped
                decoded = rows_of(entry, event, schema, file.file.path)
                if isinstance(decoded, Hole):
                    outcomes.append(decoded)
                else:
                    rows.setdefault(event.stream_id, []).append(decoded)
    predicates = predicates_of(job.root)
    predicates.advance(job.predicates, job.excluded)
    with ThreadPoolExecutor(MAX_WRITER_THREADS) as pool:
        writing = []
        for stream_id, parts in rows.items():
            batch = pa.concat_batches(parts)
            if work.stores:
                names = stem_schema(work.schemas[stream_id]).names
                table = pa.Table.from_batches([batch]).select(names)
                writing.append(pool.submit(insert, job, stream_id, table))
            probe = Probe(predicates.stem(stream_id).index, stream_id, work.groups[stream_id])
            for matches in probe.tables(batch):
                writing.append(pool.submit(write_pieces, job, stream_id, matches))
            outcomes.append(probe.outcome())
    return [*outcomes, *(outcome for written in writing for outcome in written.result())]


def backfill(job: SparkJob, work: Slice) -> list[Outcome]:
    """Match old rows with the predicates that have not met them yet, and read only the columns that
    those need."""
    predicates = predicates_of(job.root)
    predicates.advance(job.predicates, job.excluded)
    stem = predicates.stem(work.stream_id, work.predicates)
    if stem.empty:
        return []
    started = time.process_time()
    matched = None
    if work.wider:
        root = Path(job.root) / "matches"
        matched = matched_ids(root, work.pieces, work.wider, work.lo, work.hi)
        if matched is not None and not len(matched):
            return []
    rows = _read(job, work, stem.columns)
    if matched is not None:
        rows = rows.filter(pa.array(np.isin(rows.column("_row_id").to_numpy(), matched)))
    tables = pieces.probe(stem.index, work.stream_id, rows, work.group)
    written = [file for table in tables for file in write_pieces(job, work.stream_id, table)]
    # Without the time in which a new worker reads the predicates: later slices do not need it.
    seconds = time.process_time() - started
    return [*written, Probed(work.stream_id, work.group[0], work.hi - work.lo, seconds)]


class Probe:
    """The probe of an index by rows of a stream, and what it costs."""

    def __init__(self, index: QueryStem, stream_id: int, group: IdRange) -> None:
        self._index, self._stream_id, self._group = index, stream_id, group
        self._hashed = index.hashed_seconds
        self._rows, self._seconds = 0, 0.0

    def tables(self, rows: pa.RecordBatch) -> Iterator[pa.Table]:
        """Yield the pieces of the rows, whose ids must ascend."""
        self._rows += rows.num_rows
        tables = pieces.probe(self._index, self._stream_id, rows, self._group)
        # The time of this thread alone: others write files meanwhile.
        started = time.thread_time()
        for table in tables:
            self._seconds += time.thread_time() - started
            yield table
            started = time.thread_time()
        self._seconds += time.thread_time() - started

    def outcome(self) -> Probed:
        """Return what the rows so far have cost."""
        cost = Probed(self._stream_id, self._group[0], self._rows, self._seconds)
        if self._seconds < _SAMPLED_SECONDS:
            return cost
        ids = self._index.graph_ids
        ids = ids[slice(*np.searchsorted(ids, self._group))]
        sample = ids[:: -(-len(ids) // _SAMPLED_IDS) or 1]
        repeated = self._index.hashed_seconds - self._hashed
        return replace(cost, repeated=repeated, graph=len(ids), sample=tuple(sample.tolist()))


def insert(
    job: SparkJob, stream_id: int, rows: pa.Table, bounds: Sequence[str] = STEM_BOUNDS
) -> list[Outcome]:
    """Write rows, ascending by id, as files of the stem; none reaches over a segment's edge."""
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
                row_group_rows=STEM_GROUP_ROWS,
                cuts=_block_edges(ids[first:last]),
            ),
        )
        for first, last in pieces.runs(ids >> pieces.ROW_SEGMENT_BITS)
    ]


def _block_edges(ids: Int64s) -> list[int]:
    """Return the places at which row groups end: a reader of a block then reads no other block."""
    return [first for first, _ in pieces.runs(ids >> BLOCK_BITS)][1:]


def write_pieces(job: SparkJob, stream_id: int, table: pa.Table) -> list[Outcome]:
    """Write pieces, sorted, as one file for each segment."""
    root = Path(job.root) / "matches"
    files = write_segments(root, stream_id, table, MATCH_BOUNDS, job.sync, MATCH_ENCODING)
    return [Written("matches", file) for file in files]


def write_segments(
    root: Path,
    stream_id: int,
    rows: pa.Table,
    bounds: Sequence[str],
    sync: bool,
    encoding: FileEncoding = PLAIN,
) -> list[DataFile]:
    """Write rows of a segmented table as one file for each segment, in their order."""
    segments = rows.column("segment")
    return [
        write_data_file(
            root,
            rows.filter(pc.equal(segments, segment)),
            partition={"stream_id": str(stream_id), "segment": str(segment)},
            bounds=bounds,
            sync=sync,
            row_group_rows=GROUP_ROWS,
            encoding=encoding,
        )
        for segment in np.unique(segments.to_numpy()).tolist()
    ]


def _read(job: SparkJob, work: Slice, columns: frozenset[str]) -> pa.RecordBatch:
    """Return the rows of a slice; its files come in the order of their ids."""
    root, optional = Path(job.root) / stem_name(work.stream_id), job.optional(work.stream_id)
    tables = []
    for file in work.files:
        source = reader(root, file, optional)
        stored = [*source.metadata.schema.names, *optional]
        declared = sorted({name for name in stored if name in columns})
        names = ["_row_id", "_ts", OP, *declared]
        tables.append(source.between("_row_id", work.lo, work.hi, names))
    batch = single_batch(pa.concat_tables(tables))
    ids = batch.column("_row_id").to_numpy()
    # A file that was damaged and is back may lie within one that was merged around it.
    return batch.sort_by("_row_id") if (ids[1:] < ids[:-1]).any() else batch
