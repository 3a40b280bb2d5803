"""The search for what makes a unit of work fail: predicates, or the composite it is over.

The unit is tried with parts of the predicates, by bisection. A task searches in its own process.
If a worker dies, the driver searches, with a job of Spark for each trial.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from datastem.arrays import Int64s
from psoup.engine.composites.units import CompositeWork
from psoup.engine.matching.predicates import predicates_of
from psoup.store.errors import StoreError
from psoup.store.state.quarantine import (
    COMPOSITE,
    MACHINE_ERRORS,
    PREDICATE,
    QuarantineEntry,
    reason_of,
)

if TYPE_CHECKING:
    from psoup.engine.spark.jobs import SparkJob

log = logging.getLogger(__name__)

# A search starts no new half after this time. What it has found is set aside, and the next failure
# continues the search.
_SEARCH_SECONDS = 120.0


Result = TypeVar("Result")


def result_or_reason(
    work: Callable[[SparkJob, Any], Result], job: SparkJob, unit: Any
) -> Result | str:
    """Return what `work(job, unit)` returns, or why it fails. Raise MemoryError, OSError and
    StoreError, which are no predicate's fault."""
    try:
        return work(job, unit)
    except (*MACHINE_ERRORS, StoreError):
        raise
    except Exception as error:
        if not job.trial:
            # Without the message: this runs in a worker, whose log is Spark's.
            stack = "".join(traceback.format_tb(error.__traceback__))
            log.error("a unit of work failed: %s\n%s", reason_of(error), stack)
        return reason_of(error)


def causes_of(
    work: Callable[[SparkJob, Any], object], job: SparkJob, unit: Any, reason: str
) -> list[QuarantineEntry]:
    """Return the entries that make `work(job, unit)` fail in this process, given the reason. Raise
    what `result_or_reason` raises."""

    def attempt(trial: SparkJob) -> str | None:
        result = result_or_reason(work, trial, unit)
        return result if isinstance(result, str) else None

    return Search(job, unit, attempt).causes(reason)


class Search:
    """The search for what makes a unit of work fail.

    `attempt` tries the unit with the predicates that a job does not exclude, and returns why it
    fails, or None. If `by_itself`, only predicates count that fail without any others.
    """

    def __init__(
        self,
        job: SparkJob,
        unit: Any,
        attempt: Callable[[SparkJob], str | None],
        *,
        by_itself: bool = False,
    ) -> None:
        self._unit, self._attempt, self._by_itself = unit, attempt, by_itself
        # What a trial writes is never committed, so it need not be durable.
        self._job = replace(job, sync=False, trial=True)
        predicates = predicates_of(job.root)
        predicates.advance(job.predicates, job.excluded)
        self._streams = {
            id_: stream_id
            for stream_id in predicates.streams()
            for id_ in predicates.live(stream_id).tolist()
        }
        # Every trial has other predicates, and so begins by reading them again.
        predicates.forget()
        self._all: Int64s = np.array(sorted(self._streams), np.int64)
        self._excluded: Int64s = np.array(job.excluded, np.int64)
        self._until = time.monotonic() + _SEARCH_SECONDS

    def failure(self) -> str | None:
        """Return why the unit fails with all predicates; None if it does not fail."""
        return self._failure(self._all)

    def causes(self, reason: str) -> list[QuarantineEntry]:
        """Return the entries that make the unit fail, given why it fails with all predicates."""
        # If the unit fails without any predicate, the composite or the machine is the cause.
        alone = self._failure(self._all[:0])
        if alone is None:
            return list(self._among(self._all, reason))
        work = getattr(self._unit, "work", None)
        if not isinstance(work, CompositeWork):
            return []
        return [QuarantineEntry(COMPOSITE, work.id, work.id, alone)]

    def _failure(self, only: Int64s) -> str | None:
        """Return why the unit fails with only these predicates; None if it does not fail."""
        omitted = np.setdiff1d(self._all, only, assume_unique=True)
        excluded: Any = np.concatenate([self._excluded, omitted])
        return self._attempt(replace(self._job, excluded=excluded))

    def _among(self, ids: Int64s, reason: str) -> Iterator[QuarantineEntry]:
        """Yield entries for the predicates that make the unit fail, given ids with which it fails.

        If neither half fails alone, yield the first predicate with which its predecessors fail.
        """
        if len(ids) == 1:
            # A failure that does not repeat is the machine's.
            if self._failure(ids) is not None:
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
        if not has_failed and not self._by_itself:
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
