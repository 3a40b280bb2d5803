"""Define: from a statement to what it makes, drops, grants or revokes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from psoup.access.actions import Action
from psoup.access.named import named_objects
from psoup.answers.planning.question import check_zones
from psoup.errors import BadRequest, NamedByViews, NoSuchStream, UnknownTimeZone
from psoup.lookup import TenantStreams, find_stream, find_view
from psoup.server.call import Call
from psoup.server.calls.erase import erase, erasure_note
from psoup.server.calls.zones import zones_for
from psoup.server.core import Core
from psoup.server.permission import Acting
from psoup.server.settings import check_name, check_text
from psoup.server.wire.describing import ended_message, stream_message, view_message
from psoup.store import Position, State, StreamState, ViewState, views_over
from psoup.store.state.access import Grant
from psoup.v1 import psoup_pb2 as pb
from psoup.write.alterations import Alter, alteration_notes
from psoup.write.draft import Proposal, Stale
from psoup.write.drops import Ended, check_policies
from psoup.write.grants import GrantAll, Revoke
from psoup.write.policies import DefinePolicy, EndPolicy
from psoup.write.streams import Define, Drop
from psoup.write.views import DefineView, EndView
from querystem.expressions import predicate_key
from querystem.index.trial import try_predicate
from querystem.language import (
    AlterStream,
    CreateFunction,
    CreatePolicy,
    CreateStream,
    CreateView,
    DropColumn,
    DropFunction,
    DropPolicy,
    DropStream,
    DropView,
    EraseRows,
    GrantActions,
    Statement,
    apart,
    bind_function_definition,
    bind_policy,
    bind_query,
    bind_view,
    function_body,
    parse_statement,
    sample_policy,
)
from querystem.zones import renewed, zones_in, zones_of

T = TypeVar("T")

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Defined:
    """The outcome of a statement: the stream or view that it made or dropped, of a policy its
    stream, None for what was granted or revoked; and what ended with what was dropped."""

    object: StreamState | ViewState | None
    position: Position
    ended: Ended | None = None
    notes: tuple[str, ...] = ()


async def define(core: Core, call: Call, request: pb.DefineRequest) -> pb.DefineResponse:
    """Run a statement; return its outcome when it is durable. Raise QueryError, ServerError."""
    acting, settings = call.acting(request), core.settings
    check_text(request.sql, settings)
    parse = partial(parse_statement, max_columns=settings.columns, max_text=settings.query_bytes)
    statement = await core.in_thread(call, parse, request.sql)
    defined = await _run(core, call, acting, request.sql, statement)
    state = core.follower.state
    response = pb.DefineResponse(
        position=core.positions.encode(defined.position),
        notes=statement.notes
        if isinstance(statement, CreateStream | AlterStream | CreateFunction)
        else (),
    )
    response.notes.extend(defined.notes)
    if isinstance(defined.object, StreamState):
        response.stream.CopyFrom(stream_message(core.follower.view, defined.object, acting))
    elif defined.object is not None:
        message = view_message(state, defined.object, acting)
        if isinstance(message, pb.View):
            response.view.CopyFrom(message)
        else:
            response.function.CopyFrom(message)
    if defined.object is not None and defined.ended is not None:
        response.ended.CopyFrom(ended_message(state, defined.object, defined.ended, acting))
    return response


async def _run(core: Core, call: Call, acting: Acting, sql: str, statement: Statement) -> Defined:
    await core.follower.catch_up()
    state, tenant, owner = core.follower.state, acting.tenant, acting.owner
    acting.check_owner(state)
    match statement:
        case CreateStream(schema):
            acting.demand(state)
            if schema.source:
                schema = replace(schema, source_owner=schema.source_owner or owner)
                check_name(schema.source_owner, "owner")
            return Defined(*await core.submit(call, Define(tenant, owner, schema)))
        case CreateView():
            acting.demand(state)
            return Defined(*await _create_view(core, call, acting, sql, statement))
        case CreateFunction():
            acting.demand(state)
            return Defined(*await _create_function(core, call, acting, sql, statement))
        case AlterStream():
            return await _alter(core, call, acting, statement)
        case DropView(name, _, cascade):
            return await _end_view(core, call, acting, name, cascade)
        case DropFunction(name, _, cascade):
            return await _end_view(core, call, acting, name, cascade, "function")
        case DropStream(name, _, cascade):
            if state.find_view(tenant, name) is not None:
                return await _end_view(core, call, acting, name, cascade)
            return await _end_stream(core, call, acting, name, cascade)
        case CreatePolicy():
            acting.demand(state, actions=(Action.ADMINISTER,))
            return Defined(*await _create_policy(core, call, acting, sql, statement))
        case DropPolicy(name, stream_name):
            acting.demand(state, actions=(Action.ADMINISTER,))
            ended = await core.submit(call, EndPolicy(tenant, owner, name, stream_name))
            core.policies.policy_ended()
            return Defined(*ended)
        case EraseRows():
            acting.demand(state, actions=(Action.ADMINISTER,))
            stream, position, count = await erase(core, call, acting, sql, statement)
            return Defined(stream, position, notes=(erasure_note(stream.schema, count),))
        case GrantActions():
            return Defined(None, await _grant(core, call, acting, statement))


async def _alter(core: Core, call: Call, acting: Acting, statement: AlterStream) -> Defined:
    state, tenant, name = core.follower.state, acting.tenant, statement.name
    stream = find_stream(state, tenant, name, acting.visible(state))
    acting.demand(state, [stream.id])
    if isinstance(statement.change, DropColumn) and statement.change.cascade:
        _check_drop(state, acting, stream.id, name)
    terms = core.settings.columns, acting.own(state), acting.administers(state)
    alter = Alter(tenant, acting.owner, name, statement.change, *terms)
    altered = await core.submit(call, alter)
    if altered.ended is not None and altered.ended.policies:
        core.policies.policy_ended()
    notes = alteration_notes(stream.schema, altered.stream.schema)
    return Defined(altered.stream, altered.position, altered.ended, notes)


async def _end_view(
    core: Core, call: Call, acting: Acting, name: str, cascade: bool, kind: str = "view"
) -> Defined:
    """Drop a view, or a function if that is the `kind`."""
    state = core.follower.state
    view = find_view(state, acting.tenant, name, acting.visible(state), kind)
    _check_drop(state, acting, view.id, name)
    proposal = EndView(acting.tenant, acting.owner, name, cascade, kind)
    return Defined(*await core.submit(call, proposal))


async def _end_stream(core: Core, call: Call, acting: Acting, name: str, cascade: bool) -> Defined:
    state = core.follower.state
    stream = find_stream(state, acting.tenant, name, acting.visible(state))
    administers = acting.administers(state)
    check_policies(state, stream, administers)
    _check_drop(state, acting, stream.id, name)
    proposal = Drop(acting.tenant, acting.owner, name, cascade, administers)
    dropped = Defined(*await core.submit(call, proposal))
    core.policies.policy_ended()
    return dropped


def _check_drop(state: State, acting: Acting, object_id: int, name: str) -> None:
    """Refuse a drop that would end, or name, views that the caller may not drop."""
    acting.demand(state, [object_id])
    view_ids = (view.id for view in views_over(state.views, object_id))
    if not all(acting.may(state, Action.DEFINE, view_id) for view_id in view_ids):
        raise NamedByViews(
            f"{name} is named by views that you may not drop",
            got=name[:100],
            hint="ask an administrator to drop them first",
        )


async def _grant(core: Core, call: Call, acting: Acting, statement: GrantActions) -> Position:
    """Grant actions to a role or an owner, or revoke them."""
    state, tenant, named = core.follower.state, acting.tenant, statement.name
    object_id = 0
    if named is not None:
        streams = acting.streams(state)
        if streams.lookup(named) is None:
            raise NoSuchStream(f"there is no stream or view {named!r}", got=named[:100])
        (object_id,) = streams.ids_of([named])
    # After the look-up: a name that the caller may not see is unknown, not denied.
    acting.demand(state, [object_id], (Action.ADMINISTER,))
    if not statement.revoked:
        check_name(statement.grantee, statement.to)
    grants = [
        Grant(tenant, statement.to, statement.grantee, action, object_id)
        for action in statement.actions
    ]
    proposal = (Revoke if statement.revoked else GrantAll)(tenant, acting.owner, tuple(grants))
    return await core.submit(call, proposal)


async def _create_view(
    core: Core, call: Call, acting: Acting, sql: str, statement: CreateView
) -> tuple[ViewState, Position]:
    """Bind a view to the present streams and views; again if one of them ends in between.

    Readers of a view read through it, so its maker must be allowed to read what it names.
    """
    tenant, owner = acting.tenant, acting.owner

    def bound(streams: TenantStreams) -> DefineView:
        limit = core.settings.query_bytes
        view = bind_view(sql, statement, streams.lookup, max_text=limit, names=streams.names)
        query = bind_query(view.text, streams.lookup, {}, max_text=limit)
        check_zones(zones_of(query), core.follower.state.zones)
        named = named_objects(query)
        objects = [*streams.ids_of(named.streams | named.views), *sorted(streams.called_ids)]
        acting.demand(core.follower.state, objects, (Action.READ,))
        over = (*streams.view_ids, *streams.function_ids)
        return DefineView(tenant, owner, view, tuple(streams.ids.values()), over)

    return await _submit_bound(core, call, acting, bound)


async def _create_function(
    core: Core, call: Call, acting: Acting, sql: str, statement: CreateFunction
) -> tuple[ViewState, Position]:
    """Bind a function to the present functions; again if one of them ends in between."""

    def bound(streams: TenantStreams) -> DefineView:
        limit = core.settings.query_bytes
        function = bind_function_definition(sql, statement, streams.lookup, max_text=limit)
        body = predicate_key(function_body(function, streams.lookup))
        check_zones(zones_in([body]), core.follower.state.zones)
        acting.demand(core.follower.state, sorted(streams.called_ids), (Action.READ,))
        return DefineView(acting.tenant, acting.owner, function, (), streams.function_ids)

    return await _submit_bound(core, call, acting, bound)


async def _create_policy(
    core: Core, call: Call, acting: Acting, sql: str, statement: CreatePolicy
) -> tuple[StreamState, Position]:
    tenant, owner = acting.tenant, acting.owner

    def bound(streams: TenantStreams) -> DefinePolicy:
        limit = core.settings.query_bytes
        condition = bind_policy(sql, statement, streams.lookup, max_text=limit, names=streams.names)
        acting.demand(core.follower.state, sorted(streams.called_ids), (Action.READ,))
        stream = streams.stream(statement.stream)
        # A condition that can't be evaluated would hide every row of the stream, so it is tried
        # first.
        zones = core.follower.state.zones
        check_zones(zones_in([predicate_key(condition.where)]), zones)
        where, _ = apart(sample_policy(condition.where))
        try_predicate(renewed(predicate_key(where), zones), stream.schema.types)
        terms = tenant, owner, statement.name, statement.stream, stream.id
        return DefinePolicy(*terms, statement.text, condition, stream.schema.altered_at)

    return await _submit_bound(core, call, acting, bound)


async def _submit_bound(
    core: Core, call: Call, acting: Acting, bind: Callable[[TenantStreams], Proposal[T]]
) -> T:
    """Submit a proposal that `bind` makes for the present streams and views; again if one of them
    has changed in between."""
    for _ in range(_ATTEMPTS):
        await core.follower.catch_up()
        try:
            proposal = await core.in_thread(call, bind, acting.streams(core.follower.state))
        except UnknownTimeZone as unknown:
            await zones_for(core, call, unknown.names)
            continue
        with contextlib.suppress(Stale):
            return await core.submit(call, proposal)
    raise BadRequest("what the statement names was altered or dropped, over and over")
