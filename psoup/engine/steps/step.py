"""One step: new events of the log become rows, matches and an epoch.

Both halves of the symmetric join meet here. New rows are matched with every predicate that exists
at the end of the step, by the tasks of a grid (`grid`). New predicates start a cohort at the step's
first row, or, if they are many, at its end; back-fill matches them with older rows.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from psoup.engine.composites.intake import fresh_and_join
from psoup.engine.composites.keeping import joining_intakes, keep_up
from psoup.engine.ledger import STEM, Ledger, stem_name, stream_of
from psoup.engine.matching.coverage import Cohort
from psoup.engine.repair.quarantine import restart_released
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.jobs import (
    IntakeJoin,
    Outcome,
    TaskFailed,
    WorkerDied,
    by_table,
    job_of,
    run_tasks,
)
from psoup.engine.steps.grid import StepCosts, StepLimits, cells, split_into_chunks
from psoup.engine.steps.histories import closure_rows
from psoup.engine.steps.worker import CLOSURE_BOUNDS, Intake, LogFile, fresh, write_segments
from psoup.store.audit import AuditRecord, audit_rows, records_of
from psoup.store.delta import DeltaFolder
from psoup.store.delta.files import DataFile
from psoup.store.errors import StoreError
from psoup.store.heartbeats import heartbeat_rows, heartbeats
from psoup.store.layout import COVERAGE
from psoup.store.log.events import Data, Entry
from psoup.store.log.log import read_events
from psoup.store.state.losses import Hole
from psoup.store.state.touched import Touched
from psoup.store.tables import changed_rows

logger = logging.getLogger(__name__)

# A step that brings more predicates of a stream leaves its rows to their back-fill, so that new
# rows do not wait for them.
_MAX_NEW_PREDICATES = 1000

# Returns the context of a stage by its name, to measure it.
StageTimer = Callable[[str], AbstractContextManager[None]]
_UNTIMED = nullcontext()


def untimed(name: str) -> AbstractContextManager[None]:
    """Return a context that measures nothing."""
    return _UNTIMED


@dataclass(frozen=True, slots=True)
class Stretch:
    """The files of the log's commits up to version `end`, in their order."""

    end: int
    files: tuple[LogFile, ...] = ()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def next_stretch(log: DeltaFolder, version: int, limits: StepLimits) -> Stretch:
    """Return the part of the log after `version` that one step may take; it is empty, with `end` at
    `version`, if there are no new commits."""
    files: list[LogFile] = []
    size, last = 0, version + limits.commits
    for number in range(version + 1, last + 1):
        commit = log.read_commit(number)
        if commit is None:
            return Stretch(number - 1, tuple(files))
        size += sum(file.size for file in commit.added)
        # A single commit above the limit is taken alone, or the engine would never pass it.
        if size > limits.bytes and number > version + 1:
            return Stretch(number - 1, tuple(files))
        files += [LogFile(number, file) for file in commit.added]
    return Stretch(last, tuple(files))


