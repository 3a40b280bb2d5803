"""The invoke that Explain makes: how many rows each leg has, how they are joined, and where the
time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from psoup.answers import Plan
from psoup.answers.evaluate import Combined, Selection, combined, legs_of
from psoup.answers.matching.watched import WatchedMatcher
from psoup.answers.rows.leg_rows import LegMatchers, LegRows
from psoup.answers.stages import Stages
from psoup.server.core import Core
from psoup.server.wire.arrow import arrow_pieces
from psoup.server.wire.values import from_duration
from psoup.v1 import psoup_pb2 as pb
from querystem.combine import JoinRun
from querystem.evaluate import arrange, rows_or_groups
from querystem.legs import Leg


def stage_messages(stages: Stages) -> list[pb.Stage]:
    return [
        pb.Stage(name=name, duration=from_duration(max(0, round(seconds * 1e6))))
        for name, seconds in stages.seconds.items()
    ]


@dataclass(frozen=True, slots=True)
class LegRun:
    """The rows of a leg: those its predicate was evaluated for, those that match, if they were
    counted, and those of a keyed stream that were current."""

    considered: int
    matched: int | None
    current: int | None


@dataclass(frozen=True, slots=True)
class ExplainedInvoke:
    """One invoke: as a message, its legs, and its joins."""

    message: pb.ExplainedRun
    legs: Sequence[LegRun]
    joins: Sequence[JoinRun]


def make_run(core: Core, plan: Plan, stages: Stages) -> ExplainedInvoke:
    """Make the answer of a plan, without its rows. Raise what an invoke does."""
    maker = core.maker
    work = maker.work(bound=plan.bound, stages=stages)
    with stages.time("plan"):
        plan = maker.settle(plan, work)
    matchers = maker.matchers(plan, work)
    legs = legs_of(plan, matchers, maker.memo)
    # Only for the order of the stages.
    stages.add("match", 0.0)
    rows, counts, combined_rows = _rows(core, plan, legs, matchers, stages)
    with stages.time("shape"):
        rows = arrange(plan.present_query, rows)
    with stages.time("encode"):
        encoded = sum(map(len, arrow_pieces([rows], core.settings.piece_bytes)))
    # Rows are matched while they are taken, or folded into groups.
    taking = next(name for name in ("take", "aggregate") if name in stages.seconds)
    stages.add(taking, -stages.seconds["match"])
    runs = [
        LegRun(_considered(leg), matched, _current(leg))
        for matched, leg in zip(counts, legs, strict=True)
    ]
    message = pb.ExplainedRun(
        answer_rows=rows.num_rows,
        answer_bytes=encoded,
        stages=stage_messages(stages),
        joined_pairs=combined_rows.pairs if combined_rows else 0,
        stored_combinations=combined_rows.stored if combined_rows else 0,
    )
    if not plan.bound:
        message.considered_rows = sum(run.considered for run in runs)
        message.computed_rows = work.rows
        if runs and runs[0].current is not None:
            message.current_rows = runs[0].current
    return ExplainedInvoke(message, runs, combined_rows.runs if combined_rows else ())


def _rows(
    core: Core, plan: Plan, legs: Sequence[LegRows], matchers: LegMatchers, stages: Stages
) -> tuple[pa.RecordBatch, Sequence[int | None], Combined | None]:
    """Return the rows or groups that `arrange` takes, the number of rows of each leg, and if there
    are several legs how they were combined."""
    query = plan.present_query
    if isinstance(query.source, Leg):
        rows = Selection(plan.query, legs[0], core.maker.memo, plan.now).matched()
        return rows, [rows.num_rows if query.grouping is None else None], None
    combined_rows = combined(plan, legs, matchers, core.maker.join_limits, None)
    with stages.time("shape"):
        rows = rows_or_groups(query, [combined_rows.rows])
    return rows, combined_rows.leg_counts, combined_rows


def _current(rows: LegRows) -> int | None:
    """Return the current rows in the window of a keyed stream; None if the stream is not
    keyed."""
    ids = rows.choice.ids
    return None if rows.leg.keyed is None or ids is None else len(ids)


def _considered(rows: LegRows) -> int:
    """Return the rows that a leg's predicate was evaluated for."""
    assert isinstance(rows.matcher, WatchedMatcher), "the work has stages"
    return rows.matcher.considered
