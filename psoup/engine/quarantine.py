"""Quarantine: a predicate or composite that fails is set aside, and everything else continues.

A task that fails is tried again in a second process, by `python -m psoup.engine.quarantine`. If it
fails there too, that process finds the predicates with which it fails, by bisection. Nothing is set
aside for a failure that does not repeat, or that the machine causes: memory, files, lost workers.
"""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from psoup.engine.composites.boxes import CompositeForm, forget_composite
from psoup.engine.composites.units import CompositeWork
from psoup.engine.jobs import (
    Outcome,
    SparkJob,
    TaskFailed,
)
from psoup.engine.ledger import Ledger
from psoup.engine.mend import write_coverage
from psoup.engine.predicates import predicates_of
from psoup.store.errors import StoreError
from psoup.store.state.quarantine import (
    COMPOSITE,
    MACHINE_ERRORS,
    PREDICATE,
    Quarantine,
    QuarantineEntry,
    reason_of,
)
from psoup.store.state.state import State

log = logging.getLogger(__name__)

# A search starts no new half after this time. What it has found is set aside, and the next failure
# continues the search.
_SEARCH_SECONDS = 120.0
_PROCESS_SECONDS = 1800.0


# ---- the driver


def confirm(failure: TaskFailed) -> list[QuarantineEntry]:
    """Try a failed unit again in a second process, and return the predicates or the composite that
    make it fail. Return nothing if it does not fail there, or for another reason."""
    log.error("a task failed with %s; looking for the cause in a second process", failure)
    # In a second process, since a bad predicate may crash it or use up its memory.
    work = pickle.dumps((failure.work, failure.job, failure.unit))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "psoup.engine.quarantine"],
            input=work,
            stdout=subprocess.PIPE,
            timeout=_PROCESS_SECONDS,
            check=True,
        )
        return [QuarantineEntry(**entry) for entry in json.loads(done.stdout)]
    except (subprocess.SubprocessError, ValueError, OSError) as error:
        log.error("the second process found nothing: %s", error)
        return []


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


# ---- the second process


class Search:
    """The search for the predicates with which a unit of work fails."""

    def __init__(
        self, work: Callable[[SparkJob, Any], list[Outcome]], job: SparkJob, unit: Any
    ) -> None:
        self._work, self._unit = work, unit
        # What a trial writes is never committed, so it need not be durable.
        self._job = replace(job, sync=False, trial=True)
        self._predicates = predicates_of(job.root)
        self._predicates.advance(job.predicates, job.excluded)
        self._streams = {
            id_: stream_id
            for stream_id in self._predicates.streams()
            for id_ in self._predicates.live(stream_id).tolist()
        }
        self._all: Int64s = np.array(sorted(self._streams), np.int64)
        self._excluded: Int64s = np.array(job.excluded, np.int64)
        self._until = time.monotonic() + _SEARCH_SECONDS

    def causes(self) -> list[QuarantineEntry]:
        """Return the entries that make the unit fail; empty if it does not fail. Raise MemoryError,
        OSError and StoreError."""
        reason = self._failure(self._all)
        if reason is None:
            return []
        # If the unit fails without any predicate, the composite or the machine is the cause.
        alone = self._failure(self._all[:0])
        if alone is None:
            return list(self._among(self._all, reason))
        composite = _composite_of(self._unit)
        return (
            [] if composite is None else [QuarantineEntry(COMPOSITE, composite, composite, alone)]
        )

    def _failure(self, only: Int64s) -> str | None:
        """Return why the unit fails with only these predicates; None if it does not fail."""
        omitted = np.setdiff1d(self._all, only, assume_unique=True)
        excluded: Any = np.concatenate([self._excluded, omitted])
        try:
            self._work(replace(self._job, excluded=excluded), self._unit)
        except (*MACHINE_ERRORS, StoreError):
            raise
        except Exception as error:
            return reason_of(error)
        return None

    def _among(self, ids: Int64s, reason: str) -> Iterable[QuarantineEntry]:
        """Yield entries for the predicates that make the unit fail, given ids with which it fails.

        If neither half fails alone, yield the first predicate with which its predecessors fail.
        """
        if len(ids) == 1:
            yield self._entry(int(ids[0]), reason)
            return
        middle, has_failed = len(ids) // 2, False
        for half in (ids[:middle], ids[middle:]):
            if has_failed and time.monotonic() > self._until:
                return
            why = self._failure(half)
            if why is not None:
                has_failed = True
                yield from self._among(half, why)
        if not has_failed:
            yield self._first_together(ids, middle, reason)

    def _first_together(self, ids: Int64s, works: int, reason: str) -> QuarantineEntry:
        """Return the entry of the first predicate that, with those before it, makes the unit fail.
        With the first `works` predicates it must not fail."""
        fails = len(ids)
        while fails - works > 1:
            middle = (works + fails) // 2
            why = self._failure(ids[:middle])
            works, fails = (middle, fails) if why is None else (works, middle)
            reason = why or reason
        return self._entry(int(ids[fails - 1]), reason)

    def _entry(self, id_: int, reason: str) -> QuarantineEntry:
        return QuarantineEntry(PREDICATE, id_, self._streams[id_], reason)


def _composite_of(unit: Any) -> int | None:
    """Return the id of the composite that a unit of work is over; None if it is over none."""
    if isinstance(unit, CompositeForm):
        return unit.composite_id
    work = getattr(unit, "work", None)
    return work.id if isinstance(work, CompositeWork) else None


def main() -> None:
    """Read a failed unit from standard input, and write the entries that make it fail as JSON."""
    work, job, unit = pickle.load(sys.stdin.buffer)
    print(json.dumps([asdict(entry) for entry in Search(work, job, unit).causes()]))


if __name__ == "__main__":
    # Standard output holds the entries that the driver reads.
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    main()
