"""Boxes: the driver's side of composites, as far as steps and slices share it.

A composite's combinations are complete within a box of row ids. What is in `joins/<id>` decides:
of the rows there every combination is stored, exactly once, whoever put them in and in whatever
order. So a step, a larger box and another admitted predicate are one kind of work: rows arrive at
legs and meet what is there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from pyspark.sql import SparkSession

from psoup.engine.composites.admitting import piece_files
from psoup.engine.composites.combining import JoinPlan
from psoup.engine.composites.keys import KeyEdge, key_edges
from psoup.engine.composites.order import Measured, best_orders
from psoup.engine.composites.units import (
    Arrival,
    CombineUnit,
    CompositeLeg,
    CompositeWork,
    StoreUnit,
)
from psoup.engine.composites.worker import combine, store
from psoup.engine.jobs import (
    CompositeOutcome,
    Outcome,
    SparkJob,
    TaskFailed,
    Written,
    by_table,
    job_of,
    run_tasks,
)
from psoup.engine.ledger import Ledger, joins_name, stem_name, stream_of
from psoup.engine.settings import EngineSettings
from psoup.store.composite_marks import CompositeMark
from psoup.store.delta.files import DataFile
from psoup.store.state.composites import CompositeState, Identity
from psoup.store.state.quarantine import COMPOSITE, reason_of
from querystem.composites import Shape

log = logging.getLogger(__name__)

# The local predicates of each leg of a composite, ascending.
LegPredicates = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=1024)
def edges_of(legs: tuple[int, ...], factors: str, span: int | None) -> tuple[KeyEdge, ...]:
    """The edges of a composite, from what names it."""
    return key_edges(Shape.read(legs, factors, span))


@dataclass(frozen=True, slots=True)
class CompositeForm:
    """What names a composite, to be read in another process."""

    composite_id: int
    identity: Identity


def read_form(job: SparkJob, form: CompositeForm) -> list[Outcome]:
    """Read the edges of a composite; raise whatever that raises."""
    edges_of(*form.identity)
    return []


def composites_to_keep(ledger: Ledger) -> list[CompositeState]:
    """Return the composites, without those that are set aside."""
    set_aside = {one.id for one in ledger.state.quarantine.entries if one.kind == COMPOSITE}
    return [one for one in ledger.state.composites.values() if one.id not in set_aside]


def wanted_predicates(ledger: Ledger) -> dict[int, LegPredicates]:
    """The local predicates that registrations have for each leg of every composite, without those
    that are set aside.

    Legs that read one stream share theirs: which leg of a query is which of the composite's is not
    asked, and rows that are in without need do no harm.
    """
    registrations, _ = ledger.state.columns
    composites, streams, predicates = registrations.composed_legs()
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    rows = np.unique(np.stack([composites, streams, predicates]), axis=1)
    rows = rows[:, ~np.isin(rows[2], list(ledger.state.quarantine.predicates))]
    places = np.flatnonzero(np.diff(rows[:2], axis=1).any(axis=0)) + 1
    for part in np.split(rows, places, axis=1):
        if part.shape[1]:
            found[int(part[0, 0]), int(part[1, 0])] = tuple(part[2].tolist())
    return {
        one.id: tuple(found.get((one.id, stream), ()) for stream in one.legs)
        for one in ledger.state.composites.values()
    }


class CompositeBox:
    """One composite as the ledger has it now, and what comes of work over it. Making one raises
    TaskFailed if its form can't be read."""

    def __init__(self, ledger: Ledger, composite: CompositeState, settings: EngineSettings) -> None:
        self.ledger = ledger
        self.composite = composite
        self.settings = settings
        try:
            self.edges = edges_of(*composite.identity)
        except Exception as error:
            form = CompositeForm(composite.id, composite.identity)
            raise TaskFailed(reason_of(error), read_form, job_of(ledger), form) from error
        self.measured = Measured.read(self.mark.order)

    @property
    def id(self) -> int:
        return self.composite.id

    @property
    def mark(self) -> CompositeMark:
        return self.ledger.composites[self.id]

    def change(self, measured: Measured | None = None, **parts: object) -> None:
        """Changes what the next epoch says of the composite."""
        self.measured = measured or self.measured
        parts["order"] = self.measured.text
        self.ledger.composites[self.id] = replace(self.mark, **parts)  # type: ignore[arg-type]

    def reset(self) -> None:
        """Forgets all combinations; the box is begun anew. No id is given twice."""
        self.measured = Measured()
        forget_composite(self.ledger, self.id)

    def suspend(self) -> None:
        """Keeps the composite up no more. What was found of it is of no use then, and dropped."""
        log.warning("composite %d has too many combinations; it is suspended", self.id)
        self.reset()
        self.change(suspended=True)

    def high(self, leg: int) -> int:
        """The next row id of a leg's stream."""
        return self.ledger.high(self.composite.legs[leg])

    def floor(self, leg: int) -> int:
        """The least row id that a leg's stem has."""
        return self.ledger.floor(self.composite.legs[leg])

    @property
    def work(self) -> CompositeWork:
        """The things that units over this composite have in common, as things are now."""
        legs = tuple(
            CompositeLeg(stream, tuple(self.ledger.files(stem_name(stream))))
            for stream in self.composite.legs
        )
        return self._work(legs)

    @property
    def step_work(self) -> CompositeWork:
        """Tells what units over the rows of a step have in common. Every row that was in the box
        before is known to them, and with it the ends that it has caused."""
        legs = tuple(
            CompositeLeg(stream, tuple(self.ledger.files(stem_name(stream))), *self._ends(number))
            for number, stream in enumerate(self.composite.legs)
        )
        return self._work(legs)

    def _ends(self, leg: int) -> tuple[tuple[DataFile, ...], int]:
        """The files with the ends of a leg's rows, and the row id up to which they count."""
        stream = self.composite.legs[leg]
        if not self.ledger.state.streams[stream].schema.key:
            return (), 0
        files = self.ledger.files("closures")
        own = (file for file in files if file.partition["stream_id"] == str(stream))
        return tuple(own), self.mark.highs[leg]

    def _work(self, legs: tuple[CompositeLeg, ...]) -> CompositeWork:
        orders = self.measured.orders or best_orders(self.edges)
        plan = JoinPlan(len(legs), self.edges, self.composite.span, orders)
        joins = tuple(self.ledger.files(joins_name(self.id)))
        limits = self.settings.worker_bytes, self.settings.max_candidates
        return CompositeWork(self.id, plan, legs, joins, *limits)

    def arrival(
        self, leg: int, low: int, high: int, predicates: Sequence[int], again: bool = False
    ) -> Arrival:
        """The arrival of the rows `[low, high)` of a leg that some predicates match."""
        stream = self.composite.legs[leg]
        files = piece_files(self.ledger.files("matches"), stream, predicates, low, high)
        return Arrival(low, high, tuple(predicates), files, again)

    def combining(
        self, work: CompositeWork, arrivals: Sequence[Arrival], count: int
    ) -> list[CombineUnit]:
        """The rows that arrive at the legs as so many units: a key that many rows have is shared by
        all of them.
        A single one knows the id of its first combination."""
        first = self.mark.high if count == 1 else None
        own = [_cut(one.lo, one.hi, count) for one in arrivals]
        return [
            CombineUnit(work, tuple(arrivals), tuple(ranges[number] for ranges in own), first)
            for number in range(count)
        ]


