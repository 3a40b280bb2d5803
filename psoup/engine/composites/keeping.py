"""Maintenance of composites in a step: its rows are joined with the other legs, in its epoch."""

from __future__ import annotations

from pyspark.sql import SparkSession

from psoup.engine.composites.boxes import (
    CompositeBox,
    JoinSummary,
    LegPredicates,
    composites_to_keep,
    find_combinations,
    local_predicates,
)
from psoup.engine.composites.units import CombineUnit
from psoup.engine.ledger import Ledger
from psoup.engine.settings import EngineSettings

# Rows of a step that are joined together. They are so few that a unit with too many candidates for
# one task has too many per row.
_UNIT_ROWS = 1 << 15


def keep_up(ledger: Ledger, spark: SparkSession, settings: EngineSettings) -> None:
    """Extend the boxes of all composites to the rows that the ledger has.

    A local predicate that no registration of a composite has any more is no longer admitted: new
    rows are not matched with it.
    """
    if not ledger.composites:
        return
    local = local_predicates(ledger)
    boxes: dict[int, CompositeBox] = {}
    units: list[CombineUnit] = []
    for composite in composites_to_keep(ledger):
        box = CompositeBox(ledger, composite, settings)
        _drop_unused(box, local[composite.id])
        if arrived := _arrived(box):
            boxes[box.id] = box
            units += arrived
    if units:
        highs = {box.id: tuple(box.high(leg) for leg in _legs(box)) for box in boxes.values()}
        for composite_id, summary in find_combinations(ledger, spark, boxes, units).items():
            _note(boxes[composite_id], highs[composite_id], summary)


def _drop_unused(box: CompositeBox, local: LegPredicates) -> None:
    """Remove the admitted predicates that no registration has any more."""
    admitted = tuple(
        tuple(id_ for id_ in ids if id_ in set(local_ids))
        for ids, local_ids in zip(box.mark.admitted, local, strict=True)
    )
    if admitted != box.mark.admitted:
        box.change(admitted=admitted)


def _arrived(box: CompositeBox) -> list[CombineUnit]:
    """Return the units of the rows past the box; empty if there are no such rows, or no box."""
    mark = box.mark
    new_rows = sum(box.high(leg) - mark.highs[leg] for leg in _legs(box))
    if mark.since is None or mark.suspended or not new_rows:
        return []
    arrivals = [
        box.arrival(leg, mark.highs[leg], box.high(leg), mark.admitted[leg]) for leg in _legs(box)
    ]
    return box.combining(box.step_work, arrivals, 1 + new_rows // _UNIT_ROWS)


def _note(box: CompositeBox, highs: tuple[int, ...], summary: JoinSummary) -> None:
    """Extend a box to the rows that have arrived, or suspend a composite that has too many
    combinations per row."""
    new_rows = sum(highs) - sum(box.mark.highs)
    if box.is_range:
        # Only admitted rows are looked up.
        new_rows = min(new_rows, sum(probes for _, probes, _ in summary.fanouts))
    measured = box.measured.after(box.edges, new_rows, summary.count, summary.fanouts)
    if summary.too_many or measured.explodes(box.max_combinations):
        box.suspend()
    else:
        box.change(measured, high=box.mark.high + summary.count, highs=highs)


def _legs(box: CompositeBox) -> range:
    return range(len(box.composite.legs))
