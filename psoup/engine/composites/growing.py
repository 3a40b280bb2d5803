"""The growth of boxes between steps: they start, become larger, and admit rows of more predicates.

A box starts when the rows of all legs except the first are in `joins/<id>`. It is empty then, and
grows over leg 0, newest rows first. For a query that comes later, the rows of its local predicates
enter `joins/<id>` first; then the combinations are found that its predicate over the composite
matches and that are not stored. The size of a slice depends on how long the previous one took, as
for back-fill. What does not fit a worker is joined by Spark beside the loop (`bulk_join`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pyspark.sql import SparkSession

from datastem.arrays import Int64s
from psoup.engine.composites.boxes import (
    CompositeBox,
    composites_to_keep,
    find_combinations,
    local_predicates,
)
from psoup.engine.composites.bulk_join import BulkJoin
from psoup.engine.composites.estimating import SAMPLE_ROWS, EstimateUnit, estimate
from psoup.engine.composites.join_costs import JoinCosts
from psoup.engine.composites.keeping import UNIT_ROWS
from psoup.engine.composites.legs import LegPredicates, covered, without
from psoup.engine.composites.passes import (
    TASK_ROWS,
    AdmissionPass,
    CompletionPass,
    task_ranges,
)
from psoup.engine.composites.spark_join import SparkJoin
from psoup.engine.composites.units import NO_ROWS, Arrival, EnterUnit, Missing
from psoup.engine.composites.wanting import CompositePredicates
from psoup.engine.composites.worker import enter
from psoup.engine.ledger import Ledger, stem_name
from psoup.engine.matching.predicates import Ranges
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.jobs import Estimated, by_table, job_of, run_tasks
from psoup.store.delta.reading import DataFileGone
from psoup.store.errors import CorruptStore

log = logging.getLogger(__name__)

_MAX_FAILURES = 2
# The least rows of a slice. If such a slice has too many candidates, its composite is suspended.
_MIN_SLICE_ROWS = 1 << 13
# A join beside the loop should take this share of the grace; it is given up after half of it.
_GRACE_SHARES = 8
# How soon an idle engine looks whether a join beside the loop is done.
_BULK_POLL_SECONDS = 0.25


@dataclass(slots=True)
class Growing:
    """The growth of all boxes: the sizes of slices by composite, and the passes in progress."""

    spark: SparkSession
    settings: EngineSettings
    _rows: dict[int, int] = field(default_factory=dict)
    _admissions: dict[int, AdmissionPass] = field(default_factory=dict)
    _completions: dict[int, CompletionPass] = field(default_factory=dict)
    _failures: dict[int, int] = field(default_factory=dict)
    _last: int = 0
    # The composites whose join beside the loop has failed: tasks join their next slice.
    _by_tasks: set[int] = field(default_factory=set)
    # The join beside the loop: at most one, so that it takes at most the share of one pool.
    _bulk: BulkJoin | None = None
    _costs: JoinCosts = field(init=False)

    def __post_init__(self) -> None:
        self._costs = JoinCosts(self._parallelism)

    def advance(self, ledger: Ledger) -> bool:
        """Do one slice of one composite and publish its epoch; return False if there is no work.

        Composites take turns.
        """
        if not ledger.composites:
            self.stop()
            return False
        local = local_predicates(ledger)
        ids = sorted(composite.id for composite in composites_to_keep(ledger))
        self._check_bulk(ledger, ids)
        # Begin after the composite that had the last turn, and go around.
        for composite_id in [*filter(self._last.__lt__, ids), *filter(self._last.__ge__, ids)]:
            box = CompositeBox(ledger, ledger.state.composites[composite_id], self.settings)
            started = time.monotonic()
            if not box.is_resting and self._try(box, local[composite_id]):
                ledger.publish("join")
                self._resize(composite_id, time.monotonic() - started)
                self._last = composite_id
                return True
        return False

    @property
    def idle_in(self) -> float | None:
        """The seconds until there may be work that was not there in the last round; None if only an
        event of the log can bring some."""
        return None if self._bulk is None else _BULK_POLL_SECONDS

    def stop(self) -> None:
        """Give up the join beside the loop, if there is one."""
        if self._bulk is not None:
            self._bulk.job.cancel()
            self._bulk = None

    def _check_bulk(self, ledger: Ledger, composite_ids: Sequence[int]) -> None:
        """Give up the join beside the loop if its composite is not kept any more, or after half the
        grace: the files that it reads, and its drafts, could be deleted."""
        if self._bulk is None:
            return
        id_, seconds = self._bulk.composite_id, self._bulk.job.seconds
        if seconds > self.settings.grace / 2:
            log.warning("gave up the join of composite %d after %.0f s", id_, seconds)
            # The next one is smaller.
            self._costs.note_spark(self._bulk.rows, seconds)
            self.stop()
        elif id_ not in composite_ids or ledger.composites[id_].suspended:
            self.stop()

    def _try(self, box: CompositeBox, local: LegPredicates) -> bool:
        """Do a slice of a composite; return False if there is no work. A composite that failed a
        few times in a row is suspended: the engine works without it."""
        if self._failures.get(box.id, 0) == _MAX_FAILURES:
            log.error("composite %d failed %d times", box.id, _MAX_FAILURES)
            self._suspend(box)
            return True
        # Counted in advance, so that any error stays counted, except that of a damaged file.
        self._failures[box.id] = self._failures.get(box.id, 0) + 1
        try:
            grown = self._grow(box, local)
        except (CorruptStore, DataFileGone):
            # The engine repairs the file, and does the slice again.
            self._failures.pop(box.id)
            raise
        self._failures.pop(box.id)
        return grown

    def _grow(self, box: CompositeBox, local: LegPredicates) -> bool:
        """Do the next slice of a composite; return False if there is no work. Only predicates that
        were matched with all rows count: their pieces say which rows are admitted."""
        ready = _ready(box, local)
        admitted = box.mark.admitted
        # An admitted predicate whose matches were dropped has to be back-filled first.
        if any(without(admitted, ready)):
            return False
        if box.mark.since is None:
            return self._begin(box) if all(admitted) else self._choose(box, ready)
        if self._bulk is not None and self._bulk.composite_id == box.id:
            # More predicates wait: the join would not have their rows.
            if self._bulk.basis.holds(box):
                return self._bulk.job.is_done and self._take(box, self._bulk)
            self.stop()
        new = without(ready, admitted)
        if any(new) or box.id in self._admissions:
            return self._admit(box, new, ready)
        wanting = CompositePredicates.of(box)
        pending = wanting.pending(box.mark)
        if len(pending):
            pending = np.intersect1d(pending, wanting.admitted(box.composite.legs, admitted))
        return self._complete(box, wanting, pending) if len(pending) else self._enlarge(box)

    # ---- the state of the other legs

    def _choose(self, box: CompositeBox, ready: LegPredicates) -> bool:
        """Start a box with the predicates that were matched with all rows of their streams, unless
        a new row would bring too many combinations; return False until every leg has one."""
        if not all(ready):
            return False
        if self._is_too_large(box, self._estimated(box, ready)):
            self._suspend(box)
            return True
        box.reset()
        wanting = CompositePredicates.of(box)
        # The box begins empty, so nothing of these is missing.
        predicates = wanting.ranges(wanting.admitted(box.composite.legs, ready))
        box.change(admitted=ready, predicates=predicates)
        return self._begin(box)

    def _is_too_large(self, box: CompositeBox, estimated: Estimated) -> bool:
        """Return True if an average new row, or admitted one if an inequality connects legs, would
        have more combinations stored or examined than a composite may have."""
        per_row = estimated.per_admitted_row if box.is_range else estimated.per_row
        # One that was suspended must be well below the limits to begin again.
        share = 0.5 if box.mark.suspended else 1.0
        limit = share * box.max_combinations
        # As many as tasks of a large step may examine.
        max_examined = max(limit, share * self.settings.max_candidates / UNIT_ROWS)
        return per_row * estimated.wanted_share > limit or per_row > max_examined

    def _estimated(self, box: CompositeBox, ready: LegPredicates) -> Estimated:
        """Estimate how many combinations an average new row would bring."""
        highs = [box.high(leg) for leg in range(len(ready))]
        floors = [box.floor(leg) for leg in range(len(ready))]
        arrivals = tuple(
            box.arrival(leg, max(floors[leg], high - SAMPLE_ROWS), high, ready[leg])
            for leg, high in enumerate(highs)
        )
        rows = tuple(high - floor for high, floor in zip(highs, floors, strict=True))
        unit = EstimateUnit(box.work, arrivals, rows)
        outcomes = run_tasks(self.spark, job_of(box.ledger), estimate, [unit])
        return next(outcome for outcome in outcomes if isinstance(outcome, Estimated))

    def _begin(self, box: CompositeBox) -> bool:
        """Write the next rows of the legs after the first to `joins/<id>`. With the last of them
        the box begins, at the end of leg 0."""
        remaining_rows, highs, units = (
            self._slice_rows(box),
            list(box.mark.highs),
            list[EnterUnit](),
        )
        for leg in range(1, len(highs)):
            low = max(highs[leg], box.floor(leg))
            highs[leg] = min(low + remaining_rows, box.high(leg))
            remaining_rows -= highs[leg] - low
            units += self._entering(box, leg, low, highs[leg], box.mark.admitted[leg])
        self._enter(box, units)
        if all(highs[leg] == box.high(leg) for leg in range(1, len(highs))):
            highs[0] = box.high(0)
            box.change(highs=tuple(highs), since=highs[0])
        else:
            box.change(highs=tuple(highs))
        return True

    def _entering(
        self,
        box: CompositeBox,
        leg: int,
        low: int,
        high: int,
        predicates: Sequence[int],
        again: bool = False,
    ) -> list[EnterUnit]:
        """Return the units that write rows of a leg to `joins/<id>`."""
        work = box.work
        return [
            EnterUnit(work, leg, box.arrival(leg, first, last, predicates, again))
            for first, last in task_ranges(low, high, self._parallelism)
        ]

    def _enter(self, box: CompositeBox, units: Sequence[EnterUnit]) -> None:
        outcomes = run_tasks(self.spark, job_of(box.ledger), enter, units)
        written = {name: (files, ()) for name, files in by_table(outcomes).items()}
        box.ledger.commit_all(written, operation="COMBINE")

    # ---- more of leg 0

    def _enlarge(self, box: CompositeBox) -> bool:
        """Add the next older rows of leg 0 to the box; return False if it has all."""
        since, floor = box.mark.since, box.floor(0)
        assert since is not None
        if since == 0:
            return False
        if since <= floor:
            # There are no older rows, and there never will be.
            box.change(since=0)
            return True
        slice_rows = self._spark_rows(box)
        if slice_rows:
            # A box waits for the join of another one.
            if self._bulk is None:
                self._start(box, max(floor, since - slice_rows), since)
            return False
        low, started = max(floor, since - self._slice_rows(box)), time.monotonic()
        arrivals = [NO_ROWS] * len(box.composite.legs)
        arrivals[0] = box.arrival(0, low, since, box.mark.admitted[0])
        if self._combine(box, arrivals, since - low):
            box.change(since=low if low > floor else 0)
            self._costs.note_slice(box.id, since - low, time.monotonic() - started)
            self._by_tasks.discard(box.id)
        return True

    def _spark_rows(self, box: CompositeBox) -> int:
        """Return how many of a box's remaining rows of leg 0 Spark's next join takes; 0 unless it
        is expected to be faster, equalities alone connect the rows, and `joins/<id>` has exactly
        those that the admitted predicates match."""
        mark, settings = box.mark, self.settings
        if any(box.measured.unadmitted) or not all(edge.is_hashed for edge in box.edges):
            return 0
        if box.id in self._by_tasks:
            return 0
        rows = (mark.since or 0) - box.floor(0)
        other_rows = sum(mark.highs[leg] - box.floor(leg) for leg in range(1, len(mark.highs)))
        max_seconds = settings.grace / _GRACE_SHARES
        slice_rows = self._costs.slice_rows(other_rows, settings.spark_slice_rows, max_seconds)
        factor = settings.spark_join_factor
        return (
            slice_rows
            if self._costs.prefer_spark(box.id, rows, other_rows, slice_rows, factor)
            else 0
        )

    def _start(self, box: CompositeBox, low: int, high: int) -> None:
        """Start the join of rows of leg 0 with all other legs in Spark, beside the loop."""
        mark = box.mark
        first = box.arrival(0, low, high, mark.admitted[0])
        other_arrivals = (
            box.arrival(leg, box.floor(leg), mark.highs[leg], mark.admitted[leg])
            for leg in range(1, len(mark.highs))
        )
        join = SparkJoin(job_of(box.ledger), box.work, (first, *other_arrivals))
        self._bulk = BulkJoin.start(self.spark, box, join, self.settings.slice_rows)

    def _take(self, box: CompositeBox, bulk: BulkJoin) -> bool:
        """Take the newest part of Spark's join into the box, with the combinations of its rows and
        of rows that have arrived since the join was started. If the join has failed, do a slice by
        tasks instead. Return True."""
        # After a failure its drafts may be gone, so it is given up unless this succeeds.
        self._bulk = None
        try:
            drafts = bulk.job.result()
        except (CorruptStore, DataFileGone):
            raise
        except Exception:
            # Tasks that join the rows instead find out whether a predicate is the cause.
            log.exception("Spark's join of composite %d failed; tasks do it", box.id)
            self._by_tasks.add(box.id)
            return self._enlarge(box)
        if bulk.is_untouched:
            self._costs.note_spark(bulk.rows, bulk.job.duration)
        low, since = bulk.part_low, bulk.basis.since
        arrivals = [NO_ROWS] * len(box.composite.legs)
        arrivals[0] = box.arrival(0, low, since, box.mark.admitted[0])
        # So many that a unit with too many candidates for one task has too many per row.
        units = box.combining(box.work, arrivals, 1 + (since - low) // _MIN_SLICE_ROWS)
        later = bulk.later(box.mark.highs)
        units = [replace(unit, first=None, later=later) for unit in units]
        too_many = any(outcome.too_many for part in drafts.values() for outcome in part)
        if not too_many:
            part = drafts.get(low, [])
            summary = find_combinations(box.ledger, self.spark, {box.id: box}, units, part)[box.id]
            too_many = summary.too_many
        if too_many:
            self._suspend(box)
        elif self._count(box, summary.count):
            box.change(since=low if low > box.floor(0) else 0)
            if low > bulk.low:
                bulk.move(low)
                self._bulk = bulk
        return True

    # ---- more predicates

    def _admit(self, box: CompositeBox, new: LegPredicates, ready: LegPredicates) -> bool:
        """Write the next rows of local predicates that are not admitted yet to `joins/<id>`. The
        epoch of the last of them names the predicates."""
        mark, pass_ = box.mark, self._admissions.get(box.id)
        assert mark.since is not None
        # Start over if the box is another one, or a predicate of the pass lost its coverage.
        if pass_ is None or pass_.since != mark.since or any(without(pass_.predicates, ready)):
            pass_ = self._admissions[box.id] = AdmissionPass(
                new, mark.since, [mark.since, *(0 for _ in mark.highs[1:])]
            )
            # Noted before rows enter: those of a pass that is given up remain in `joins/<id>`.
            box.change(box.measured.with_unadmitted(new))
        remaining_rows, units = self._slice_rows(box), list[EnterUnit]()
        for leg, predicates in enumerate(pass_.predicates):
            low, high = max(pass_.reached[leg], box.floor(leg)), mark.highs[leg]
            last = min(low + remaining_rows, high) if predicates else high
            if predicates:
                remaining_rows -= max(0, last - low)
                units += self._entering(box, leg, low, last, predicates, again=True)
            pass_.reached[leg] = max(last, low)
        self._enter(box, units)
        if all(reached >= high for reached, high in zip(pass_.reached, mark.highs, strict=True)):
            del self._admissions[box.id]
            pairs = zip(mark.admitted, pass_.predicates, strict=True)
            admitted = tuple(tuple(sorted({*old, *more})) for old, more in pairs)
            box.change(box.measured.admitting(admitted), admitted=admitted)
        return True

    def _complete(self, box: CompositeBox, wanting: CompositePredicates, pending: Int64s) -> bool:
        """Find the next combinations of predicates over the composite for which not all are stored.
        The epoch of the last of them names the predicates.

        Rows that arrive meanwhile are joined for these predicates, too. So combinations may be
        found again: what is stored is left out.
        """
        mark, pass_ = box.mark, self._completions.get(box.id)
        assert mark.since is not None
        if pass_ is None or pass_.since != mark.since or not pass_.is_among(pending):
            lows = [mark.since, *(0 for _ in mark.highs[1:])]
            legs = wanting.by_leg(box, pending)
            pass_ = CompletionPass(pending, legs, mark.since, lows, mark.highs)
            self._completions[box.id] = pass_
        ranges = wanting.ranges(pass_.predicates)
        for leg, predicates in enumerate(pass_.legs):
            low, high = max(pass_.reached[leg], box.floor(leg)), pass_.highs[leg]
            if not len(predicates) or low >= high:
                continue
            last = min(low + self._slice_rows(box), high)
            arrivals = [NO_ROWS] * len(mark.highs)
            local = wanting.local(predicates, box.composite.legs[leg])
            arrivals[leg] = box.arrival(leg, low, last, local)
            if self._combine(box, arrivals, last - low, ranges):
                pass_.reached[leg] = last
            return True
        del self._completions[box.id]
        stored = np.setdiff1d(wanting.ids, wanting.pending(mark))
        box.change(predicates=wanting.ranges(np.union1d(stored, pass_.predicates)))
        return True

    # ---- slices

    def _combine(
        self,
        box: CompositeBox,
        arrivals: Sequence[Arrival],
        rows: int,
        missing: Ranges | None = None,
    ) -> bool:
        """Join the rows of a slice; if `missing` is given, they are stored already, and only
        combinations of predicates in these ranges count. Return False if there are too many
        candidates: the next slice is smaller then, or the composite is suspended."""
        tasks = min(self._parallelism, 1 + rows // TASK_ROWS)
        if missing is None:
            units = box.combining(box.work, arrivals, tasks)
        else:
            stored = Missing(missing, tuple(box.ledger.files(stem_name(box.id))))
            units = [
                replace(unit, missing=stored)
                for unit in box.combining(box.work, arrivals, tasks, entered=())
            ]
        summary = find_combinations(box.ledger, self.spark, {box.id: box}, units)[box.id]
        if summary.too_many:
            if rows <= _MIN_SLICE_ROWS:
                self._suspend(box)
            self._rows[box.id] = rows // 4
            return False
        return self._count(box, summary.count)

    def _count(self, box: CompositeBox, count: int) -> bool:
        """Count new combinations. Return False if there are too many per row; the composite is
        suspended then."""
        box.change(high=box.mark.high + count)
        # Not by their ids: retention removes combinations, and a reset box finds them again.
        stored = sum(file.rows for file in box.ledger.files(stem_name(box.id)))
        inside = sum(file.rows for file in box.work.joins)
        if stored > box.max_combinations * inside:
            self._suspend(box)
        return not box.mark.suspended

    def _suspend(self, box: CompositeBox) -> None:
        box.suspend()
        self._admissions.pop(box.id, None)
        self._completions.pop(box.id, None)

    @property
    def _parallelism(self) -> int:
        return int(self.spark.sparkContext.defaultParallelism)

    def _slice_rows(self, box: CompositeBox) -> int:
        return self._rows.setdefault(box.id, self.settings.slice_rows)

    def _resize(self, composite_id: int, took: float) -> None:
        factor = min(2.0, max(0.5, self.settings.slice_seconds / max(took, 0.001)))
        least = min(_MIN_SLICE_ROWS, self.settings.slice_rows)
        rows = self._rows.get(composite_id, self.settings.slice_rows)
        self._rows[composite_id] = max(least, int(rows * factor))


def _ready(box: CompositeBox, local: LegPredicates) -> LegPredicates:
    """Return the predicates of each leg that were matched with all rows of their stream."""
    ledger = box.ledger
    return tuple(
        covered(predicates, ledger.coverage.cohorts(stream), ledger.floor(stream))
        for stream, predicates in zip(box.composite.legs, local, strict=True)
    )
