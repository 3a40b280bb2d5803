"""Define: from a statement to a stream or a view that is made or dropped."""

from __future__ import annotations

import contextlib

from psoup.errors import BadRequest
from psoup.lookup import TenantStreams
from psoup.server.core import Core
from psoup.store import Position, StreamState, ViewState
from psoup.write.draft import Stale
from psoup.write.streams import Define, Drop
from psoup.write.views import DefineView, EndView
from querystem.language import CreateStream, CreateView, DropStream, DropView, Statement, bind_view

_ATTEMPTS = 3


async def define(
    core: Core, tenant: str, owner: str, sql: str, statement: Statement
) -> tuple[StreamState | ViewState, Position]:
    """What a statement, whose text is `sql`, made or dropped, durably. Raises QueryError,
    ServerError."""
    match statement:
        case CreateStream(schema):
            return await core.appender.submit(Define(tenant, owner, schema))
        case CreateView():
            return await _create_view(core, tenant, owner, sql, statement)
        case DropView(name, _, cascade):
            return await core.appender.submit(EndView(tenant, owner, name, cascade))
        case DropStream(name, _, cascade):
            await core.follower.catch_up()
            if core.follower.state.find_view(tenant, name) is not None:
                return await core.appender.submit(EndView(tenant, owner, name, cascade))
            return await core.appender.submit(Drop(tenant, owner, name, cascade))


async def _create_view(
    core: Core, tenant: str, owner: str, sql: str, statement: CreateView
) -> tuple[ViewState, Position]:
    """The query is bound to the streams and views of the moment; again where one ends meanwhile."""

    def bound(found: TenantStreams) -> DefineView:
        limit = core.settings.query_bytes
        view = bind_view(sql, statement, found.lookup, max_text=limit, names=found.names)
        return DefineView(tenant, owner, view, tuple(found.ids.values()), found.view_ids)

    for _ in range(_ATTEMPTS):
        await core.follower.catch_up()
        proposal = await core.in_thread(bound, TenantStreams(core.follower.state, tenant))
        with contextlib.suppress(Stale):
            return await core.appender.submit(proposal)
    raise BadRequest("what the view names was dropped and created again, over and over")
