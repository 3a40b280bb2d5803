"""Maintenance of composites in a step: its rows are joined with the other legs, in its epoch."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from psoup.engine.composites.boxes import (
    CompositeBox,
    JoinSummary,
    LegPredicates,
    composites_to_keep,
    find_combinations,
    local_predicates,
)
from psoup.engine.composites.units import Arrival, CombineUnit
from psoup.engine.composites.worker import enter
from psoup.engine.ledger import Ledger, joins_name
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.jobs import Outcome, by_table, job_of, run_tasks

# Rows of a step that are joined together. They are so few that a unit with too many candidates for
# one task has too many per row.
UNIT_ROWS = 1 << 15


def keep_up(ledger: Ledger, spark: SparkSession, settings: EngineSettings) -> None:
    """Extend the boxes of all composites to the rows that the ledger has.

    A local predicate that no registration of a composite has any more is no longer admitted: new
    rows are not matched with it.
    """
    if not ledger.composites:
        return
    local = local_predicates(ledger)
    boxes: dict[int, CompositeBox] = {}
    for composite in composites_to_keep(ledger):
        box = CompositeBox(ledger, composite, settings)
        _drop_unused(box, local[composite.id])
        if _new_rows(box):
            boxes[box.id] = box
    if not boxes:
        return
    highs = {box.id: tuple(box.high(leg) for leg in _legs(box)) for box in boxes.values()}
    large = [box for box in boxes.values() if _new_rows(box) > UNIT_ROWS]
    entered = _enter(ledger, spark, large)
    files = by_table(entered)
    units: list[CombineUnit] = []
    for box in boxes.values():
        count = -(-_new_rows(box) // UNIT_ROWS)
        new_files = tuple(files.get(joins_name(box.id), ())) if box in large else None
        units += box.combining(box.step_work, _arrivals(box), count, new_files)
    for composite_id, summary in find_combinations(ledger, spark, boxes, units, entered).items():
        _note(boxes[composite_id], highs[composite_id], summary)


def _enter(ledger: Ledger, spark: SparkSession, boxes: Sequence[CompositeBox]) -> list[Outcome]:
    """Write many new rows to `joins/<id>` before they are joined, so that each of several units
    reads the columns of its own rows only; return the outcomes."""
    parallelism = int(spark.sparkContext.defaultParallelism)
    units = [
        unit for box in boxes for unit in box.entering(box.step_work, _arrivals(box), parallelism)
    ]
    return run_tasks(spark, job_of(ledger), enter, units)


def _drop_unused(box: CompositeBox, local: LegPredicates) -> None:
    """Remove the admitted predicates that no registration has any more."""
    admitted = tuple(
        tuple(id_ for id_ in ids if id_ in set(local_ids))
        for ids, local_ids in zip(box.mark.admitted, local, strict=True)
    )
    if admitted != box.mark.admitted:
        box.change(admitted=admitted)


def _new_rows(box: CompositeBox) -> int:
    """Return how many rows are past the box; 0 without a box."""
    mark = box.mark
    if mark.since is None or mark.suspended:
        return 0
    return sum(box.high(leg) - mark.highs[leg] for leg in _legs(box))


def _arrivals(box: CompositeBox) -> list[Arrival]:
    """Return the arrival at each leg of the rows past the box."""
    mark = box.mark
    return [
        box.arrival(leg, mark.highs[leg], box.high(leg), mark.admitted[leg]) for leg in _legs(box)
    ]


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
