"""Explain: how a registration or a text is matched, what it shares, what is stored, where the time
goes."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from datastem.arrays import UInt16s
from datastem.schema import StreamSchema
from psoup.access.actions import administers
from psoup.access.principal import Principal
from psoup.answers import Plan, Question
from psoup.answers.joins.composite_choice import describe_composite
from psoup.answers.matching.implied import ImpliedUse
from psoup.answers.planning.plan import LegPlan
from psoup.answers.planning.question import text_source
from psoup.answers.planning.sources import TextReplaced, find_source
from psoup.answers.stages import Stages
from psoup.errors import BadRequest, ConditionFails
from psoup.server.call import Call
from psoup.server.calls.binding import bind_readable, readable
from psoup.server.calls.explain_index import MAX_INDEXED, MAX_INDEXED_BYTES, index_message
from psoup.server.calls.explain_run import make_run
from psoup.server.core import Core
from psoup.server.permission import Acting
from psoup.server.settings import check_text
from psoup.server.wire.describing import view_name
from psoup.server.wire.values import pattern_number
from psoup.store import StreamState
from psoup.store.state.quarantine import PREDICATE
from psoup.v1 import psoup_pb2 as pb
from querystem.combine import JoinRun
from querystem.expressions import Expression, from_json
from querystem.factors import (
    Access,
    access_of,
    constants_of,
    factor_text,
    factors_of,
    labelled_factor,
    operand_of,
)
from querystem.index.formula import Condition, Factor
from querystem.join import JoinMethod, JoinStep
from querystem.labels import labelled, labelled_leg, labelled_refresh
from querystem.language import expression_text, leg_window_text, refresh_text
from querystem.operators import LOOK_UP, Operator, operators_of
from querystem.pace import spending
from querystem.patterns import Schemas
from results.bitmaps import decode
from results.id_sets import intersect, size

# The most predicates to compare with. Each is parsed again, so that nothing has to be kept.
_MAX_COMPARED = 5_000
_HIDDEN_CONDITION = "another query"
# Units (`querystem.pace`) of a predicate that is parsed, and of a character of it.
_READ_UNITS, _CHARACTER_UNITS = 50_000, 200


async def explain(core: Core, call: Call, request: pb.ExplainRequest) -> pb.Explanation:
    """Explain a registration by one invoke, or a text by one Ask, within their limits. Raise what
    these raise."""
    if request.sql:
        _check_text(core, request)
    await core.follower.catch_up()
    while True:
        with contextlib.suppress(TextReplaced):
            return await core.follower.read(lambda: _explain(core, call, request))


async def _explain(core: Core, call: Call, request: pb.ExplainRequest) -> pb.Explanation:
    stages = Stages()
    acting = call.acting(request)
    with stages.time("plan"):
        question, view_ids = await _question(core, call, acting, request)
        view = core.follower.view
        source = find_source(view, question, core.maker.unregistered)
        plan = core.maker.plan(view, question)
    reader = question.reader
    named = [matched.stream.schema for matched in (*source.triggers, *source.legs)]
    schemas = {schema.name: schema for schema in named}.__getitem__
    legs = [
        _leg(core, plan, leg, matched.stream, reader, schemas)
        for leg, matched in zip(plan.legs, source.legs, strict=True)
    ]
    message = pb.Explanation(
        composite=describe_composite(plan, view, administers(view.state, reader)),
        epoch=plan.epoch.number,
        refresh=refresh_text(labelled_refresh(question.query.refresh, schemas)),
        views=[view_name(view.state, view_id) for view_id in (*source.views, *view_ids)],
    )
    await core.in_thread(call, _complete, core, message, plan, legs, schemas, stages)
    return message


async def _question(
    core: Core, call: Call, acting: Acting, request: pb.ExplainRequest
) -> tuple[Question, tuple[int, ...]]:
    """Return the question to explain, and the ids of the views that a text of the request was bound
    through; those of a registration are found with its source."""
    if request.sql:
        query, streams = await bind_readable(core, call, acting, request)
        question = Question(text_source(query, streams), query, acting.principal)
        return question, streams.view_ids
    source, prepared = await readable(core, call, acting, request.handle, request.window, False)
    return Question(source, prepared.query, acting.principal, prepared=prepared), ()


def _check_text(core: Core, request: pb.ExplainRequest) -> None:
    """Raise BadRequest for a text that is too long, or beside what it stands in the place of."""
    check_text(request.sql, core.settings)
    for field in ("handle", "window"):
        if getattr(request, field):
            raise BadRequest(
                f"a text is explained without {field}",
                field=field,
                hint="give a handle and a window of its own, or a text with its window inside",
            )


@dataclass(frozen=True, slots=True)
class _ExplainedLeg:
    """A leg, its message, the predicates it is compared with, and the reader. If it is `bound`,
    rows may be hidden, so that only those of the answer count."""

    plan: LegPlan
    message: pb.ExplainedLeg
    # Other predicates of the stream, ascending; None for callers who do not administer.
    others: pa.Table | None
    reader: Principal
    bound: bool

    @property
    def compared_keys(self) -> list[str]:
        """The texts of the predicates that factors are compared with."""
        return [] if self.others is None else self.others.column("key")[-_MAX_COMPARED:].to_pylist()


def _leg(
    core: Core,
    plan: Plan,
    leg: LegPlan,
    stream: StreamState,
    reader: Principal,
    schemas: Schemas,
) -> _ExplainedLeg:
    """Return a leg with all that is quick to find. Other predicates are compared only for callers
    who administer."""
    state = core.follower.state
    _, predicates = state.columns
    # None for a text that is not registered.
    predicate = state.predicates.get(leg.predicate_id)
    window = leg_window_text(labelled_leg(leg.leg, schemas))
    message = pb.ExplainedLeg(stream=stream.schema.name, window=window)
    others = None
    if administers(state, reader):
        ids = predicates.of_stream(leg.stream_id)
        other_ids = ids[ids != leg.predicate_id][-MAX_INDEXED:]
        others = predicates.having(predicates.last_within(other_ids, MAX_INDEXED_BYTES))
        message.registration_count = 0 if predicate is None else predicate.registrations
        message.other_predicates = len(ids) - (predicate is not None)
        message.compared_predicates = min(len(others), _MAX_COMPARED)
    message.quarantined = _quarantined(plan, leg, administers(state, reader))
    bound = plan.hides(leg.stream_id)
    if not bound:
        covered = plan.epoch.covering(leg.stream_id).ranges(leg.predicate_id)
        message.matched_rows = size(intersect(0, stream.high, covered))
        message.stream_rows = stream.high
    return _ExplainedLeg(leg, message, others, reader, bound)


def _quarantined(plan: Plan, leg: LegPlan, reason: bool) -> str:
    """Return what of a leg is in quarantine. The reason is left out unless the caller may see it:
    it can quote values."""
    notes = []
    entry = plan.epoch.epoch.quarantine.find(PREDICATE, leg.predicate_id)
    if entry is not None:
        notes.append("the condition fails" + (f": {entry.reason}" if reason else ""))
    if any(policy.is_set_aside for policy in leg.policy or ()):
        notes.append("a row policy fails, and shows nothing")
    return "; ".join(notes)


def _complete(
    core: Core,
    message: pb.Explanation,
    plan: Plan,
    legs: Sequence[_ExplainedLeg],
    schemas: Schemas,
    stages: Stages,
) -> None:
    """Fill in what takes long."""
    try:
        run = make_run(core, plan, stages)
    except ConditionFails:
        # What is in quarantine is shown all the same.
        message.legs.extend(leg.message for leg in legs)
        _describe_first_leg(message)
        return
    for leg, rows in zip(legs, run.legs, strict=True):
        if rows.matched is not None:
            leg.message.row_count = rows.matched
        if (use := core.maker.implied.used(leg.plan.predicate_id)) is not None:
            leg.message.implied_by.CopyFrom(_implied_by(core, leg, use))
        leg.message.factors.extend(_factors(leg.plan, leg.compared_keys))
        if leg.others is not None and leg.message.factors:
            excluded = plan.epoch.epoch.quarantine.of_stream(leg.plan.stream_id)
            if (index := index_message(leg.plan, leg.others, excluded)) is not None:
                leg.message.index.CopyFrom(index)
        if leg.bound:
            continue
        leg.message.considered_rows = rows.considered
        if rows.current is not None:
            leg.message.current_rows = rows.current
        leg.message.stored.CopyFrom(_stored(core, plan, leg.plan))
    message.legs.extend(leg.message for leg in legs)
    message.run.CopyFrom(run.message)
    operators = operators_of(plan.query, schemas)
    message.operator.CopyFrom(_operator(operators, run.joins))
    _describe_first_leg(message)


def _implied_by(core: Core, leg: _ExplainedLeg, use: ImpliedUse) -> pb.ImpliedBy:
    """Return the predicate that another implies; it is named if it is the caller's own."""
    state, reader = core.follower.state, leg.reader
    registrations, _ = state.columns
    is_own = registrations.has_predicate(reader.tenant, reader.owner, use.implied)
    message = pb.ImpliedBy(condition=_HIDDEN_CONDITION)
    if is_own or administers(state, reader):
        message.condition = expression_text(labelled(use.where, leg.plan.schema))
    if not leg.bound:
        message.looked_at_rows, message.rows = use.looked_at, use.rows
    return message


