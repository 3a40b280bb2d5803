"""Invoke and Ask: wait where they must, plan, compute, and stream what came out."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeAlias

from psoup.answers import Answer, AnswerMaker, ChosenRows, Plan, Question
from psoup.answers.matching.matcher import Uncovered, Work
from psoup.answers.planning.lookback import looked_at
from psoup.answers.planning.planner import TextReplaced
from psoup.answers.planning.question import (
    RegisteredQuery,
    StoredTexts,
    known_reading,
    read_texts,
    text_source,
    texts_of,
)
from psoup.errors import BadRequest, NotReached, TooMuchWork
from psoup.lookup import TenantStreams
from psoup.server.call import Call
from psoup.server.calls.reach import Deadline, reach_own
from psoup.server.calls.sending import CHUNK_BYTES, Outgoing, outgoing, send, weighed
from psoup.server.core import Core
from psoup.server.follower import Follower
from psoup.server.permission import Acting
from psoup.server.settings import Settings, check_text
from psoup.server.sharing.room import Hold
from psoup.server.sharing.turns import TURN_UNITS
from psoup.server.wire.arrow import Message
from psoup.server.wire.parameters import to_json, to_scalars
from psoup.server.wire.values import (
    BadValue,
    columns_message,
    from_duration,
    from_instant,
    to_instant,
)
from psoup.v1 import psoup_pb2 as pb
from psoup.write.interest import InterestRequest
from querystem.language import TemplateCache, bind_query
from querystem.pace import spending
from querystem.query import Query
from querystem.query_json import query_form
from results.region import Region, time_region
from results.window import TimeWindow

Terms: TypeAlias = pb.InvokeRequest | pb.AskRequest

_ENCODINGS = frozenset(pb.Encoding.values())
# Typed values are made one by one: so many of them on the event loop.
_FEW_VALUES = 1000
# Longer texts are not even compared on the event loop.
_SHORT_TEXT = 2048


Find = Callable[[], Awaitable[Question]]
_Computed: TypeAlias = tuple[Plan, Answer | ChosenRows, Outgoing]


async def invoke(
    core: Core, call: Call, request: pb.InvokeRequest
) -> AsyncGenerator[Message, None]:
    """Yield the answer of a registration."""
    acting = call.acting(request)

    async def find() -> Question:
        if not acting.owns(core.follower.state, request.handle):
            await core.follower.catch_up()
        texts, query = await readable(
            core, call, acting, request.handle, request.window, request.unrefreshed
        )
        core.leases.contact(request.handle, call.actor)
        return Question(texts.source, query, acting.principal, **_terms(request))

    async with aclosing(_stream(core, call, request, find)) as messages:
        async for message in messages:
            yield message


async def ask(core: Core, call: Call, request: pb.AskRequest) -> AsyncGenerator[Message, None]:
    """Yield the answer of a query that is not registered. Nothing is written."""
    acting = call.acting(request)

    async def find() -> Question:
        check_text(request.sql, core.settings)
        await core.follower.catch_up()
        streams = acting.streams(core.follower.state)
        query, _ = await bind(core, call, streams, request.sql, request.parameters)
        acting.demand_named(core.follower.state, query, streams)
        source = text_source(query, streams)
        return Question(source, query, acting.principal, **_terms(request))

    async with aclosing(_stream(core, call, request, find)) as messages:
        async for message in messages:
            yield message


async def readable(
    core: Core, call: Call, acting: Acting, handle: bytes, window: str, unrefreshed: bool
) -> tuple[StoredTexts, Query]:
    """A registration of the caller, whose text names nothing that the caller may not read.

    Raises UnknownHandle, RegistrationExpired, PermissionDenied, QueryError.
    """
    state = core.follower.state
    registration = acting.registration(state, handle)
    asked = RegisteredQuery(acting.tenant, handle, owner=acting.own(state))
    texts = texts_of(state, asked, window, unrefreshed)
    query = await reading(core, call, texts)
    if not acting.reads(core.follower.state, registration, query):
        # Another server may just have been told to grant it.
        await core.follower.catch_up()
        acting.demand_read(core.follower.state, registration, query)
    return texts, query


async def reading(core: Core, call: Call, texts: StoredTexts) -> Query:
    """A registration's query, with the window that is brought, if any; texts that were not read
    before are read in a thread. Raises QueryError for a window that is none."""
    known = known_reading(core.maker.memo, texts)
    return (
        await core.in_thread(call, read_texts, core.maker.memo, texts) if known is None else known
    )


def _terms(request: Terms) -> dict[str, Any]:
    """The fields of a question that Invoke and Ask have in common. Raises BadRequest."""
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
        header.elapsed.CopyFrom(from_duration(int((time.perf_counter() - started) * 1e6)))
        yield pb.InvokeResponse(header=header)
        async with aclosing(send(core, call, messages, hold)) as sent:
            async for message in sent:
                yield message
    finally:
        hold.release()


async def _reply(
    core: Core, call: Call, request: Terms, find: Find, deadline: Deadline, hold: Hold
) -> tuple[pb.AnswerHeader, Outgoing]:
    """Return all that is held of an answer while it is sent, which is no plan: that would keep
    blocks of rows in memory."""

    async def attempt() -> tuple[pb.AnswerHeader, Outgoing]:
        plan, found, messages = await _answer(core, call, request, find, deadline)
        return _header(core, plan, found), messages

    return await weighed(call, hold, attempt, lambda reply: reply[1].nbytes)


# ---- binding


async def bind(
    core: Core, call: Call, found: TenantStreams, sql: str, parameters: Mapping[str, pb.Value]
) -> tuple[Query, str]:
    """The query, and its parameters as they are kept. Raises QueryError, BadRequest.

    A short text that needs no parsing is not worth a thread.
    """
    if not parameters and len(sql) <= _SHORT_TEXT:
        known = core.templates.known(found.tenant, sql, found.lookup)
        if known is not None:
            return known, to_json({})
    return await core.in_thread(call, _bind, core.templates, core.settings, found, sql, parameters)


def _bind(
    templates: TemplateCache,
    settings: Settings,
    found: TenantStreams,
    sql: str,
    parameters: Mapping[str, pb.Value],
) -> tuple[Query, str]:
    limit, values = settings.query_bytes, to_scalars(parameters, settings.batch)
    if values:
        query = bind_query(sql, found.lookup, values, max_text=limit, names=found.names)
    else:
        query = templates.bind(found.tenant, sql, found.lookup, max_text=limit, names=found.names)
    return written_out(query), to_json(values)


def written_out(query: Query) -> Query:
    """The query, with its stored texts written already, so that nobody writes them on the event
    loop."""
    spending()(sum(map(len, query.predicate_keys)) + len(query_form(query)))
    return query


# ---- waiting


async def _answer(
    core: Core, call: Call, request: Terms, find: Find, deadline: Deadline
) -> _Computed:
    """Plans and computes; again each time the engine moves, for whoever waits for the engine, and
    where the query was replaced meanwhile."""
    question = await find()
    plan: Plan

    def attempt() -> Awaitable[_Computed]:
        nonlocal plan
        plan = core.maker.plan(core.follower.view, question)
        return _computed(core, call, plan, request)

    while True:
        try:
            found = await core.follower.read(attempt)
            if found[1].computed_rows:
                _tell(core, call, request, plan)
            return found
        except Uncovered:
            _tell(core, call, request, plan)
            await _wait_for_engine(core.follower, call, plan, deadline)
        except TooMuchWork:
            _tell(core, call, request, plan)
            raise
        except TextReplaced:
            question = await find()


def _tell(core: Core, call: Call, request: Terms, plan: Plan) -> None:
    """Tells the engine where somebody looked further back than windows reach."""
    own = isinstance(request, pb.InvokeRequest) and not request.window
    if not own or request.HasField("as_of"):
        core.interest.request((InterestRequest(*rows) for rows in looked_at(plan)), call.actor)


async def _wait_for_engine(follower: Follower, call: Call, plan: Plan, deadline: Deadline) -> None:
    while follower.epoch.number == plan.epoch.number:
        call.end_turn()
        if not deadline.left or not await follower.moved(deadline.left):
            rows = 0 if plan.bound else follower.behind_in(plan.streams)[0]
            behind = f"; it is {rows:,} rows behind" if rows else ""
            raise NotReached(
                f"the engine has not matched this query over all its rows{behind}",
                hint="ask without wait_for_engine, or with a longer deadline",
            )


async def _computed(core: Core, call: Call, plan: Plan, request: Terms) -> _Computed:
    """Computes here if that is quick, else in a thread. The plan may be settled on the way."""
    waits = isinstance(request, pb.InvokeRequest) and request.wait_for_engine
    work = core.maker.work(wait_for_engine=waits, bound=plan.bound)
    size = core.settings.piece_bytes
    found = core.maker.evaluate_at_once(plan, work)
    if found is None:
        return await core.in_thread(call, _compute, core.maker, plan, request, work, size)
    values = found.row_count * len(plan.query.columns)
    core.quotas.charge_work(call.tenant, call.owner, TURN_UNITS + values)
    if request.encoding == pb.ENCODING_ARROW or values <= _FEW_VALUES:
        return plan, found, outgoing(plan.query, found, request.encoding, size)
    messages = await core.in_thread(call, outgoing, plan.query, found, request.encoding, size)
    return plan, found, messages


def _compute(maker: AnswerMaker, plan: Plan, request: Terms, work: Work, size: int) -> _Computed:
    plan = maker.settle(plan, work)
    found = maker.evaluate_in_chunks(plan, work, CHUNK_BYTES)
    return plan, found, outgoing(plan.query, found, request.encoding, size)


# ---- the header


def _header(core: Core, plan: Plan, found: Answer | ChosenRows) -> pb.AnswerHeader:
    header = pb.AnswerHeader(
        position=core.positions.encode(found.position),
        row_count=found.row_count,
        columns=columns_message(plan.query.columns),
        epoch=plan.epoch.number,
        notes=(*plan.notes, *plan.losses),
    )
    if not plan.bound:
        rows, age = core.follower.behind_in(plan.streams)
        header.computed_rows, header.joined_pairs = found.computed_rows, found.joined_pairs
        header.behind_rows = rows
        header.behind.CopyFrom(from_duration(age))
    if plan.now is not None:
        header.now.CopyFrom(from_instant(plan.now))
    if plan.refreshed_at is not None:
        header.refreshed_at.CopyFrom(from_instant(plan.refreshed_at))
    if plan.full_at is not None:
        header.full_at.CopyFrom(from_instant(plan.full_at))
    if plan.reached.least is not None:
        header.complete_until.CopyFrom(from_instant(plan.reached.least))
    if plan.reached.greatest is not None:
        header.latest.CopyFrom(from_instant(plan.reached.greatest))
    if region := _common_region(plan):
        _window_ends(header, region)
    return header


def _common_region(plan: Plan) -> Region | None:
    """The region of the window that all legs have; None where they have several, or none of
    time."""
    first, *others = plan.legs
    own = first.window, first.now
    if any((other.window, other.now) != own for other in others):
        return None
    if first.now is None or not isinstance(first.window, TimeWindow):
        return None
    oldest = max((leg.oldest for leg in plan.legs if leg.oldest is not None), default=None)
    return time_region(first.window, first.now, oldest, 0)


def _window_ends(header: pb.AnswerHeader, region: Region) -> None:
    if region.begin is not None:
        header.window_begin.CopyFrom(from_instant(region.begin))
    header.window_end.CopyFrom(from_instant(region.end - 1))
