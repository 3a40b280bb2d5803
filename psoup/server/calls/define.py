"""Define: from a statement to a stream, a view or a row policy that is made or dropped."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from psoup.errors import BadRequest
from psoup.lookup import TenantStreams
from psoup.server.core import Core
from psoup.store import Position, StreamState, ViewState
from psoup.write.draft import Proposal, Stale
from psoup.write.policies import DefinePolicy, EndPolicy
from psoup.write.streams import Define, Drop
from psoup.write.views import DefineView, EndView
from querystem.language import (
    CreatePolicy,
    CreateStream,
    CreateView,
    DropPolicy,
    DropStream,
    DropView,
    Statement,
    bind_policy,
    bind_view,
)

T = TypeVar("T")

_ATTEMPTS = 3


async def define(
    core: Core, tenant: str, owner: str, sql: str, statement: Statement
) -> tuple[StreamState | ViewState, Position]:
    """What a statement, whose text is `sql`, made or dropped, durably; of a policy its stream.
    Raises QueryError, ServerError."""
    match statement:
        case CreateStream(schema):
            return await core.appender.submit(Define(tenant, owner, schema))
        case CreateView():
            return await _create_view(core, tenant, owner, sql, statement)
        case DropView(name, _, cascade):
            return await core.appender.submit(EndView(tenant, owner, name, cascade))
        case CreatePolicy():
            return await _create_policy(core, tenant, owner, sql, statement)
        case DropPolicy(name, stream):
            ended = await core.appender.submit(EndPolicy(tenant, owner, name, stream))
            core.policies.policy_ended()
            return ended
        case DropStream(name, _, cascade):
            await core.follower.catch_up()
            if core.follower.state.find_view(tenant, name) is not None:
                return await core.appender.submit(EndView(tenant, owner, name, cascade))
            dropped = await core.appender.submit(Drop(tenant, owner, name, cascade))
            core.policies.policy_ended()
            return dropped


async def _create_view(
    core: Core, tenant: str, owner: str, sql: str, statement: CreateView
) -> tuple[ViewState, Position]:
    """The query is bound to the streams and views of the moment; again where one ends meanwhile."""

    def bound(found: TenantStreams) -> DefineView:
        limit = core.settings.query_bytes
        view = bind_view(sql, statement, found.lookup, max_text=limit, names=found.names)
        return DefineView(tenant, owner, view, tuple(found.ids.values()), found.view_ids)

    return await _bound(core, tenant, bound)


async def _create_policy(
    core: Core, tenant: str, owner: str, sql: str, statement: CreatePolicy
) -> tuple[StreamState, Position]:
    def bound(found: TenantStreams) -> DefinePolicy:
        limit = core.settings.query_bytes
        condition = bind_policy(sql, statement, found.lookup, max_text=limit, names=found.names)
        stream_id = found.stream(statement.stream).id
        whose = tenant, owner, statement.name, statement.stream, stream_id
        return DefinePolicy(*whose, statement.text, condition)

    return await _bound(core, tenant, bound)


async def _bound(core: Core, tenant: str, bind: Callable[[TenantStreams], Proposal[T]]) -> T:
    """What a proposal made that was bound to the streams and views of the moment."""
    for _ in range(_ATTEMPTS):
        await core.follower.catch_up()
        proposal = await core.in_thread(bind, TenantStreams(core.follower.state, tenant))
        with contextlib.suppress(Stale):
            return await core.appender.submit(proposal)
    raise BadRequest("what the statement names was dropped and created again, over and over")
