"""Chores that merge small files into one, and pieces of a block into one piece.

`Merge` takes files of like size, so a row is rewritten a logarithmic number of times; a merged file
stays within its segment. `Compact` rewrites the driver's tables; of newest-wins tables only the
newest rows remain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from datastem.codec import stem_schema, with_optional
from psoup.engine.composites.runs import rows_from, sorted_rows
from psoup.engine.composites.upkeep import side_floors
from psoup.engine.composites.worker import write_joins
from psoup.engine.ledger import JOINS, STEM, Ledger, stream_of
from psoup.engine.matching.coverage import Cohort
from psoup.engine.matching.predicates import predicates_of
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.jobs import Outcome, SparkJob, Written, by_table, job_of, run_tasks
from psoup.engine.steps import pieces
from psoup.engine.steps.worker import CLOSURE_BOUNDS, insert, write_pieces, write_segments
from psoup.store.audit import AUDIT_BOUNDS
from psoup.store.delta.files import DataFile, write_data_file
from psoup.store.delta.reading import reader
from psoup.store.layout import SEGMENTED, TABLES
from psoup.store.tables import KEYS, read_files, read_newest

_BY_ROW = [("row_id", "ascending"), ("by", "ascending")]


@dataclass(frozen=True, slots=True)
class FileRun:
    """Neighbouring files of one segment, to be merged into one. Rows of `joins/<id>` below the
    floor of their side are left out. Of matches, `cohorts` has at least those with a gap; matches
    that these do not cover are left out."""

    table: str
    stream_id: int
    segment: int
    files: tuple[DataFile, ...]
    floors: tuple[int, ...] = ()
    cohorts: tuple[Cohort, ...] = ()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class Merge:
    """The chore that merges neighbouring files of stems, joins, matches and closures."""

    def __init__(self, spark: SparkSession, settings: EngineSettings) -> None:
        self._spark = spark
        self._settings = settings
        self._checked: dict[str, int] = {}

    def advance(self, ledger: Ledger) -> bool:
        """Merge the runs that are due in all tables in one job, up to the limit of its input."""
        chosen: list[FileRun] = []
        size = 0
        for run in self._due(ledger):
            if not chosen or size + run.size <= self._settings.merge_bytes:
                chosen.append(run)
                size += run.size
        if chosen:
            self._merge(ledger, chosen)
        return bool(chosen)

    def _due(self, ledger: Ledger) -> Iterator[FileRun]:
        """Yield the runs that are due. A table without any is checked again after enough
        commits."""
        stems_and_joins = (name for name in ledger.tables if name.startswith((STEM, JOINS)))
        for name in (*SEGMENTED, *stems_and_joins):
            version = ledger.tables[name].version
            if version - self._checked.get(name, -1) >= self._settings.merge_files:
                runs = list(self._runs(name, _mergeable(ledger, name)))
                if name.startswith(JOINS):
                    runs = [replace(run, floors=_floors(ledger, run.stream_id)) for run in runs]
                if name == "matches":
                    cohorts = ledger.coverage.interrupted
                    runs = [replace(run, cohorts=tuple(cohorts(run.stream_id))) for run in runs]
                yield from runs
                if not runs:
                    self._checked[name] = version

    def _merge(self, ledger: Ledger, runs: list[FileRun]) -> None:
        added = by_table(run_tasks(self._spark, job_of(ledger), merge_run, runs))
        removed: dict[str, list[DataFile]] = {}
        for run in runs:
            removed.setdefault(run.table, []).extend(run.files)
        changes = {name: (added.get(name, ()), files) for name, files in removed.items()}
        ledger.commit_all(changes, operation="MERGE", data_change=False)
        ledger.publish("merge")

    def _runs(self, name: str, files: Iterable[DataFile]) -> Iterator[FileRun]:
        """Yield the runs worth merging, at most one per segment."""
        place = _place(name)
        # Two larger files would exceed the input of one merge.
        small = [file for file in files if file.low and 2 * file.size < self._settings.merge_bytes]
        for (stream_id, segment), group in groupby(
            sorted(small, key=lambda file: (place(file), _first(file))), key=place
        ):
            if run := self._run(list(group)):
                yield FileRun(name, stream_id, segment, tuple(run))

    def _run(self, files: list[DataFile]) -> list[DataFile] | None:
        """Return enough neighbours of the smallest possible size class; None if there are too
        few."""
        least = self._settings.merge_files
        # Size classes grow by the factor `merge_files`, as LSM levels do.
        classes = [int(math.log(file.size, least)) for file in files]
        for limit in sorted(set(classes)):
            for small, group in groupby(
                zip(files, classes, strict=True), key=lambda pair: pair[1] <= limit
            ):
                run = [file for file, _ in group]
                if small and len(run) >= least:
                    return self._cut(run)
        return None

    def _cut(self, run: list[DataFile]) -> list[DataFile]:
        size, count = 0, 0
        for file in run:
            size += file.size
            # Two files are taken whatever their size: one alone would not be a merge.
            if count >= 2 and size > self._settings.merge_bytes:
                break
            count += 1
        return run[:count]


def merge_run(job: SparkJob, run: FileRun) -> list[Outcome]:
    """Merge a run of files; runs in an executor."""
    root = Path(job.root) / run.table
    tables = [reader(root, file).whole() for file in run.files]
    if (schema := job.altered.get(run.stream_id)) is not None and run.table.startswith(STEM):
        names = stem_schema(schema).names
        tables = [with_optional(table, names, schema.optional) for table in tables]
    if run.table not in SEGMENTED:
        rows = pa.concat_tables(tables)
        if run.table.startswith(JOINS):
            return write_joins(job, run.stream_id, sorted_rows(rows_from(rows, run.floors)))
        return insert(job, run.stream_id, rows.sort_by("_row_id"), tuple(run.files[0].low))
    rows = with_partition(pa.concat_tables(tables), run.table, run.stream_id, run.segment)
    if run.table == "closures":
        return write_closures(job, run.stream_id, rows.sort_by(_BY_ROW))
    predicates = predicates_of(job.root)
    predicates.advance(job.predicates, job.excluded)
    # Pieces of ended predicates are dropped on this occasion. Those in quarantine stay.
    live = np.concatenate([predicates.live(run.stream_id), np.asarray(job.excluded, np.int64)])
    rows = pieces.covered(rows, run.cohorts)
    merged = pieces.merge(rows, pa.array(live, pa.int64()), run.cohorts)
    return write_pieces(job, run.stream_id, merged)


def with_partition(table: pa.Table, name: str, stream_id: int, segment: int) -> pa.Table:
    """Return rows of a file of a segmented table with their partition columns, which files lack."""
    for column, value in (("stream_id", stream_id), ("segment", segment)):
        table = table.append_column(column, pa.repeat(pa.scalar(value, pa.int64()), len(table)))
    return table.select(TABLES[name].names)


def write_closures(job: SparkJob, stream_id: int, rows: pa.Table) -> list[Outcome]:
    root = Path(job.root) / "closures"
    files = write_segments(root, stream_id, rows, CLOSURE_BOUNDS, job.sync)
    return [Written("closures", file) for file in files]


def _mergeable(ledger: Ledger, name: str) -> list[DataFile]:
    """Return the files of a table, without closures that will be replaced: files of earlier and
    later rows must stay apart (`reclosing`)."""
    files = ledger.files(name)
    if name != "closures":
        return files
    return [file for file in files if _partition(file)[0] not in ledger.unclosed]


def _floors(ledger: Ledger, composite_id: int) -> tuple[int, ...]:
    composite = ledger.state.composites.get(composite_id)
    return () if composite is None else side_floors(ledger, composite)


Place = Callable[[DataFile], tuple[int, int]]


def _partition(file: DataFile) -> tuple[int, int]:
    return int(file.partition["stream_id"]), int(file.partition["segment"])


def _place(name: str) -> Place:
    """Return the function that gives the stream and segment of a file; joins have one segment."""
    if name in SEGMENTED:
        return _partition
    if name.startswith(JOINS):
        return lambda file: (stream_of(name), 0)
    return lambda file: (stream_of(name), file.low["_row_id"] >> pieces.ROW_SEGMENT_BITS)


def _first(file: DataFile) -> int:
    return next(file.low[name] for name in ("lo", "row_id", "_row_id") if name in file.low)


# A table may have one more file for each of this many rows: a large one is rewritten less often.
_ROWS_PER_FILE = 1000


class Compact:
    """The chore that rewrites a table of the driver as one file when it has many."""

    def __init__(self, settings: EngineSettings) -> None:
        self._files = settings.compact_files

    def advance(self, ledger: Ledger) -> bool:
        for name in (*KEYS, "coverage", "audit"):
            files = ledger.files(name)
            rows = sum(file.rows for file in files)
            if len(files) > max(self._files, rows // _ROWS_PER_FILE):
                self._compact(ledger, name)
                return True
        return False

    def _compact(self, ledger: Ledger, name: str) -> None:
        table, bounds = _table(ledger, name), AUDIT_BOUNDS if name == "audit" else ()
        root, sync = ledger.folder(name).root, ledger.store.sync
        added = [write_data_file(root, table, bounds=bounds, sync=sync)] if table.num_rows else []
        removed = ledger.files(name)
        ledger.commit(name, added, removed, operation="COMPACT", data_change=False)
        ledger.publish("compact")


def _table(ledger: Ledger, name: str) -> pa.Table:
    if name == "coverage":
        return _coverage(ledger)
    if name == "audit":
        table = read_files(ledger.folder(name), ledger.tables[name], TABLES[name])
        return table.sort_by("position")
    return read_newest(ledger.folder(name), ledger.tables[name], TABLES[name])


def _coverage(ledger: Ledger) -> pa.Table:
    for stream_id in ledger.coverage.streams():
        if not ledger.is_live(stream_id):
            ledger.coverage.forget(stream_id)
    return ledger.coverage.table()
