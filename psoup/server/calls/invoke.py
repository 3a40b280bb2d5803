"""Invoke and Ask: wait if need be, plan, compute, and stream the answer."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

from psoup.answers import Answer, AnswerMaker, ChosenRows, Plan, Question
from psoup.answers.matching.matcher import Uncovered, Work
from psoup.answers.planning.lookback import lookback
from psoup.answers.planning.question import text_source
from psoup.answers.planning.sources import TextReplaced
from psoup.answers.stages import Stages, timed
from psoup.errors import BadRequest, TooMuchWork
from psoup.server.call import Call, RowsForm
from psoup.server.call_trace import CallTrace, stage_of, stages_of
from psoup.server.calls.answer_header import AnswerHeader
from psoup.server.calls.binding import bind_readable, readable
from psoup.server.calls.sending import CHUNK_BYTES, Outgoing, outgoing, send, weighed
from psoup.server.calls.waiting import Deadline, reach_own, wait_for_engine
from psoup.server.core import Core
from psoup.server.settings import check_text
from psoup.server.sharing.room import Hold
from psoup.server.sharing.turns import TURN_UNITS
from psoup.server.wire.arrow import Message, encode_as, one_message
from psoup.server.wire.values import BadValue, to_instant
from psoup.v1 import psoup_pb2 as pb
from psoup.write.interest import Lookback

Terms: TypeAlias = pb.InvokeRequest | pb.AskRequest

_ENCODINGS = frozenset(pb.Encoding.values())
# The typed values that are encoded on the event loop at most, in about a millisecond.
_LOOP_VALUES = 8000


Find = Callable[[], Awaitable[Question]]
_Computed: TypeAlias = tuple[Plan, Answer | ChosenRows, Outgoing]


def invoke(core: Core, call: Call, request: pb.InvokeRequest) -> AsyncGenerator[Message, None]:
    """Return the messages of the answer of a registration."""
    acting = call.acting(request)

    async def find() -> Question:
        if not acting.owns(core.follower.state, request.handle):
            await core.follower.catch_up()
        source, prepared = await readable(
            core, call, acting, request.handle, request.window, request.unrefreshed
        )
        core.leases.contact(request.handle, call.actor)
        terms = _terms(request)
        return Question(source, prepared.query, acting.principal, **terms, prepared=prepared)

    return _stream(core, call, request, find)


def ask(core: Core, call: Call, request: pb.AskRequest) -> AsyncGenerator[Message, None]:
    """Return the messages of the answer of a query that is not registered. Nothing is written."""
    acting = call.acting(request)

    async def find() -> Question:
        check_text(request.sql, core.settings)
        await core.follower.catch_up()
        query, streams = await bind_readable(core, call, acting, request)
        source = text_source(query, streams)
        return Question(source, query, acting.principal, **_terms(request))

    return _stream(core, call, request, find)


def _terms(request: Terms) -> dict[str, Any]:
    """Return the fields of a question that Invoke and Ask have in common. Raise BadRequest."""
    terms: dict[str, Any] = {"unrefreshed": request.unrefreshed, "latest": request.latest}
    if not request.HasField("as_of"):
        return terms
    if request.latest:
        raise BadRequest(
            "an answer is as of an instant or of the latest one, not both",
            field="latest",
            hint="leave as_of or latest out",
        )
    try:
        as_of = to_instant(request.as_of)
    except BadValue as bad:
        raise BadRequest(f"as_of {bad}", reason=bad.reason, field="as_of") from None
    return {"as_of": as_of, "known_today": request.knowledge == pb.KNOWLEDGE_TODAY, **terms}


async def _stream(
    core: Core, call: Call, request: Terms, find: Find
) -> AsyncGenerator[Message, None]:
    started = time.perf_counter()
    deadline = Deadline.of(call, core.settings.wait)
    if request.encoding not in _ENCODINGS:
        raise BadRequest("an encoding this server does not know", field="encoding")
    if request.least_position:
        await reach_own(core, call, request.least_position, deadline)
    hold = core.answer_room.hold(call.tenant)
    try:
        header, messages = await _reply(core, call, request, find, deadline, hold)
        content = header.serialize(int((time.perf_counter() - started) * 1e6))
        if request.one_message and messages.is_small:
            yield one_message(content, messages.first)
            return
        yield one_message(content)
        async with aclosing(send(core, call, messages, hold)) as sent:
            async for message in sent:
                yield message
    finally:
        hold.release()


async def _reply(
    core: Core, call: Call, request: Terms, find: Find, deadline: Deadline, hold: Hold
) -> tuple[AnswerHeader, Outgoing]:
    """Return what is kept of an answer while it is sent. That is no plan, which would keep blocks
    of rows in memory."""

    async def attempt() -> tuple[AnswerHeader, Outgoing]:
        plan, answer, messages = await _answer(core, call, request, find, deadline)
        return AnswerHeader(core, plan, answer), messages

    return await weighed(call, hold, attempt, lambda reply: reply[1].nbytes)


# ---- computing


async def _answer(
    core: Core, call: Call, request: Terms, find: Find, deadline: Deadline
) -> _Computed:
    """Plan and compute. Do so again when the engine moves, for a call that waits for it, and if the
    query was replaced in between."""
    question = await find()
    plan: Plan

    def attempt() -> Awaitable[_Computed]:
        nonlocal plan
        with stage_of(call.trace, "plan"):
            plan = core.maker.plan(core.follower.view, question)
        return _computed(core, call, plan, request)

    while True:
        try:
            computed = await core.follower.read(attempt)
            core.metrics.compute(call.tenant, computed[1].computed_rows, computed[1].joined_pairs)
            call.row_count, call.computed_rows = computed[1].row_count, computed[1].computed_rows
            if call.trace is not None:
                _note(call.trace, request, *computed)
            # Rows that had to be computed here would be cheaper next time if the engine matched
            # them.
            if computed[1].computed_rows:
                _request_interest(core, call, request, plan)
            return computed
        except Uncovered:
            _request_interest(core, call, request, plan)
            await wait_for_engine(core, call, plan, deadline)
        except TooMuchWork:
            _request_interest(core, call, request, plan)
            raise
        except TextReplaced:
            question = await find()


def _note(
    trace: CallTrace, request: Terms, plan: Plan, answer: Answer | ChosenRows, messages: Outgoing
) -> None:
    """Give the span of a call its attributes."""
    trace.note(
        streams=len({leg.stream_id for leg in plan.legs}),
        rows=answer.row_count,
        computed=answer.computed_rows,
        epoch=plan.epoch.number,
    )
    if trace.shows_sql and isinstance(request, pb.AskRequest):
        trace.note(sql=request.sql)


def _request_interest(core: Core, call: Call, request: Terms, plan: Plan) -> None:
    """Request interest of the engine in rows that the answer needed and no window covers."""
    is_stored_window = isinstance(request, pb.InvokeRequest) and not request.window
    if not is_stored_window or request.HasField("as_of"):
        core.interest.request((Lookback(*rows) for rows in lookback(plan)), call.actor)


async def _computed(core: Core, call: Call, plan: Plan, request: Terms) -> _Computed:
    """Compute here if that is quick, else in a thread. The plan may be settled on the way."""
    waits = isinstance(request, pb.InvokeRequest) and request.wait_for_engine
    stages = stages_of(call.trace)
    work = core.maker.work(wait_for_engine=waits, bound=plan.bound, stages=stages)
    size = core.settings.piece_bytes
    form = _form(call, request)
    answer = core.maker.evaluate_at_once(plan, work)
    if answer is None:
        return await core.in_thread(call, _compute, core.maker, plan, form, work, size)
    values = answer.row_count * len(plan.query.columns)
    # Work on the event loop has no turn that would charge it.
    core.charge_work(call, TURN_UNITS + values)
    if form.is_quick or values <= _LOOP_VALUES:
        return plan, answer, _outgoing(plan, answer, form, size, stages)
    messages = await core.in_thread(call, _outgoing, plan, answer, form, size, stages)
    return plan, answer, messages


def _compute(maker: AnswerMaker, plan: Plan, form: RowsForm, work: Work, size: int) -> _Computed:
    with work.stage("plan"):
        plan = maker.settle(plan, work)
    answer = maker.evaluate_in_chunks(plan, work, CHUNK_BYTES)
    return plan, answer, _outgoing(plan, answer, form, size, work.stages)


def _form(call: Call, request: Terms) -> RowsForm:
    if call.answer_form is not None:
        return call.answer_form
    is_arrow = request.encoding == pb.ENCODING_ARROW
    return RowsForm(encode_as(request.encoding), is_quick=is_arrow)


def _outgoing(
    plan: Plan,
    answer: Answer | ChosenRows,
    form: RowsForm,
    size: int,
    stages: Stages | None,
) -> Outgoing:
    rows = answer if form.max_rows is None else answer.first(form.max_rows)
    with timed(stages, "encode"):
        return outgoing(plan.query, rows, form.encode, size)