def _describe_first_leg(message: pb.Explanation) -> None:
    """Fill in the fields that an explanation had before queries had several legs: those of the
    first. A query that reads no stream has none."""
    if not message.legs:
        return
    first = message.legs[0]
    message.registration_count = first.registration_count
    message.factors.extend(first.factors)
    message.other_predicates = first.other_predicates
    message.compared_predicates = first.compared_predicates
    message.stored.CopyFrom(first.stored)
    message.matched_rows = first.matched_rows
    message.stream_rows = first.stream_rows


# ---- what is done with the rows


_METHODS = {
    JoinMethod.EQUALITY: pb.JOIN_METHOD_EQUALITY,
    JoinMethod.RANGE: pb.JOIN_METHOD_RANGE,
    JoinMethod.PAIRS: pb.JOIN_METHOD_PAIRS,
}


def _operator(operator: Operator, runs: Sequence[JoinRun]) -> pb.ExplainedOperator:
    """Return an operator and those below it; `runs` are those of all joins."""
    message = pb.ExplainedOperator(
        name=operator.name,
        detail=operator.detail,
        pattern=pattern_number(operator.pattern),
        inputs=[_operator(below, runs) for below in operator.inputs],
        leg=operator.leg,
    )
    for run in runs:
        if run.part is operator.part:
            message.first_input = run.first
            message.steps.extend(
                _step(step) for step in run.steps if operator.inputs[step.item].name != LOOK_UP
            )
    return message


