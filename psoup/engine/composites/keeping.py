"""Keeping up: the rows of a step meet those of the other legs, in the step's own epoch."""

from __future__ import annotations

from pyspark.sql import SparkSession

from psoup.engine.composites.boxes import (
    CompositeBox,
    Found,
    LegPredicates,
    composites_to_keep,
    find_combinations,
    wanted_predicates,
)
from psoup.engine.composites.units import CombineUnit
from psoup.engine.ledger import Ledger
from psoup.engine.settings import EngineSettings

# Rows of a step that are combined together: so few that a unit with too many candidates for one
# task has too many for each row.
_UNIT_ROWS = 1 << 15


def keep_up(ledger: Ledger, spark: SparkSession, settings: EngineSettings) -> None:
    """Brings the boxes of all composites to the rows that the ledger has.

    A local predicate that no registration of a composite has any more is admitted no more: rows
    are not matched with it from here on.
    """
    if not ledger.composites:
        return
    wanted = wanted_predicates(ledger)
    boxes: dict[int, CompositeBox] = {}
    units: list[CombineUnit] = []
    for composite in composites_to_keep(ledger):
        box = CompositeBox(ledger, composite, settings)
        _let_go(box, wanted[composite.id])
        if arrived := _arrived(box):
            boxes[box.id] = box
            units += arrived
    if units:
        highs = {box.id: tuple(box.high(leg) for leg in _legs(box)) for box in boxes.values()}
        for composite_id, found in find_combinations(ledger, spark, boxes, units).items():
            _note(boxes[composite_id], highs[composite_id], found)


def _let_go(box: CompositeBox, wanted: LegPredicates) -> None:
    """Takes out of the admitted predicates those that nobody wants any more."""
    admitted = tuple(
        tuple(one for one in own if one in set(still))
        for own, still in zip(box.mark.admitted, wanted, strict=True)
    )
    if admitted != box.mark.admitted:
        box.change(admitted=admitted)


def _arrived(box: CompositeBox) -> list[CombineUnit]:
    """The units of the rows that are past the box; none where there are none, or no box."""
    mark = box.mark
    news = sum(box.high(leg) - mark.highs[leg] for leg in _legs(box))
    if mark.since is None or mark.suspended or not news:
        return []
    arrivals = [
        box.arrival(leg, mark.highs[leg], box.high(leg), mark.admitted[leg]) for leg in _legs(box)
    ]
    return box.combining(box.step_work, arrivals, 1 + news // _UNIT_ROWS)


def _note(box: CompositeBox, highs: tuple[int, ...], found: Found) -> None:
    """Moves a box to the rows that have come, or suspends a composite that has too many
    combinations for each of them."""
    news = sum(highs) - sum(box.mark.highs)
    measured = box.measured.after(box.edges, news, found.count, found.fanouts)
    if found.too_many or measured.explodes(box.settings.max_combinations):
        box.suspend()
    else:
        box.change(measured, high=box.mark.high + found.count, highs=highs)


def _legs(box: CompositeBox) -> range:
    return range(len(box.composite.legs))
