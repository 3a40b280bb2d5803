"""Quarantine: a predicate or composite that fails is set aside, and everything else continues.

A task that fails twice searches for the cause itself (`culprits`). If workers die twice in one job,
the driver searches. Nothing is set aside for a failure that does not repeat, or that the machine
causes: errors of files, or memory that is short whatever the predicates are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from psoup.engine.composites.boxes import forget_composite
from psoup.engine.ledger import Ledger
from psoup.engine.repair.culprits import Search
from psoup.engine.repair.mend import write_coverage
from psoup.engine.spark.jobs import SparkJob, TaskFailed, WorkerDied, run_tasks
from psoup.store.state.quarantine import (
    COMPOSITE,
    PREDICATE,
    Quarantine,
    QuarantineEntry,
)
from psoup.store.state.state import State

log = logging.getLogger(__name__)

# After this time no further unit of a job with dead workers is searched.
_UNITS_SECONDS = 300.0


def suspects(spark: SparkSession, error: Exception, attempt: int) -> list[QuarantineEntry]:
    """Return what made a round of the engine fail at the given attempt, from 0: predicates and
    composites; none if it was nothing of theirs."""
    if isinstance(error, TaskFailed):
        return list(error.causes)
    # A worker that dies once may have been ended by its machine.
    if not isinstance(error, WorkerDied) or not attempt:
        return []
    log.error("workers died twice (%s); looking for the cause", error)
    try:
        return _killers(spark, error)
    except Exception:
        # The next attempt meets whatever it is, and the engine deals with that.
        log.exception("the search failed")
        return []


def _killers(spark: SparkSession, death: WorkerDied) -> list[QuarantineEntry]:
    """Return the entries with which the workers of a job die: run each unit alone, and those that
    fail with fewer predicates, by halves."""
    entries: dict[str, QuarantineEntry] = {}
    until = time.monotonic() + _UNITS_SECONDS
    for unit in death.units:
        if entries and time.monotonic() > until:
            break

        def attempt(job: SparkJob, unit: Any = unit) -> str | None:
            try:
                run_tasks(spark, job, death.work, [unit])
            except (TaskFailed, WorkerDied) as error:
                return str(error)
            return None

        # Many predicates that kill a worker only together are too much work, not a cause.
        search = Search(death.job, unit, attempt, by_itself=True)
        if (reason := search.failure()) is not None:
            entries |= {entry.name: entry for entry in search.causes(reason)}
    return list(entries.values())


def set_aside(ledger: Ledger, entries: Sequence[QuarantineEntry], reached: State) -> None:
    """Put entries into quarantine, end the coverage of their predicates, and publish.

    The ledger must be at its epoch. A predicate may be one that the log brings after the epoch:
    `reached` is the state with which the work failed.
    """
    state, clock, position = ledger.state, reached.clock, reached.position.packed
    for entry in entries:
        log.error("QUARANTINE: %s: %s", entry.name, entry.reason)
    state.quarantine = state.quarantine.add(
        replace(entry, since=clock, position=position) for entry in entries
    )
    composites = {entry.id for entry in entries if entry.kind == COMPOSITE}
    predicates = [
        entry for entry in entries if entry.kind == PREDICATE and entry.id in state.predicates
    ]
    ids = {entry.id for entry in predicates}
    for stream_id in {entry.stream_id for entry in predicates}:
        quarantined = state.quarantine.of_stream(stream_id)
        ledger.coverage.close(stream_id, quarantined, ledger.high(stream_id))
    if predicates:
        write_coverage(ledger, "QUARANTINE")
    for composite_id, mark in list(ledger.composites.items()):
        if composite_id in composites:
            forget_composite(ledger, composite_id)
            mark = ledger.composites[composite_id]
            ledger.composites[composite_id] = replace(mark, suspended=True)
        elif any(ids.intersection(admitted) for admitted in mark.admitted):
            # Its combinations are those of admitted predicates, and this one no longer is.
            forget_composite(ledger, composite_id)
        else:
            # Combinations that only a predicate in quarantine matches are not stored.
            ledger.composites[composite_id] = mark.without_predicates(ids)
    ledger.publish("quarantine")


def restart_released(
    ledger: Ledger, before: Quarantine, born: int, highs: Mapping[int, int]
) -> list[pa.Table]:
    """Start matching the entries that were in quarantine `before` and were released since.

    `born` and `highs` are the next predicate id and the next row ids before the step. Return rows
    of the coverage table.
    """
    released = [entry for entry in before.entries if entry not in ledger.state.quarantine.entries]
    for entry in released:
        if entry.kind == COMPOSITE and entry.id in ledger.composites:
            forget_composite(ledger, entry.id)
    # A predicate that this step created is in the step's new cohort already.
    predicates = [
        entry
        for entry in released
        if entry.kind == PREDICATE and entry.id < born and entry.id in ledger.state.predicates
    ]
    return [
        ledger.coverage.reopen(entry.stream_id, entry.id, highs.get(entry.stream_id, 0))
        for entry in predicates
    ]
