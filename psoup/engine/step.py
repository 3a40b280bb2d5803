"""One step: new events of the log become rows, matches and an epoch.

Both halves of the symmetric join meet here. New rows are matched with every predicate that exists
at the end of the step. New predicates start a cohort at the step's first row; back-fill matches
them with older rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from psoup.engine.composites.keeping import keep_up
from psoup.engine.coverage import Cohort
from psoup.engine.histories import closure_rows
from psoup.engine.jobs import by_table, job_of, run_tasks
from psoup.engine.ledger import STEM, Ledger, stem_name, stream_of
from psoup.engine.quarantine import restart_released
from psoup.engine.settings import EngineSettings
from psoup.engine.worker import CLOSURE_BOUNDS, Intake, LogFile, Task, fresh, write_segments
from psoup.store.audit import AuditRecord, audit_rows, records_of
from psoup.store.delta import DeltaFolder
from psoup.store.delta.files import DataFile
from psoup.store.heartbeats import heartbeat_rows, heartbeats
from psoup.store.layout import COVERAGE
from psoup.store.log.events import Data, Entry
from psoup.store.log.log import read_events
from psoup.store.state.losses import Hole
from psoup.store.state.state import Touched
from psoup.store.tables import changed_rows


@dataclass(frozen=True, slots=True)
class Stretch:
    """The files of the log's commits up to version `end`, in their order."""

    end: int
    files: tuple[LogFile, ...] = ()


def next_stretch(log: DeltaFolder, version: int, settings: EngineSettings) -> Stretch:
    """Return the part of the log after `version` that one step may take; it is empty, with `end` at
    `version`, if there are no new commits."""
    files: list[LogFile] = []
    size, last = 0, version + settings.step_commits
    for number in range(version + 1, last + 1):
        commit = log.read_commit(number)
        if commit is None:
            return Stretch(number - 1, tuple(files))
        size += sum(file.size for file in commit.added)
        # A single commit above the limit is taken alone, or the engine would never pass it.
        if size > settings.step_bytes and number > version + 1:
            return Stretch(number - 1, tuple(files))
        files += [LogFile(number, file) for file in commit.added]
    return Stretch(last, tuple(files))


def split_into_tasks(files: Sequence[LogFile], parallelism: int, task_bytes: int) -> list[Task]:
    """Return log files split into at most `parallelism` tasks of about equal size."""
    total = sum(file.size for file in files)
    count = min(parallelism, 1 + total // task_bytes)
    parts: list[list[LogFile]] = [[] for _ in range(count)]
    before = 0
    for file in files:
        # A file belongs to the part that holds its first byte, so each part is a run of neighbours.
        parts[min(count - 1, before * count // max(total, 1))].append(file)
        before += file.size
    return [tuple(part) for part in parts if part]


def take_step(
    ledger: Ledger, spark: SparkSession, stretch: Stretch, settings: EngineSettings
) -> None:
    """Consume a stretch of the log, which must begin where the last epoch ends."""
    entries = _headers(ledger.store.log.folder.root, stretch)
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
    coverage = _start_cohorts(ledger, touched, born, highs)
    coverage = pa.concat_tables([coverage, *restart_released(ledger, set_aside, born, highs)])
    reached = heartbeat_rows(list(heartbeats(entries)))
    driver_rows = {"coverage": coverage, "reached": reached, "audit": audit_rows(records)}
    # Predicates are committed before rows are matched: workers read them from the table.
    _write_changes(ledger, touched, driver_rows)
    if any(isinstance(entry.event, Data) and entry.event.rows for entry in entries):
        _insert_and_probe(ledger, spark, stretch, settings)
    keep_up(ledger, spark, settings)
    # Commits without entries are those by which the engine trimmed the log.
    ledger.publish("step" if entries else "trim", stretch.end)


def _headers(root: Path, stretch: Stretch) -> list[Entry]:
    """Return the entries of a stretch without their rows."""
    return [
        entry
        for file in stretch.files
        for entry in read_events(root, file.file, file.version, payloads=False)
    ]


def _write_changes(ledger: Ledger, touched: Touched, driver_rows: Mapping[str, pa.Table]) -> None:
    for stream_id in touched.streams:
        if not ledger.state.streams[stream_id].dropped:
            ledger.create_stem(stream_id)
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
    ledger: Ledger, spark: SparkSession, stretch: Stretch, settings: EngineSettings
) -> None:
    # Rows of streams that have been dropped by the end of the step are not stored.
    schemas = {
        stream.id: stream.schema for stream in ledger.state.streams.values() if not stream.dropped
    }
    parallelism = spark.sparkContext.defaultParallelism
    units = [
        Intake(task, schemas)
        for task in split_into_tasks(stretch.files, parallelism, settings.task_bytes)
    ]
    outcomes = run_tasks(spark, job_of(ledger), fresh, units)
    for outcome in outcomes:
        if isinstance(outcome, Hole):
            ledger.state.losses = ledger.state.losses.lose(outcome)
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


def _close(ledger: Ledger, stream_id: int, files: list[DataFile]) -> list[DataFile]:
    """Write the closures that the rows of a keyed stream's new files cause; return their files."""
    # The new files are not committed yet, so `ledger.files` has only the earlier ones.
    closures = ledger.histories.insert(stream_id, ledger.files(stem_name(stream_id)), files)
    rows = closure_rows(stream_id, closures, ledger.epoch.number + 1)
    root = ledger.folder("closures").root
    return write_segments(root, stream_id, rows, CLOSURE_BOUNDS, ledger.store.sync)
