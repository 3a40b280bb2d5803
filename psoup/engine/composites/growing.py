"""Growing: boxes are begun, become larger, and admit the rows of more predicates, between steps.

A box is begun when the rows of all legs but the first are in `joins/<id>`; it is then empty and
grows downwards over leg 0, newest rows first. Rows of a predicate that comes later are combined
with what is there, and the epoch of the last of them names the predicate. Each slice is sized by
how long the last one took, as back-fill's are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from psoup.engine.composites.boxes import (
    CompositeBox,
    LegPredicates,
    composites_to_keep,
    find_combinations,
    store_drafts,
    summary,
    wanted_predicates,
)
from psoup.engine.composites.order import Measured
from psoup.engine.composites.spark_join import SparkJoin
from psoup.engine.composites.units import NOBODY, Arrival, EnterUnit
from psoup.engine.composites.worker import enter
from psoup.engine.coverage import Cohorts
from psoup.engine.jobs import by_table, job_of, run_tasks
from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.settings import EngineSettings
from psoup.store.delta.reading import DataFileGone
from psoup.store.errors import CorruptStore

log = logging.getLogger(__name__)

_MOST_FAILURES = 2
# A slice has so many rows at least; a slice of those that has too many candidates is given up.
_LEAST_ROWS = 1 << 13
# Rows that are worth a task of their own.
_TASK_ROWS = 1 << 14


@dataclass(slots=True)
class AdmissionPass:
    """Predicates of each leg whose rows come in, a slice at a time: those of leg k have come in up
    to row `reached[k]`, in a box that begins at `since`."""

    predicates: LegPredicates
    since: int
    reached: list[int]


@dataclass(slots=True)
class Growing:
    """Makes boxes larger; it knows how large slices are and how far admissions have come."""

    spark: SparkSession
    settings: EngineSettings
    _rows: dict[int, int] = field(default_factory=dict)
    _admissions: dict[int, AdmissionPass] = field(default_factory=dict)
    _failures: dict[int, int] = field(default_factory=dict)
    _last: int = 0

    def advance(self, ledger: Ledger) -> bool:
        """Takes one slice of one composite and publishes its epoch; False where nothing is to do.

        Composites take turns.
        """
        if not ledger.composites:
            return False
        wanted = wanted_predicates(ledger)
        ids = sorted(one.id for one in composites_to_keep(ledger))
        for composite_id in [*filter(self._last.__lt__, ids), *filter(self._last.__ge__, ids)]:
            box = CompositeBox(ledger, ledger.state.composites[composite_id], self.settings)
            started = time.monotonic()
            if not box.mark.suspended and self._try(box, wanted[composite_id]):
                ledger.publish("join")
                self._resize(composite_id, time.monotonic() - started)
                self._last = composite_id
                return True
        return False

    def _try(self, box: CompositeBox, wanted: LegPredicates) -> bool:
        """Takes a slice of a composite; one that failed a few times in a row is suspended, since
        the engine can do without it."""
        if self._failures.get(box.id, 0) == _MOST_FAILURES:
            log.error("composite %d failed %d times", box.id, _MOST_FAILURES)
            self._suspend(box)
            return True
        self._failures[box.id] = self._failures.get(box.id, 0) + 1
        try:
            grown = self._grow(box, wanted)
        except (CorruptStore, DataFileGone):
            # The file is mended, and the slice taken again.
            self._failures.pop(box.id)
            raise
        self._failures.pop(box.id)
        return grown

    def _grow(self, box: CompositeBox, wanted: LegPredicates) -> bool:
        """Does what comes next, as far as the predicates have met all rows: pieces tell which rows
        come in."""
        ready = covered(box, wanted)
        admitted = box.mark.admitted
        if any(without(admitted, ready)):
            return False
        if box.mark.since is None:
            return self._begin(box) if all(admitted) else self._choose(box, ready)
        new = without(ready, admitted)
        if any(new) or box.id in self._admissions:
            return self._admit(box, new, ready)
        return self._enlarge(box)

    # ---- the state of the other legs

    def _choose(self, box: CompositeBox, ready: LegPredicates) -> bool:
        """Begins with the predicates that have met all rows of their streams, once every leg has
        one."""
        if not all(ready):
            return False
        box.reset()
        box.change(Measured().with_entered(ready), admitted=ready)
        return self._begin(box)

    def _begin(self, box: CompositeBox) -> bool:
        """Puts the next rows of the legs after the first into `joins/<id>`. With the last of them
        the box begins where leg 0 ends."""
        left, highs, units = self._slice_rows(box), list(box.mark.highs), []
        work = box.work
        for leg in range(1, len(highs)):
            low = max(highs[leg], box.floor(leg))
            highs[leg] = min(low + left, box.high(leg))
            left -= highs[leg] - low
            for first, last in _tasks(low, highs[leg], self._parallelism):
                arrival = box.arrival(leg, first, last, box.mark.admitted[leg])
                units.append(EnterUnit(work, leg, arrival))
        outcomes = run_tasks(self.spark, job_of(box.ledger), enter, units)
        written = {name: (files, ()) for name, files in by_table(outcomes).items()}
        box.ledger.commit_all(written, operation="COMBINE")
        if all(highs[leg] == box.high(leg) for leg in range(1, len(highs))):
            highs[0] = box.high(0)
            box.change(highs=tuple(highs), since=highs[0])
        else:
            box.change(highs=tuple(highs))
        return True

    # ---- more of leg 0

    def _enlarge(self, box: CompositeBox) -> bool:
        """Takes the next older rows of leg 0 into the box."""
        since, floor = box.mark.since, box.floor(0)
        assert since is not None
        if since == 0:
            return False
        if since <= floor:
            box.change(since=0)
            return True
        if self._is_large(box):
            low = max(floor, since - self.settings.spark_slice_rows)
            done = self._combine_in_spark(box, low, since)
        else:
            low = max(floor, since - self._slice_rows(box))
            arrivals = [NOBODY] * len(box.composite.legs)
            arrivals[0] = box.arrival(0, low, since, box.mark.admitted[0])
            done = self._combine(box, arrivals, since - low)
        if done:
            box.change(since=low if low > floor else 0)
        return True

    def _is_large(self, box: CompositeBox) -> bool:
        """Tells whether the rest of a box is joined by Spark: it does not fit a worker, and what is
        in `joins/<id>` is what the admitted predicates match, all of it there to be read."""
        mark, legs = box.mark, range(1, len(box.mark.highs))
        rows = (mark.since or 0) - box.floor(0) + sum(mark.highs[k] - box.floor(k) for k in legs)
        lost = {hole.stream_id for hole in box.ledger.state.losses.holes}
        return (
            rows > self.settings.arrow_join_rows
            and box.measured.entered == mark.admitted
            and lost.isdisjoint(box.composite.legs)
        )

    def _combine_in_spark(self, box: CompositeBox, low: int, high: int) -> bool:
        """Joins rows of leg 0 with all of the others. False where there are too many combinations,
        and the composite is suspended."""
        mark, job = box.mark, job_of(box.ledger)
        first = box.arrival(0, low, high, mark.admitted[0])
        others = (
            box.arrival(leg, box.floor(leg), mark.highs[leg], mark.admitted[leg])
            for leg in range(1, len(mark.highs))
        )
        told = SparkJoin(job, box.work, (first, *others)).find(self.spark)
        if summary(told).too_many:
            self._suspend(box)
            return False
        work = box.work
        units = [
            EnterUnit(work, 0, box.arrival(0, begin, end, mark.admitted[0]))
            for begin, end in _tasks(low, high, (high - low) // _TASK_ROWS)
        ]
        outcomes = run_tasks(self.spark, job, enter, units)
        outcomes += store_drafts(box.ledger, self.spark, {box.id: box}, told)
        written = {name: (files, ()) for name, files in by_table(outcomes).items()}
        box.ledger.commit_all(written, operation="COMBINE")
        return self._count(box, summary(told).count)

    # ---- more predicates

    def _admit(self, box: CompositeBox, new: LegPredicates, ready: LegPredicates) -> bool:
        """Takes in the next rows of predicates that are not admitted. The epoch of the last of them
        names the predicates."""
        mark, pass_ = box.mark, self._admissions.get(box.id)
        assert mark.since is not None
        if pass_ is None or pass_.since != mark.since or any(without(pass_.predicates, ready)):
            pass_ = self._admissions[box.id] = AdmissionPass(
                new, mark.since, [mark.since, *(0 for _ in mark.highs[1:])]
            )
            box.change(box.measured.with_entered(new))
        left = self._slice_rows(box)
        for leg, predicates in enumerate(pass_.predicates):
            low, high = max(pass_.reached[leg], box.floor(leg)), mark.highs[leg]
            if not predicates or low >= high:
                pass_.reached[leg] = high
                continue
            if not left:
                return True
            last = min(low + left, high)
            arrivals = [NOBODY] * len(mark.highs)
            arrivals[leg] = box.arrival(leg, low, last, predicates, again=True)
            if not self._combine(box, arrivals, last - low):
                return True
            pass_.reached[leg] = last
            left -= last - low
            if last < high:
                return True
        del self._admissions[box.id]
        both = zip(mark.admitted, pass_.predicates, strict=True)
        box.change(admitted=tuple(tuple(sorted({*old, *more})) for old, more in both))
        return True

    # ---- slices

    def _combine(self, box: CompositeBox, arrivals: Sequence[Arrival], rows: int) -> bool:
        """Combines the rows of a slice. False where there are too many candidates: the next slice
        is smaller then, or the composite is suspended."""
        tasks = min(self._parallelism, 1 + rows // _TASK_ROWS)
        units = box.combining(box.work, arrivals, tasks)
        found = find_combinations(box.ledger, self.spark, {box.id: box}, units)[box.id]
        if found.too_many:
            if rows <= _LEAST_ROWS:
                self._suspend(box)
            self._rows[box.id] = rows // 4
            return False
        return self._count(box, found.count)

    def _count(self, box: CompositeBox, count: int) -> bool:
        """Counts new combinations. False where there are too many for each row by now, and the
        composite is suspended."""
        box.change(high=box.mark.high + count)
        # Not by their ids: combinations have left by retention, or were found anew.
        stored = sum(file.rows for file in box.ledger.files(stem_name(box.id)))
        inside = sum(file.rows for file in box.work.joins)
        if stored > self.settings.max_combinations * inside:
            self._suspend(box)
        return not box.mark.suspended

    def _suspend(self, box: CompositeBox) -> None:
        box.suspend()
        self._admissions.pop(box.id, None)

    @property
    def _parallelism(self) -> int:
        return int(self.spark.sparkContext.defaultParallelism)

    def _slice_rows(self, box: CompositeBox) -> int:
        return self._rows.setdefault(box.id, self.settings.slice_rows)

    def _resize(self, composite_id: int, took: float) -> None:
        factor = min(2.0, max(0.5, self.settings.slice_seconds / max(took, 0.001)))
        least = min(_LEAST_ROWS, self.settings.slice_rows)
        rows = self._rows.get(composite_id, self.settings.slice_rows)
        self._rows[composite_id] = max(least, int(rows * factor))


def covered(box: CompositeBox, wanted: LegPredicates) -> LegPredicates:
    """The predicates of each leg that have met all rows of their stream."""
    coverage, legs = box.ledger.coverage, box.composite.legs
    return tuple(
        _covered(coverage, stream, box.ledger.floor(stream), own)
        for stream, own in zip(legs, wanted, strict=True)
    )


def without(predicates: LegPredicates, others: LegPredicates) -> LegPredicates:
    """The predicates of each leg that are not among others."""
    return tuple(
        tuple(one for one in own if one not in set(there))
        for own, there in zip(predicates, others, strict=True)
    )


def _covered(
    coverage: Cohorts, stream_id: int, floor: int, predicates: Sequence[int]
) -> tuple[int, ...]:
    cohorts = [one for one in coverage.cohorts(stream_id) if one.row_lo <= floor]
    return tuple(one for one in predicates if any(c.lo <= one < c.hi for c in cohorts))


def _tasks(low: int, high: int, parallelism: int) -> Iterator[tuple[int, int]]:
    """Cuts the rows of a slice into tasks."""
    count = max(1, min(parallelism, 1 + (high - low) // _TASK_ROWS)) if high > low else 0
    edges = [low + (high - low) * task // max(count, 1) for task in range(count + 1)]
    yield from zip(edges[:-1], edges[1:], strict=True)
