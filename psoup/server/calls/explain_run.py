"""The invoke that Explain makes: how many rows each leg has, how they are joined, and where the
time goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import Part
from psoup.answers import Plan
from psoup.answers.evaluate import Combined, Selection, combined, joined, leg_inputs
from psoup.answers.matching.matcher import Work
from psoup.answers.matching.permitted_rows import MatchSource, PermittedRows
from psoup.answers.rows.leg_rows import LegMatchers, LegRows, chosen_rows
from psoup.server.core import Core
from psoup.server.wire.arrow import arrow_pieces
from psoup.server.wire.values import from_duration
from psoup.v1 import psoup_pb2 as pb
from querystem.combine import JoinRun
from querystem.evaluate import arrange, rows_or_groups
from querystem.query import Leg, has_joins


@dataclass
class Stages:
    """Seconds by name, in the order they began."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def messages(self) -> list[pb.Stage]:
        return [
            pb.Stage(name=name, duration=from_duration(max(0, round(seconds * 1e6))))
            for name, seconds in self.seconds.items()
        ]


@dataclass
class _WatchedMatcher:
    """A matcher that counts the rows it is called for, and the time that takes."""

    inner: MatchSource
    considered: int = 0
    seconds: float = 0.0

    @property
    def work(self) -> Work:
        return self.inner.work

    @property
    def permitted(self) -> PermittedRows | None:
        return self.inner.permitted

    def match(self, part: Part, lo: int, hi: int) -> Int64s:
        started = time.perf_counter()
        row_ids = self.inner.match(part, lo, hi)
        self.seconds += time.perf_counter() - started
        # The ids of a part ascend; this counts those in the half-open interval from `lo` to `hi`.
        first, last = np.searchsorted(part.ids, [lo, hi])
        self.considered += int(last - first)
        return row_ids

    def cached(self, part: Part, lo: int, hi: int) -> Int64s | None:
        return self.inner.cached(part, lo, hi)

    def lacks(self, block: int, high: int) -> bool:
        return self.inner.lacks(block, high)


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
    work = maker.work(bound=plan.bound)
    with stages.time("plan"):
        plan = maker.settle(plan, work)
    watched = maker.matchers(plan, work)
    matchers = [_WatchedMatcher(watched.of(leg)) for leg in plan.legs]
    with stages.time("window"):
        choices = [
            chosen_rows(leg, matcher, maker.memo)
            for leg, matcher in zip(plan.legs, matchers, strict=True)
        ]
    legs = list(map(LegRows, plan.legs, matchers, choices))
    # Only for the order of the stages; the time is known at the end.
    stages.seconds["match"] = 0.0
    rows, counts, combined_rows = _rows(core, plan, legs, watched, stages)
    with stages.time("shape"):
        rows = arrange(plan.query, rows)
    with stages.time("encode"):
        encoded = sum(map(len, arrow_pieces([rows], core.settings.piece_bytes)))
    # Rows are matched while they are taken, or folded into groups.
    stages.seconds["match"] = sum(matcher.seconds for matcher in matchers)
    taking = next(name for name in ("take", "aggregate") if name in stages.seconds)
    stages.seconds[taking] -= stages.seconds["match"]
    runs = [
        LegRun(matcher.considered, matched, _current(leg))
        for matcher, matched, leg in zip(matchers, counts, legs, strict=True)
    ]
    message = pb.ExplainedRun(
        answer_rows=rows.num_rows,
        answer_bytes=encoded,
        stages=stages.messages(),
        joined_pairs=combined_rows.pairs if combined_rows else 0,
        stored_combinations=combined_rows.stored if combined_rows else 0,
    )
    if not plan.bound:
        message.considered_rows = sum(run.considered for run in runs)
        message.computed_rows = work.rows
        if runs[0].current is not None:
            message.current_rows = runs[0].current
    return ExplainedInvoke(message, runs, combined_rows.runs if combined_rows else ())


def _rows(
    core: Core, plan: Plan, legs: Sequence[LegRows], matchers: LegMatchers, stages: Stages
) -> tuple[pa.RecordBatch, Sequence[int | None], Combined | None]:
    """Return the rows or groups that `arrange` takes, the number of rows of each leg, and if there
    are several legs how they were combined."""
    query = plan.query
    if isinstance(query.source, Leg):
        with stages.time("take" if query.grouping is None else "aggregate"):
            rows = Selection(query, legs[0], core.maker.memo).matched()
        return rows, [rows.num_rows if query.grouping is None else None], None
    limits = core.maker.join_limits
    if plan.composite is not None:
        with stages.time("take"):
            combined_rows = combined(plan, legs, matchers, limits, None)
    else:
        with stages.time("take"):
            inputs = leg_inputs(plan, legs)
        with stages.time("join" if has_joins(query.source) else "combine"):
            combined_rows = joined(plan, inputs, limits)
    with stages.time("shape"):
        rows = rows_or_groups(query, [combined_rows.rows])
    return rows, combined_rows.leg_counts, combined_rows


def _current(rows: LegRows) -> int | None:
    """Return the current rows in the window of a keyed stream; None if the stream is not
    keyed."""
    ids = rows.choice.ids
    return None if rows.leg.keyed is None or ids is None else len(ids)
