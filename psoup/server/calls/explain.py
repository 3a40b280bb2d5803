"""Explain: how a registration is matched, what it shares, what is stored, where the time goes."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, UInt16s
from datastem.blocks import Part
from psoup.answers import Plan, Question
from psoup.answers.evaluate import Selection
from psoup.answers.leg_rows import LegRows, chosen_rows
from psoup.answers.matching import Matcher, Work
from psoup.answers.plan import LegPlan
from psoup.answers.planning import find_source
from psoup.answers.question import RegisteredQuery
from psoup.server.calls.invoke import read_registration
from psoup.server.core import Core
from psoup.server.settings import default_name
from psoup.server.wire.arrow import arrow_pieces
from psoup.server.wire.values import from_duration
from psoup.v1 import psoup_pb2 as pb
from querystem.evaluate import arrange
from querystem.expressions import Expression, from_json
from querystem.factors import Access, access_of, constants_of, factor_text, factors_of, operand_of
from querystem.index.formula import Factor
from querystem.language import expression_text, refresh_text
from querystem.pace import spending
from results.bitmaps import decode
from results.id_sets import intersect, size

# Each predicate that is looked at is parsed anew, so that nothing has to be kept for this.
_LOOKED_AT = 5_000
# Units (`querystem.pace`) of a predicate that is parsed, and of a character of it.
_READ_UNITS, _CHARACTER_UNITS = 50_000, 200


async def explain(core: Core, request: pb.ExplainRequest) -> pb.Explanation:
    """Raises what Invoke raises. Runs one invoke, within the same limits."""
    await core.follower.catch_up()
    return await core.follower.read(lambda: _explain(core, request))


async def _explain(core: Core, request: pb.ExplainRequest) -> pb.Explanation:
    stages = Stages()
    tenant = default_name(request.tenant, "tenant", core.settings)
    registered = RegisteredQuery(tenant, request.handle)
    with stages.time("plan"):
        query = await read_registration(core, registered, request.window)
        question, view = Question(registered, query), core.follower.view
        source = find_source(view, question, core.maker.unregistered)
        plan = core.maker.plan(view, question)
    _, predicates = core.follower.state.columns
    leg, stream = plan.leg, source.legs[0].stream
    ids = predicates.of_stream(leg.stream_id)
    others = predicates.having(ids[ids != leg.predicate_id][-_LOOKED_AT:]).column("key")
    found = core.follower.state.predicates[leg.predicate_id]
    message = pb.Explanation(
        predicate_id=found.id,
        registration_count=found.registrations,
        matched_rows=size(
            intersect(0, stream.high, plan.epoch.covering(found.stream_id).ranges(found.id))
        ),
        stream_rows=stream.high,
        epoch=plan.epoch.number,
        other_predicates=len(ids) - 1,
        compared_predicates=len(others),
        refresh=refresh_text(question.query.refresh),
        trigger_id=source.trigger.predicate_id if source.trigger else 0,
    )
    await core.in_thread(_complete, core, message, plan, others, stages)
    return message


def _complete(
    core: Core,
    message: pb.Explanation,
    plan: Plan,
    others: pa.Array,
    stages: Stages,
) -> None:
    """Fills in what takes long. `others` are the keys of the predicates to compare with."""
    message.run.CopyFrom(_run(core, plan, stages))
    message.factors.extend(_factors(plan.query.leg.where, others.to_pylist()))
    message.stored.CopyFrom(_stored(core, plan, plan.leg))


# ---- how it is matched


_ACCESS = {
    Access.LOOKED_UP: pb.ACCESS_LOOKED_UP,
    Access.SEARCHED: pb.ACCESS_SEARCHED,
    Access.COMPARED: pb.ACCESS_COMPARED,
    Access.EVALUATED: pb.ACCESS_EVALUATED,
}


def _factors(where: Expression, others: Sequence[str]) -> list[pb.Factor]:
    mine = factors_of(where)
    sharing: Counter[Factor] = Counter()
    beside: dict[Expression, set[Factor]] = {
        operand: set() for factor in mine if (operand := operand_of(factor)) is not None
    }
    for theirs in chain([mine], map(_factors_of, others)):
        sharing.update(theirs)
        for factor in theirs:
            operand = operand_of(factor)
            if operand is not None and operand in beside:
                beside[operand].add(factor)
    return [_factor(factor, beside, sharing[factor] - 1) for factor in mine]


def _factors_of(key: str) -> Sequence[Factor]:
    spending()(_READ_UNITS + len(key) * _CHARACTER_UNITS)
    return factors_of(from_json(json.loads(key)))


def _factor(factor: Factor, beside: dict[Expression, set[Factor]], shared_by: int) -> pb.Factor:
    operand = operand_of(factor)
    constants = 0 if operand is None else constants_of(beside[operand])
    return pb.Factor(
        text=factor_text(factor),
        access=_ACCESS[access_of(factor, constants)],
        operand="" if operand is None else expression_text(operand),
        constant_count=constants,
        shared_by=shared_by,
    )


# ---- what is stored


def _stored(core: Core, plan: Plan, leg: LegPlan) -> pb.StoredMatches:
    """The stored matches of a leg's predicate, read past the cache, which is for answers. Files
    that are damaged have nothing."""
    message = pb.StoredMatches()
    matched: dict[int, list[UInt16s]] = {}
    for file in plan.epoch.files_of(leg.stream_id, leg.predicate_id):
        held = core.maker.stored.bitmaps(file, leg.predicate_id, plan.epoch.version)
        for block, bitmap in held:
            message.byte_count += len(bitmap)
            matched.setdefault(block, []).append(decode(bitmap))
        message.file_count += bool(held)
        message.piece_count += len(held)
    message.block_count = len(matched)
    message.row_count = sum(len(np.unique(np.concatenate(found))) for found in matched.values())
    return message


# ---- where the time goes


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


@dataclass
class _WatchedMatcher:
    """A matcher, and how many rows it is asked about, and for how long."""

    inner: Matcher
    considered: int = 0
    seconds: float = 0.0

    @property
    def work(self) -> Work:
        return self.inner.work

    def match(self, part: Part, lo: int, hi: int) -> Int64s:
        started = time.perf_counter()
        found = self.inner.match(part, lo, hi)
        self.seconds += time.perf_counter() - started
        first, last = np.searchsorted(part.ids, [lo, hi])
        self.considered += int(last - first)
        return found

    def remembered(self, part: Part, lo: int, hi: int) -> Int64s | None:
        return self.inner.remembered(part, lo, hi)


def _run(core: Core, plan: Plan, stages: Stages) -> pb.ExplainedRun:
    maker = core.maker
    work = maker.work()
    with stages.time("plan"):
        plan = maker.settle(plan, work)
    matcher = _WatchedMatcher(maker.matchers(plan, work).of(plan.leg))
    with stages.time("window"):
        choice = chosen_rows(plan.leg, maker.memo)
    stages.seconds["match"] = 0.0
    rest = "take" if plan.query.grouping is None else "aggregate"
    with stages.time(rest):
        leg = LegRows(plan.leg, matcher, choice)
        rows = Selection(plan.query, leg, maker.memo).matched()
    stages.seconds["match"] = matcher.seconds
    stages.seconds[rest] -= matcher.seconds
    with stages.time("shape"):
        rows = arrange(plan.query, rows)
    with stages.time("encode"):
        encoded = sum(map(len, arrow_pieces([rows], core.settings.piece_bytes)))
    return pb.ExplainedRun(
        current_rows=None if plan.leg.keyed is None or choice.ids is None else len(choice.ids),
        considered_rows=matcher.considered,
        computed_rows=matcher.work.rows,
        answer_rows=rows.num_rows,
        answer_bytes=encoded,
        stages=[
            pb.Stage(name=name, duration=from_duration(max(0, round(seconds * 1e6))))
            for name, seconds in stages.seconds.items()
        ],
    )
