"""Boxes: the driver's side of composites that steps and slices share.

A composite's combinations are complete within a box of row ids. The rows in `joins/<id>` decide:
every combination of rows there is stored, exactly once, in whatever order they arrived. So a step,
a larger box and another admitted predicate are one kind of work: rows arrive at legs and are joined
with the rows that are stored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from pyspark.sql import SparkSession

from psoup.engine.composites.admitting import piece_files
from psoup.engine.composites.combining import JoinPlan
from psoup.engine.composites.legs import LegPredicates
from psoup.engine.composites.lookup.edges import KeyEdge, key_edges
from psoup.engine.composites.order import Measured, best_orders
from psoup.engine.composites.units import (
    Arrival,
    CombineUnit,
    CompositeLeg,
    CompositeWork,
    EnterUnit,
    StoreUnit,
)
from psoup.engine.composites.worker import combine, store
from psoup.engine.ledger import Ledger, joins_name, stem_name, stream_of
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.jobs import (
    CompositeOutcome,
    Outcome,
    TaskFailed,
    Written,
    by_table,
    job_of,
    run_tasks,
)
from psoup.store.composite_marks import CompositeMark
from psoup.store.delta.files import DataFile
from psoup.store.state.composites import CompositeState
from psoup.store.state.quarantine import COMPOSITE, MACHINE_ERRORS, QuarantineEntry, reason_of
from querystem.composites import Shape
from querystem.expressions import TRUE, predicate_key

log = logging.getLogger(__name__)

# Rows of a leg that one task writes to `joins/<id>`: at least, if there are as many, and at most.
_ENTER_ROWS = 1 << 14
_MAX_ENTER_ROWS = 1 << 20

_TRUE_KEY = predicate_key(TRUE)


@lru_cache(maxsize=1024)
def edges_of(legs: tuple[int, ...], factors: str, span: int | None) -> tuple[KeyEdge, ...]:
    """Return the edges of a composite, given its identity."""
    return key_edges(Shape.read(legs, factors, span))


def composites_to_keep(ledger: Ledger) -> list[CompositeState]:
    """Return the composites, without those in quarantine."""
    entries = ledger.state.quarantine.entries
    set_aside = {entry.id for entry in entries if entry.kind == COMPOSITE}
    composites = ledger.state.composites.values()
    return [composite for composite in composites if composite.id not in set_aside]


def local_predicates(ledger: Ledger) -> dict[int, LegPredicates]:
    """Return the local predicates of registrations for each leg of every composite, by composite
    id, without those in quarantine."""
    legs = ledger.joined_legs
    composites = ledger.state.composites.values()
    return {composite.id: legs.local(composite.id, composite.legs) for composite in composites}


class CompositeBox:
    """One composite as the ledger has it now, and the work over it. The constructor raises
    TaskFailed if its form can't be read."""

    def __init__(self, ledger: Ledger, composite: CompositeState, settings: EngineSettings) -> None:
        self.ledger = ledger
        self.composite = composite
        self.settings = settings
        try:
            self.edges = edges_of(*composite.identity)
        except MACHINE_ERRORS:
            raise
        except Exception as error:
            # As a failed task, so that the engine sets the composite aside.
            reason = reason_of(error)
            cause = QuarantineEntry(COMPOSITE, composite.id, composite.id, reason)
            raise TaskFailed(reason, [cause]) from error
        self.measured = Measured.read(self.mark.order)

    @property
    def id(self) -> int:
        return self.composite.id

    @property
    def mark(self) -> CompositeMark:
        return self.ledger.composites[self.id]

    def change(self, measured: Measured | None = None, **parts: object) -> None:
        """Change the composite's mark for the next epoch."""
        self.measured = measured or self.measured
        parts["order"] = self.measured.text
        self.ledger.composites[self.id] = replace(self.mark, **parts)  # type: ignore[arg-type]

    def reset(self) -> None:
        """Forget all combinations; the box starts empty. No id is used twice."""
        self.measured = Measured(rests=self.measured.rests)
        forget_composite(self.ledger, self.id)

    def suspend(self) -> None:
        """Stop maintaining the composite, and drop its combinations, which are of no use then."""
        log.warning("composite %d has too many combinations; it is suspended", self.id)
        again = self.mark.suspended
        self.reset()
        self.change(self.measured.resting(self.ledger.state.clock, again), suspended=True)

    @property
    def is_range(self) -> bool:
        """Whether an inequality connects legs."""
        return any(edge.edge.is_range for edge in self.edges)

    @property
    def max_combinations(self) -> int:
        """The combinations for each row with which the composite is kept up."""
        settings = self.settings
        return settings.max_range_combinations if self.is_range else settings.max_combinations

    @property
    def is_resting(self) -> bool:
        """Whether the composite is suspended, and not to be tried again yet."""
        return self.mark.suspended and not self.measured.is_rested(self.ledger.state.clock)

    def high(self, leg: int) -> int:
        """Return the next row id of a leg's stream."""
        return self.ledger.high(self.composite.legs[leg])

    def floor(self, leg: int) -> int:
        """Return the least row id that a leg's stem has."""
        return self.ledger.floor(self.composite.legs[leg])

    @property
    def work(self) -> CompositeWork:
        """The part that all units over this composite share, as the ledger is now."""
        legs = tuple(
            CompositeLeg(stream, tuple(self.ledger.files(stem_name(stream))))
            for stream in self.composite.legs
        )
        return self._work(legs)

    @property
    def step_work(self) -> CompositeWork:
        """The part that all units over the rows of a step share. It includes the ends of rows that
        earlier rows of the box have caused."""
        legs = tuple(
            CompositeLeg(stream, tuple(self.ledger.files(stem_name(stream))), *self._ends(number))
            for number, stream in enumerate(self.composite.legs)
        )
        return self._work(legs)

    def _ends(self, leg: int) -> tuple[tuple[DataFile, ...], int]:
        """Return the files with the ends of a leg's rows, and the row id below which the rows that
        caused them count."""
        stream = self.composite.legs[leg]
        if not self.ledger.state.streams[stream].schema.key:
            return (), 0
        files = self.ledger.files("closures")
        stream_files = (file for file in files if file.partition["stream_id"] == str(stream))
        return tuple(stream_files), self.mark.highs[leg]

    def _work(self, legs: tuple[CompositeLeg, ...]) -> CompositeWork:
        orders = self.measured.orders or best_orders(self.edges)
        plan = JoinPlan(len(legs), self.edges, self.composite.span, orders)
        joins = tuple(self.ledger.files(joins_name(self.id)))
        limits = self.settings.worker_bytes, self.settings.max_candidates
        return CompositeWork(self.id, plan, legs, joins, self._wants_all, *limits)

    @property
    def _wants_all(self) -> bool:
        """Whether a predicate matches all combinations."""
        state = self.ledger.state
        id_ = state.predicates.find(self.id, _TRUE_KEY)
        return id_ is not None and id_ not in state.quarantine.predicates

    def arrival(
        self, leg: int, low: int, high: int, predicates: Sequence[int], again: bool = False
    ) -> Arrival:
        """Return the arrival of the rows `[low, high)` of a leg that the predicates match."""
        stream = self.composite.legs[leg]
        files = piece_files(self.ledger.files("matches"), stream, predicates, low, high)
        return Arrival(low, high, tuple(predicates), files, again)

    def combining(
        self,
        work: CompositeWork,
        arrivals: Sequence[Arrival],
        count: int,
        entered: tuple[DataFile, ...] | None = None,
    ) -> list[CombineUnit]:
        """Return `count` units for the rows that arrive at the legs, cut by row ids, so that a join
        key with many rows is spread over all of them. A single unit gets the id of its first
        combination. Several units of rows of several legs need the files that have `entered`."""
        legs = sum(arrival.lo < arrival.hi for arrival in arrivals)
        assert count == 1 or legs <= 1 or entered is not None
        # One of several units can't know how many ids the others need, so these write drafts.
        first = self.mark.high if count == 1 and entered is None else None
        cuts = [cut(arrival.lo, arrival.hi, count) for arrival in arrivals]
        return [
            CombineUnit(work, tuple(map(_narrowed, arrivals, ranges)), first, entered)
            for ranges in zip(*cuts, strict=True)
        ]

    def entering(
        self, work: CompositeWork, arrivals: Sequence[Arrival], parallelism: int
    ) -> list[EnterUnit]:
        """Return units that write the rows that arrive at the legs to `joins/<id>`: few, so that
        their files are large."""
        units = []
        for leg, arrival in enumerate(arrivals):
            rows = arrival.hi - arrival.lo
            count = max(min(parallelism, rows // _ENTER_ROWS), -(-rows // _MAX_ENTER_ROWS))
            ranges = cut(arrival.lo, arrival.hi, count) if rows else []
            units += [EnterUnit(work, leg, _narrowed(arrival, ids)) for ids in ranges]
        return units


def forget_composite(ledger: Ledger, composite_id: int) -> None:
    """Drop the combinations of a composite, which starts again. No id is used twice."""
    names = (stem_name(composite_id), joins_name(composite_id))
    removed = {name: ((), files) for name in names if (files := ledger.files(name))}
    ledger.commit_all(removed, operation="FORGET")
    mark = ledger.composites[composite_id]
    ledger.composites[composite_id] = CompositeMark.without_box(len(mark.highs), mark.high)


def _narrowed(arrival: Arrival, ids: tuple[int, int]) -> Arrival:
    """Return the part of an arrival that has these row ids."""
    low, high = ids
    pieces = (file for file in arrival.pieces if file.low["lo"] < high and file.high["hi"] > low)
    return replace(arrival, lo=low, hi=high, pieces=tuple(pieces))


def cut(low: int, high: int, parts: int) -> list[tuple[int, int]]:
    """Return a range cut into parts of about equal size."""
    edges = [low + (high - low) * part // parts for part in range(parts + 1)]
    return list(zip(edges[:-1], edges[1:], strict=True))


@dataclass(frozen=True, slots=True)
class JoinSummary:
    """The outcome of units over a composite: the number of combinations, and the fan-outs. If there
    were `too_many`, nothing was stored."""

    count: int
    fanouts: tuple[tuple[int, int, int], ...]
    too_many: bool


def find_combinations(
    ledger: Ledger,
    spark: SparkSession,
    boxes: Mapping[int, CompositeBox],
    units: list[CombineUnit],
    earlier: Iterable[Outcome] = (),
) -> dict[int, JoinSummary]:
    """Run units over composites, give their combinations ids and commit what they wrote; likewise
    what `earlier` jobs wrote. Return the summary of each composite, by id."""
    outcomes = [*earlier, *run_tasks(spark, job_of(ledger), combine, units)]
    summaries = {
        composite_id: summarise(
            [
                outcome
                for outcome in _composite_outcomes(outcomes)
                if outcome.composite_id == composite_id
            ]
        )
        for composite_id in {outcome.composite_id for outcome in _composite_outcomes(outcomes)}
    }
    # Files of composites with too many combinations stay uncommitted, and `Vacuum` deletes them.
    good = {composite_id for composite_id, summary in summaries.items() if not summary.too_many}
    outcomes = [outcome for outcome in outcomes if _is_of(outcome, good)]
    outcomes += store_drafts(ledger, spark, boxes, _composite_outcomes(outcomes))
    written = {name: (files, ()) for name, files in by_table(outcomes).items()}
    ledger.commit_all(written, operation="COMBINE")
    return summaries


def store_drafts(
    ledger: Ledger,
    spark: SparkSession,
    boxes: Mapping[int, CompositeBox],
    outcomes: Iterable[CompositeOutcome],
) -> list[Outcome]:
    """Give the combinations in drafts their ids, in a separate job; return its outcomes."""
    drafts = [outcome for outcome in outcomes if outcome.draft]
    ids = {outcome.composite_id for outcome in drafts}
    highs = {composite_id: boxes[composite_id].mark.high for composite_id in ids}
    works = {composite_id: boxes[composite_id].work for composite_id in ids}
    units = []
    # Drafts of one composite get consecutive ranges of ids.
    for outcome in drafts:
        units.append(
            StoreUnit(works[outcome.composite_id], outcome.draft, highs[outcome.composite_id])
        )
        highs[outcome.composite_id] += outcome.count
    return run_tasks(spark, job_of(ledger), store, units)


def summarise(outcomes: Sequence[CompositeOutcome]) -> JoinSummary:
    """Return the summary of several tasks over one composite."""
    fanouts: dict[int, tuple[int, int]] = {}
    for outcome in outcomes:
        for side, probes, combinations in outcome.fanouts:
            before = fanouts.get(side, (0, 0))
            fanouts[side] = before[0] + probes, before[1] + combinations
    return JoinSummary(
        sum(outcome.count for outcome in outcomes),
        tuple((side, *counts) for side, counts in sorted(fanouts.items())),
        any(outcome.too_many for outcome in outcomes),
    )


def _composite_outcomes(outcomes: Iterable[Outcome]) -> list[CompositeOutcome]:
    return [outcome for outcome in outcomes if isinstance(outcome, CompositeOutcome)]


def _is_of(outcome: Outcome, composites: set[int]) -> bool:
    """Return True if an outcome is of a task over one of these composites."""
    match outcome:
        case CompositeOutcome(composite_id):
            return composite_id in composites
        case Written("matches", file):
            return int(file.partition["stream_id"]) in composites
        case Written(table, _):
            return stream_of(table) in composites
    return True
