"""What is asked, found anew for every attempt, and the plan that answers it: all of one moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from psoup.server.core import Core
from psoup.server.errors import BadRequest, StreamDropped
from psoup.server.invoke import Plan, Triggers, retained
from psoup.server.losses import check_losses
from psoup.server.matcher import Matcher, Work
from psoup.server.names import default_name
from psoup.server.proposals import find_registration
from psoup.server.readings import Reading
from psoup.server.refreshing import point_by_rows, point_of, refreshed
from psoup.server.registering import Found, bind, check_text
from psoup.server.values import BadValue, to_instant
from psoup.store import StreamState
from psoup.v1 import psoup_pb2 as pb
from querystem.expressions import Expression
from querystem.query import Query, RefreshEvery, RefreshOn
from results.window import UNBOUNDED, Window

M = TypeVar("M", bound=Matcher)
Terms: TypeAlias = pb.InvokeRequest | pb.AskRequest


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be answered. `window` may be another than the query's.

    `trigger` is the stream and the predicate whose rows refresh it, where any do.
    """

    query: Query
    window: Window
    stream: StreamState
    predicate_id: int
    trigger: tuple[StreamState, int] | None = None


# What is asked, as of the moment it is called: nothing in it waits.
Look: TypeAlias = Callable[[], Asked]


def of_registration(core: Core, request: pb.InvokeRequest, reading: Reading) -> Asked:
    """Raises UnknownHandle, StreamDropped."""
    tenant = default_name(request.tenant, "tenant", core.settings)
    registration = find_registration(core.follower.state, tenant, request.handle)
    stream = _live(core, registration.stream_id)
    asked = Asked(reading.query, reading.window, stream, registration.predicate_id)
    if not registration.trigger_id or request.unrefreshed:
        return asked
    other = _trigger(core, registration.trigger_stream_id)
    return replace(asked, trigger=(other, registration.trigger_id))


async def of_text(core: Core, request: pb.AskRequest) -> Look:
    """Binds a text. Raises QueryError, BadRequest.

    The text stays bound to the stream it was bound to; which predicate has its matches is looked
    up for every attempt, since one may be registered or end meanwhile.
    """
    tenant = default_name(request.tenant, "tenant", core.settings)
    check_text(core, request.sql)
    await core.follower.catch_up()
    found = Found(core.follower.state, tenant)
    query, _ = await bind(core, found, request.sql, request.parameters)
    stream_id, refresh = found.bound.id, query.refresh

    def look() -> Asked:
        predicate = _predicate(core, stream_id, query.predicate_key)
        asked = Asked(query, query.window, _live(core, stream_id), predicate)
        if not isinstance(refresh, RefreshOn) or request.unrefreshed:
            return asked
        other = _trigger(core, found.stream(refresh.stream).id)
        return replace(asked, trigger=(other, _predicate(core, other.id, refresh.predicate_key)))

    return look


def _predicate(core: Core, stream_id: int, key: str) -> int:
    registered = core.follower.state.predicates.find(stream_id, key)
    return core.unregistered.id_of(stream_id, key) if registered is None else registered


def _live(core: Core, stream_id: int) -> StreamState:
    stream = core.follower.state.streams[stream_id]
    if stream.dropped:
        raise StreamDropped(
            f"stream {stream.schema.name} was dropped, and its rows with it",
            hint="unregister this query",
        )
    return stream


def _trigger(core: Core, stream_id: int) -> StreamState:
    stream = core.follower.state.streams[stream_id]
    if stream.dropped:
        raise StreamDropped(
            f"stream {stream.schema.name}, whose rows refresh this query, was dropped",
            hint="ask for the unrefreshed answer, or register the query anew",
        )
    return stream


def make_plan(core: Core, request: Terms, asked: Asked, *, ahead: bool = False) -> Plan:
    """Of the same moment as `asked`: nothing may wait in between.

    Raises RowsLost. `ahead` says that rows are wanted too that enter the window later.
    """
    plan, losses = _plan(core, request, asked), core.follower.losses
    if losses.holes:
        notes = check_losses(plan, core.follower.state, losses, ahead)
        plan = replace(plan, losses=notes)
    return plan


def _plan(core: Core, request: Terms, asked: Asked) -> Plan:
    state, stream = core.follower.state, asked.stream
    current = now_of(core, stream)
    as_of = _as_of(core, request)
    now = current if as_of is None else as_of
    today = as_of is not None and request.knowledge == pb.KNOWLEDGE_TODAY
    then = as_of is not None and not today and as_of < state.clock
    stem = core.follower.stems[stream.id].view()
    keyed = core.follower.keyed[stream.id].view(stem) if stream.schema.key else None
    oldest, notes = retained(asked.window, stream.schema, now, current)
    plan = Plan(
        asked.query,
        asked.window,
        stream.schema,
        stream.id,
        asked.predicate_id,
        stem,
        keyed,
        core.follower.view,
        state.position,
        now,
        oldest,
        (("_stamp", now),) if then and now is not None else (),
        notes,
        current,
    )
    if request.unrefreshed or now is None:
        return plan
    if isinstance(asked.query.refresh, RefreshEvery):
        return refreshed(plan, point_of(asked.query.refresh, stream.schema, now, today))
    triggers = _triggers(core, asked, as_of if today else None)
    return plan if triggers is None else replace(plan, triggers=triggers)


def _triggers(core: Core, asked: Asked, until: int | None) -> Triggers | None:
    if asked.trigger is None or not isinstance(asked.query.refresh, RefreshOn):
        return None
    stream, predicate = asked.trigger
    current = now_of(core, stream)
    oldest, _ = retained(UNBOUNDED, stream.schema, current, current)
    stem = core.follower.stems[stream.id].view()
    return Triggers(asked.query.refresh.where, stream.id, predicate, stem, oldest, until)


def settle(core: Core, plan: Plan, work: Work) -> Plan:
    """As of the last row that refreshes it, where rows do. Not for the event loop: it reads."""
    triggers = plan.triggers
    if triggers is None or plan.now is None:
        return plan
    matcher = _matcher(
        core, plan, (triggers.predicate_id, triggers.stream_id, triggers.where), work, Matcher
    )
    return refreshed(plan, point_by_rows(plan, triggers, plan.now, matcher))


def matcher_of(core: Core, plan: Plan, work: Work, kind: type[M]) -> M:
    return _matcher(core, plan, (plan.predicate_id, plan.stream_id, plan.query.where), work, kind)


def _matcher(
    core: Core, plan: Plan, subject: tuple[int, int, Expression], work: Work, kind: type[M]
) -> M:
    return kind(*subject, plan.view, core.match_folder, core.known, core.match_cache, work)


def now_of(core: Core, stream: StreamState) -> int | None:
    """NOW of a stream: the clock, or the greatest ts reached; None before there is one."""
    if stream.schema.ordered_by is not None:
        return stream.reached
    return max(core.clock(), core.follower.state.clock)


def _as_of(core: Core, request: Terms) -> int | None:
    if not request.HasField("as_of"):
        return None
    try:
        as_of = to_instant(request.as_of)
    except BadValue as bad:
        raise BadRequest(f"as_of {bad}", reason=bad.reason, field="as_of") from None
    if as_of > max(core.clock(), core.follower.state.clock):
        raise BadRequest(
            "as_of lies in the future; nothing is known then",
            reason="OUT_OF_RANGE",
            field="as_of",
            hint="leave it out to ask for now",
        )
    return as_of
