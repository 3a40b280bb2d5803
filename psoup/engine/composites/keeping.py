"""Maintenance of composites in a step: its rows are joined with the other legs, in its epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from psoup.engine.composites.boxes import (
    CompositeBox,
    JoinSummary,
    composites_to_keep,
    cut,
    find_combinations,
    local_predicates,
)
from psoup.engine.composites.intake import JoiningIntake
from psoup.engine.composites.legs import LegPredicates, without
from psoup.engine.composites.lookup.hashes import BUCKETS
from psoup.engine.composites.units import Arrival, CombineUnit, EnterUnit
from psoup.engine.composites.worker import enter
from psoup.engine.ledger import Ledger, joins_name
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.jobs import IntakeJoin, Outcome, by_table, job_of, run_tasks
from psoup.engine.steps.worker import Intake
from psoup.store.delta.files import DataFile

# Rows of a step that are joined together. They are so few that a unit with too many candidates for
# one task has too many per row.
UNIT_ROWS = 1 << 15
# Rows in the buckets of one unit, unless there are fewer such units than tasks for the cores.
_BUCKETS_ROWS = 1 << 17
_TASKS_PER_CORE = 2


def joining_intakes(
    ledger: Ledger, settings: EngineSettings, cells: Sequence[Intake], rows: Mapping[int, int]
) -> list[JoiningIntake]:
    """Return the cells of a step's grid, with the units by which they join the step's rows, of
    which there are `rows` by stream.

    A single cell joins them. Several cells write their rows of `joins/<id>`, if they are many, and
    if each cell has all matches of its rows.
    """
    # What each cell does with its rows.
    units: list[CombineUnit | EnterUnit] = []
    for box in _extended_boxes(ledger, settings):
        new_rows, arrivals, work = _new_rows(box), _arrivals(box), box.step_work
        # Rows of earlier steps may be past a box that was set aside.
        streams = box.composite.legs
        if new_rows != sum(rows.get(stream, 0) for stream in streams):
            continue
        if len(cells) == 1 and new_rows <= UNIT_ROWS:
            units += box.combining(work, arrivals, 1)
        elif new_rows > UNIT_ROWS and all(cell.stores for cell in cells):
            units += [EnterUnit(work, leg, arrival) for leg, arrival in enumerate(arrivals)]
    return [JoiningIntake(cell, _units_of(cell, units)) for cell in cells]


def _units_of(
    cell: Intake, units: Sequence[CombineUnit | EnterUnit]
) -> tuple[CombineUnit | EnterUnit, ...]:
    """Return the units that a cell has rows for."""
    return tuple(
        unit
        for unit in units
        if isinstance(unit, CombineUnit) or unit.work.legs[unit.leg].stream_id in cell.schemas
    )


def keep_up(
    ledger: Ledger, spark: SparkSession, settings: EngineSettings, joined: Sequence[IntakeJoin] = ()
) -> None:
    """Extend the boxes of all composites to the rows that the ledger has. `joined` is what the
    tasks that took in these rows have done.

    A local predicate that no registration of a composite has any more is no longer admitted: new
    rows are not matched with it.
    """
    boxes = {box.id: box for box in _extended_boxes(ledger, settings)}
    if not boxes:
        return
    highs = {box.id: tuple(box.high(leg) for leg in _legs(box)) for box in boxes.values()}
    complete = {part.composite_id for part in joined if part.is_complete}
    outcomes: list[Outcome] = [outcome for part in joined for outcome in part.outcomes]
    large = [box for box in boxes.values() if _new_rows(box) > UNIT_ROWS]
    entered = {part.composite_id for part in joined}
    outcomes += _enter(ledger, spark, [box for box in large if box.id not in entered])
    files = by_table(outcomes)
    units: list[CombineUnit] = []
    for box in boxes.values():
        if box in large:
            new_files = tuple(files.get(joins_name(box.id), ()))
            units += _entered_units(box, new_files, int(spark.sparkContext.defaultParallelism))
        elif box.id not in complete:
            units += box.combining(box.step_work, _arrivals(box), 1)
    for composite_id, summary in find_combinations(ledger, spark, boxes, units, outcomes).items():
        _note(boxes[composite_id], highs[composite_id], summary)


def _extended_boxes(ledger: Ledger, settings: EngineSettings) -> list[CompositeBox]:
    """Return the boxes that new rows are past, without predicates that have ended."""
    if not ledger.composites:
        return []
    local, boxes = local_predicates(ledger), []
    for composite in composites_to_keep(ledger):
        box = CompositeBox(ledger, composite, settings)
        _drop_unused(box, local[composite.id])
        if _new_rows(box):
            boxes.append(box)
    return boxes


def _enter(ledger: Ledger, spark: SparkSession, boxes: Sequence[CompositeBox]) -> list[Outcome]:
    """Write many new rows to `joins/<id>` before they are joined; return the outcomes."""
    parallelism = int(spark.sparkContext.defaultParallelism)
    units = [
        unit for box in boxes for unit in box.entering(box.step_work, _arrivals(box), parallelism)
    ]
    return run_tasks(spark, job_of(ledger), enter, units)


def _entered_units(
    box: CompositeBox, files: tuple[DataFile, ...], parallelism: int
) -> list[CombineUnit]:
    """Return the units that join rows that have entered in these files.

    If equalities connect the legs, a unit has a range of buckets: it reads only those of all rows.
    Otherwise it has a range of row ids, with about UNIT_ROWS rows.
    """
    work, arrivals, rows = box.step_work, _arrivals(box), _new_rows(box)
    count = -(-rows // UNIT_ROWS)
    if any(work.plan.bucket_side(leg) is None for leg in _legs(box)):
        return box.combining(work, arrivals, count, files)
    # All rows of a join key are in one unit: only all units together have too many candidates.
    work = replace(work, max_candidates=count * work.max_candidates)
    # Few units: each finds the columns of its rows all over the stems.
    few = max(_TASKS_PER_CORE * parallelism, rows // _BUCKETS_ROWS)
    ranges = cut(0, BUCKETS, min(count, few, BUCKETS))
    return [CombineUnit(work, tuple(arrivals), None, files, buckets) for buckets in ranges]


def _drop_unused(box: CompositeBox, local: LegPredicates) -> None:
    """Remove the admitted predicates that no registration has any more."""
    unused = without(box.mark.admitted, local)
    if any(unused):
        admitted = without(box.mark.admitted, unused)
        box.change(box.measured.with_unadmitted(unused), admitted=admitted)


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