class StepMemory:
    """What an engine remembers from step to step; it may be lost at any time.

    While the tasks of a step run, a thread reads the headers of the commits after it.
    """

    def __init__(self) -> None:
        self.costs = StepCosts()
        # Whether a step failed while its tasks joined their rows, so that another job has to.
        self.joins_apart = False
        # By the path of a file, which no other file ever has.
        self._headers: dict[str, list[Entry]] = {}
        self._thread: threading.Thread | None = None

    def headers(self, root: Path, stretch: Stretch) -> list[Entry]:
        """Return the entries of a stretch without their rows."""
        if self._thread is not None:
            self._thread.join()
        # A file of the log never changes, so what was read of it holds for any later step.
        ahead, self._headers, self._thread = self._headers, {}, None
        entries = list[Entry]()
        for file in stretch.files:
            path = file.file.path
            entries += ahead[path] if path in ahead else _headers(root, file)
        return entries

    def read_ahead(self, log: DeltaFolder, version: int, limits: StepLimits) -> None:
        """Begin to read the headers of the commits after `version`, as many as a step takes."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._read, args=(log, version, limits), name="read ahead", daemon=True
            )
            self._thread.start()

    def _read(self, log: DeltaFolder, version: int, limits: StepLimits) -> None:
        try:
            for file in next_stretch(log, version, limits).files:
                self._headers[file.file.path] = _headers(log.root, file)
        except (StoreError, OSError) as error:
            # The step that needs the file reads it again, and reports what is wrong with it.
            logger.debug("could not read ahead: %s", error)


def take_step(
    ledger: Ledger,
    spark: SparkSession,
    stretch: Stretch,
    settings: EngineSettings,
    memory: StepMemory | None = None,
    stage: StageTimer = untimed,
) -> None:
    """Consume a stretch of the log, which must begin where the last epoch ends. `memory` is that of
    earlier steps, and gets what this one adds. Each stage of the step is in the context that
    `stage` returns for its name."""
    memory = memory or StepMemory()
    with stage("read"):
        entries = memory.headers(ledger.store.log.folder.root, stretch)
    highs = {stream.id: stream.high for stream in ledger.state.streams.values()}
    highs |= {composite_id: mark.high for composite_id, mark in ledger.composites.items()}
    # The state before the step: new predicates are matched from these row ids on.
    born = ledger.state.next_predicate_id
    touched, records, set_aside = Touched(), list[AuditRecord](), ledger.state.quarantine
    for entry in entries:
        # Before the event is applied: a record describes objects that the event may end.
        records += records_of(ledger.state, entry)
        ledger.state.apply(entry, touched)
    ledger.interests.refresh(ledger.state)
    late = _late_streams(ledger, touched, born)
    starts = highs | {stream_id: ledger.high(stream_id) for stream_id in late}
    coverage = _start_cohorts(ledger, touched, born, starts)
    coverage = pa.concat_tables([coverage, *restart_released(ledger, set_aside, born, highs)])
    reached = heartbeat_rows(list(heartbeats(entries)))
    driver_rows = {"coverage": coverage, "reached": reached, "audit": audit_rows(records)}
    # Predicates are committed before rows are matched: workers read them from the table.
    with stage("write"):
        _write_changes(ledger, touched, driver_rows)
    rows, joined = _rows(entries), list[IntakeJoin]()
    if rows:
        parallelism = spark.sparkContext.defaultParallelism
        limits = memory.costs.limits(settings, parallelism)
        memory.read_ahead(ledger.store.log.folder, stretch.end, limits)
        ends = dict.fromkeys(late, born)
        with stage("match"):
            joined = _insert_and_probe(ledger, spark, stretch, settings, memory, rows, ends)
    with stage("join"):
        keep_up(ledger, spark, settings, joined)
    memory.joins_apart = False
    with stage("publish"):
        # Commits without entries are those by which the engine trimmed the log.
        ledger.publish("step" if entries else "trim", stretch.end)


def _headers(root: Path, file: LogFile) -> list[Entry]:
    return read_events(root, file.file, file.version, payloads=False)


def _rows(entries: Sequence[Entry]) -> dict[int, Counter[int]]:
    """Return the number of rows by log version and stream."""
    rows: dict[int, Counter[int]] = {}
    for entry in entries:
        if isinstance(entry.event, Data) and entry.event.rows:
            counts = rows.setdefault(entry.position.version, Counter())
            counts[entry.event.stream_id] += entry.event.rows
    return rows


def _late_streams(ledger: Ledger, touched: Touched, born: int) -> list[int]:
    """Return the streams with more than `_MAX_NEW_PREDICATES` new predicates, which back-fill is to
    match with the rows of this step."""
    _, predicates = ledger.state.columns
    new = np.array([id_ for id_ in touched.predicates if id_ >= born], np.int64)
    if len(new) <= _MAX_NEW_PREDICATES:
        return []
    streams, counts = np.unique(
        predicates.having(new).column("stream_id").to_numpy(), return_counts=True
    )
    # Not those of composites: their combinations of this step have no ids yet.
    many = streams[counts > _MAX_NEW_PREDICATES].tolist()
    return [stream_id for stream_id in many if stream_id in ledger.state.streams]


def _write_changes(ledger: Ledger, touched: Touched, driver_rows: Mapping[str, pa.Table]) -> None:
    for stream_id in touched.streams:
        if not ledger.state.streams[stream_id].dropped:
            ledger.create_stem(stream_id)
    for stream_id in touched.altered:
        if not ledger.state.streams[stream_id].dropped:
            ledger.alter_stem(stream_id)
    for composite_id in touched.composites & ledger.state.composites.keys():
        ledger.create_composite(composite_id)
    changes = changed_rows(ledger.state, touched, ledger.state.position)
    ledger.append({**changes, **driver_rows})


def _start_cohorts(ledger: Ledger, touched: Touched, born: int, highs: dict[int, int]) -> pa.Table:
    """Make a cohort of the predicates created in this step; return rows of the coverage table."""
    _, predicates = ledger.state.columns
    new = predicates.having(np.array([id_ for id_ in touched.predicates if id_ >= born], np.int64))
    ids = new.select(["stream_id", "predicate_id"]).group_by("stream_id")
    # Per stream: the least and the greatest new id. Those between may belong to other streams.
    spans = ids.aggregate([("predicate_id", "min"), ("predicate_id", "max")]).sort_by("stream_id")
    quarantined = ledger.state.quarantine.of_stream
    # Streams that were created in this step have no older rows, so their cohorts begin at 0.
    rows = [
        ledger.coverage.start(
            stream, Cohort.since(lo, hi + 1, highs.get(stream, 0)), quarantined(stream)
        )
        for stream, lo, hi in zip(*spans.to_pydict().values(), strict=True)
    ]
    return pa.concat_tables([COVERAGE.empty_table(), *rows])


def _insert_and_probe(
    ledger: Ledger,
    spark: SparkSession,
    stretch: Stretch,
    settings: EngineSettings,
    memory: StepMemory,
    rows: Mapping[int, Mapping[int, int]],
    ends: Mapping[int, int],
) -> list[IntakeJoin]:
    """Store the rows of a step, and match them with the predicates; those of streams in `ends` with
    predicates below that id only. Return what the tasks did for composites."""
    # Rows of streams that have been dropped by the end of the step are not stored.
    schemas = {
        stream.id: stream.schema for stream in ledger.state.streams.values() if not stream.dropped
    }
    parallelism = spark.sparkContext.defaultParallelism
    counts = sum((Counter(by_stream) for by_stream in rows.values()), Counter[int]())
    worth = memory.costs.chunks(counts)
    chunks = split_into_chunks(stretch.files, parallelism, settings.task_bytes, worth)
    units = cells(chunks, rows, schemas, ends, memory.costs, parallelism)
    outcomes = _take_in(ledger, spark, settings, memory, units, counts)
    memory.costs.note(outcomes, stretch.size)
    for hole, count in Counter(o for o in outcomes if isinstance(o, Hole)).items():
        _check_hole(hole, count, units)
        ledger.state.losses = ledger.state.losses.lose(hole)
    written = by_table(outcomes)
    closures = [
        file
        for name, files in written.items()
        if name.startswith(STEM) and schemas[stream_of(name)].key
        for file in _close(ledger, stream_of(name), files)
    ]
    if closures:
        written["closures"] = closures
    ledger.commit_all({name: (files, ()) for name, files in written.items()}, operation="APPEND")
    return [outcome for outcome in outcomes if isinstance(outcome, IntakeJoin)]


def _take_in(
    ledger: Ledger,
    spark: SparkSession,
    settings: EngineSettings,
    memory: StepMemory,
    units: list[Intake],
    counts: Mapping[int, int],
) -> list[Outcome]:
    """Run the cells of a step's grid, which also join their rows if they can; return the outcomes.
    `counts` has the number of rows by stream."""
    intakes = [] if memory.joins_apart else joining_intakes(ledger, settings, units, counts)
    if not any(intake.units for intake in intakes):
        return run_tasks(spark, job_of(ledger), fresh, units, most=len(units))
    try:
        return run_tasks(spark, job_of(ledger), fresh_and_join, intakes, most=len(units))
    except (TaskFailed, WorkerDied):
        # The next attempt joins in a job of its own, which shows whether a composite is the cause.
        memory.joins_apart = True
        raise


def _check_hole(hole: Hole, count: int, units: Sequence[Intake]) -> None:
    """Raise ValueError unless each group of a chunk read the same rows as the group that stored
    them: matches and stem would differ, and the step has to be taken again."""
    groups = [
        unit
        for unit in units
        if hole.stream_id in unit.schemas
        and any(hole.file.endswith(file.file.path) for file in unit.files)
    ]
    if count != len(groups):
        raise ValueError(f"{count} of {len(groups)} tasks could not read {hole.file}")


def _close(ledger: Ledger, stream_id: int, files: list[DataFile]) -> list[DataFile]:
    """Write the closures that the rows of a keyed stream's new files cause; return their files."""
    # The new files are not committed yet, so `ledger.files` has only the earlier ones.
    closures = ledger.histories.insert(stream_id, ledger.files(stem_name(stream_id)), files)
    rows = closure_rows(stream_id, closures, ledger.epoch.number + 1)
    root = ledger.folder("closures").root
    return write_segments(root, stream_id, rows, CLOSURE_BOUNDS, ledger.store.sync)