def _step(step: JoinStep) -> pb.ExplainedStep:
    joined, added = step.rows
    return pb.ExplainedStep(
        input=step.item,
        method=_METHODS[step.method],
        joined_rows=joined,
        input_rows=added,
        candidate_pairs=step.candidates,
        kept_pairs=step.kept_pairs,
    )


# ---- how it is matched


_ACCESS = {
    Access.LOOKED_UP: pb.ACCESS_LOOKED_UP,
    Access.SEARCHED: pb.ACCESS_SEARCHED,
    Access.COMPARED: pb.ACCESS_COMPARED,
    Access.EVALUATED: pb.ACCESS_EVALUATED,
}


def _factors(leg: LegPlan, other_keys: Sequence[str]) -> list[pb.Factor]:
    leg_factors = factors_of(leg.leg.where)
    sharing: Counter[Factor] = Counter()
    beside: dict[Expression, set[Factor]] = {
        operand: set() for factor in leg_factors if (operand := operand_of(factor)) is not None
    }
    for factors in chain([leg_factors], map(_factors_of, other_keys)):
        sharing.update(factors)
        for factor in factors:
            operand = operand_of(factor)
            if operand is not None and operand in beside:
                beside[operand].add(factor)
    return [_factor(factor, beside, sharing[factor] - 1, leg.schema) for factor in leg_factors]


def _factors_of(key: str) -> Sequence[Factor]:
    spending()(_READ_UNITS + len(key) * _CHARACTER_UNITS)
    try:
        return factors_of(from_json(json.loads(key)))
    except (LookupError, TypeError, ValueError):
        # An unreadable predicate of another query; the engine has it in quarantine.
        return ()


def _factor(
    factor: Factor,
    beside: dict[Expression, set[Factor]],
    shared_by: int,
    schema: StreamSchema,
) -> pb.Factor:
    operand = operand_of(factor)
    # Patterns of an operand have an index of their own, beside that of its values.
    is_pattern = isinstance(factor, Condition)
    alike = [] if operand is None else beside[operand]
    constants = constants_of(f for f in alike if isinstance(f, Condition) == is_pattern)
    return pb.Factor(
        text=factor_text(labelled_factor(factor, schema)),
        access=_ACCESS[access_of(factor, constants)],
        operand="" if operand is None else expression_text(labelled(operand, schema)),
        constant_count=constants,
        shared_by=shared_by,
    )


# ---- what is stored


def _stored(core: Core, plan: Plan, leg: LegPlan) -> pb.StoredMatches:
    """Return the stored matches of a leg's predicate, read past the cache, which is for answers.
    Files that are damaged have nothing."""
    message = pb.StoredMatches()
    matched: dict[int, list[UInt16s]] = {}
    for file in plan.epoch.files_of(leg.stream_id, leg.predicate_id):
        bitmaps = core.maker.match_files.bitmaps(file, leg.predicate_id, plan.epoch.version)
        for block, bitmap in bitmaps:
            message.byte_count += len(bitmap)
            matched.setdefault(block, []).append(decode(bitmap))
        message.file_count += bool(bitmaps)
        message.piece_count += len(bitmaps)
    message.block_count = len(matched)
    message.row_count = sum(len(np.unique(np.concatenate(places))) for places in matched.values())
    return message
