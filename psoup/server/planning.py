"""What is asked, found anew for every attempt, and the plan that answers it: all of one moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from datastem.schema import StreamSchema
from psoup.server.core import Core
from psoup.server.errors import BadRequest, StreamDropped
from psoup.server.invoke import Plan, read_query
from psoup.server.matcher import Matcher, Work
from psoup.server.names import default_name
from psoup.server.parameters import to_scalars
from psoup.server.proposals import find_registration
from psoup.server.registering import Found, check_text
from psoup.server.values import BadValue, to_instant
from psoup.store import StreamState
from psoup.v1 import psoup_pb2 as pb
from querystem.language import bind_query, bind_window
from querystem.query import Query
from results.window import TimeWindow, Window

M = TypeVar("M", bound=Matcher)
Terms: TypeAlias = pb.InvokeRequest | pb.AskRequest


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be answered. `window` may be another than the query's."""

    query: Query
    window: Window
    stream: StreamState
    predicate_id: int


# What is asked, as of the moment it is called: nothing in it waits.
Look: TypeAlias = Callable[[], Asked]


def of_registration(core: Core, request: pb.InvokeRequest) -> Asked:
    """Raises UnknownHandle, StreamDropped, QueryError for a window that is none."""
    tenant = default_name(request.tenant, "tenant", core.settings)
    registration = find_registration(core.follower.state, tenant, request.handle)
    stream = _live(core, registration.stream_id)
    predicate = core.follower.state.predicates[registration.predicate_id]
    query = read_query(registration.query, predicate.key)
    window = query.window
    if request.window:
        check_text(core, request.window)
        window = bind_window(request.window, stream.schema)
    return Asked(query, window, stream, registration.predicate_id)


async def of_text(core: Core, request: pb.AskRequest) -> Look:
    """Binds a text. Raises QueryError, BadRequest.

    The text stays bound to the stream it was bound to; which predicate has its matches is looked
    up for every attempt, since one may be registered or end meanwhile.
    """
    tenant = default_name(request.tenant, "tenant", core.settings)
    check_text(core, request.sql)
    values = to_scalars(request.parameters)
    await core.follower.catch_up()
    found = Found(core.follower.state, tenant)

    def bind() -> Query:
        limit = core.settings.query_bytes
        return bind_query(request.sql, found.lookup, values, max_text=limit, names=found.names)

    query = await core.in_thread(bind)
    stream_id, key = found.bound.id, query.predicate_key

    def look() -> Asked:
        registered = core.follower.state.predicates.find(stream_id, key)
        predicate = core.unregistered.id_of(stream_id, key) if registered is None else registered
        return Asked(query, query.window, _live(core, stream_id), predicate)

    return look


def _live(core: Core, stream_id: int) -> StreamState:
    stream = core.follower.state.streams[stream_id]
    if stream.dropped:
        raise StreamDropped(
            f"stream {stream.schema.name} was dropped, and its rows with it",
            hint="unregister this query",
        )
    return stream


def make_plan(core: Core, request: Terms, asked: Asked) -> Plan:
    """Of the same moment as `asked`: nothing may wait in between."""
    state, stream = core.follower.state, asked.stream
    current = now_of(core, stream)
    as_of = _as_of(core, request)
    now = current if as_of is None else as_of
    today = request.knowledge == pb.KNOWLEDGE_TODAY
    oldest, notes = _oldest(asked.window, stream.schema, now, current)
    return Plan(
        asked.query,
        asked.window,
        stream.schema,
        stream.id,
        asked.predicate_id,
        core.follower.stems[stream.id].view(),
        core.follower.view,
        state.position,
        now,
        oldest,
        as_of if as_of is not None and not today and as_of < state.clock else None,
        notes,
    )


def matcher_of(core: Core, plan: Plan, limit: int | None, kind: type[M]) -> M:
    """A matcher for the plan, that computes at most `limit` rows on the spot."""
    return kind(
        plan.predicate_id,
        plan.stream_id,
        plan.query.where,
        plan.view,
        core.store.table("matches").root,
        core.known,
        core.match_cache,
        Work(limit),
    )


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


def _oldest(
    window: Window, schema: StreamSchema, now: int | None, current: int | None
) -> tuple[int | None, tuple[str, ...]]:
    """The least ts that is retained: at the stream's own NOW, whatever instant is asked about."""
    if now is None or current is None:
        return None, ("the stream has no rows yet, so it has no NOW",)
    if schema.retain is None:
        return None, ()
    oldest = max(now, current) - schema.retain + 1
    begin = window.at(now)[0] if isinstance(window, TimeWindow) else None
    if begin is not None and begin < oldest:
        return oldest, ("the window began before the retention; what is left is shown",)
    return oldest, ()