def forget_composite(ledger: Ledger, composite_id: int) -> None:
    """Drops what was found of a composite, which begins anew. No id is given twice."""
    names = (stem_name(composite_id), joins_name(composite_id))
    gone = {name: ((), files) for name in names if (files := ledger.files(name))}
    ledger.commit_all(gone, operation="FORGET")
    mark = ledger.composites[composite_id]
    ledger.composites[composite_id] = CompositeMark.without_box(len(mark.highs), mark.high)


def _cut(low: int, high: int, parts: int) -> list[tuple[int, int]]:
    """Cuts a range into parts of about one size."""
    edges = [low + (high - low) * part // parts for part in range(parts + 1)]
    return list(zip(edges[:-1], edges[1:], strict=True))


@dataclass(frozen=True, slots=True)
class Found:
    """The finds of units over a composite: how many combinations, and the fan-outs. Nothing of
    it counts where there were `too_many`."""

    count: int
    fanouts: tuple[tuple[int, int, int], ...]
    too_many: bool


def find_combinations(
    ledger: Ledger, spark: SparkSession, boxes: Mapping[int, CompositeBox], units: list[CombineUnit]
) -> dict[int, Found]:
    """Runs units over composites, gives their combinations ids and commits what they wrote."""
    outcomes = run_tasks(spark, job_of(ledger), combine, units)
    found = {
        composite_id: summary([one for one in _told(outcomes) if one.composite_id == composite_id])
        for composite_id in {unit.work.id for unit in units}
    }
    good = {composite_id for composite_id, one in found.items() if not one.too_many}
    outcomes = [one for one in outcomes if _is_of(one, good)]
    outcomes += store_drafts(ledger, spark, boxes, _told(outcomes))
    written = {name: (files, ()) for name, files in by_table(outcomes).items()}
    ledger.commit_all(written, operation="COMBINE")
    return found


def store_drafts(
    ledger: Ledger,
    spark: SparkSession,
    boxes: Mapping[int, CompositeBox],
    told: Iterable[CompositeOutcome],
) -> list[Outcome]:
    """Gives the combinations in drafts their ids, in a job of its own."""
    drafts = [one for one in told if one.draft]
    ids = {one.composite_id for one in drafts}
    highs = {composite_id: boxes[composite_id].mark.high for composite_id in ids}
    works = {composite_id: boxes[composite_id].work for composite_id in ids}
    units = []
    for one in drafts:
        units.append(StoreUnit(works[one.composite_id], one.draft, highs[one.composite_id]))
        highs[one.composite_id] += one.count
    return run_tasks(spark, job_of(ledger), store, units)


def summary(told: Sequence[CompositeOutcome]) -> Found:
    """The finds of several tasks over one composite, put together."""
    fanouts: dict[int, tuple[int, int]] = {}
    for one in told:
        for side, probes, kept in one.fanouts:
            before = fanouts.get(side, (0, 0))
            fanouts[side] = before[0] + probes, before[1] + kept
    return Found(
        sum(one.count for one in told),
        tuple((side, *counts) for side, counts in sorted(fanouts.items())),
        any(one.too_many for one in told),
    )


def _told(outcomes: Iterable[Outcome]) -> list[CompositeOutcome]:
    return [outcome for outcome in outcomes if isinstance(outcome, CompositeOutcome)]


def _is_of(outcome: Outcome, composites: set[int]) -> bool:
    """Tells whether an outcome is of a task over one of some composites."""
    match outcome:
        case CompositeOutcome(composite_id):
            return composite_id in composites
        case Written("matches", file):
            return int(file.partition["stream_id"]) in composites
        case Written(table, _):
            return stream_of(table) in composites
    return True
