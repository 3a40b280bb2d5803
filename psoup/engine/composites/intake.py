"""The rows of a step, joined by the tasks that take them in.

A task has just written what a join reads of its rows: stem files and pieces of matches. If it takes
in all rows of a step, it joins them, which saves a job. Otherwise it writes their rows of
`joins/<id>`, in which the tasks of a second job find partners.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from psoup.engine.composites.admitting import piece_files
from psoup.engine.composites.units import Arrival, CombineUnit, CompositeWork, EnterUnit
from psoup.engine.composites.worker import combine, enter
from psoup.engine.ledger import stem_name
from psoup.engine.spark.jobs import (
    CompositeOutcome,
    IntakeJoin,
    Outcome,
    SparkJob,
    Written,
    by_table,
)
from psoup.engine.steps.worker import Intake, fresh
from psoup.store.delta.files import DataFile


@dataclass(frozen=True, slots=True)
class JoiningIntake:
    """New rows to take in, and what to do with them for composites. The units name no files of
    these rows."""

    intake: Intake
    units: tuple[CombineUnit | EnterUnit, ...]


def fresh_and_join(job: SparkJob, work: JoiningIntake) -> list[Outcome]:
    """Take in new rows, and join them or let them enter; return the outcomes."""
    outcomes = fresh(job, work.intake)
    written = by_table(outcomes)
    for unit in work.units:
        composite = _with_files(unit.work, written)
        results: list[Outcome]
        if isinstance(unit, CombineUnit):
            pairs = zip(unit.work.legs, unit.arrivals, strict=True)
            arrivals = tuple(
                _with_pieces(arrival, leg.stream_id, written) for leg, arrival in pairs
            )
            results = combine(job, replace(unit, work=composite, arrivals=arrivals))
        else:
            stream_id = unit.work.legs[unit.leg].stream_id
            arrival = _with_pieces(unit.arrival, stream_id, written)
            results = enter(job, replace(unit, work=composite, arrival=arrival))
        relevant = [result for result in results if isinstance(result, Written | CompositeOutcome)]
        outcomes.append(IntakeJoin(unit.work.id, tuple(relevant), isinstance(unit, CombineUnit)))
    return outcomes


Files = Mapping[str, Sequence[DataFile]]


def _with_files(work: CompositeWork, written: Files) -> CompositeWork:
    legs = (
        replace(leg, files=(*leg.files, *written.get(stem_name(leg.stream_id), ())))
        for leg in work.legs
    )
    return replace(work, legs=tuple(legs))


def _with_pieces(arrival: Arrival, stream_id: int, written: Files) -> Arrival:
    files = written.get("matches", ())
    pieces = piece_files(files, stream_id, arrival.predicates, arrival.lo, arrival.hi)
    return replace(arrival, pieces=pieces)
