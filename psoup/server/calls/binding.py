"""Queries of calls: bound from the text that a call brings, or read from a registration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from psoup.answers.planning.prepared import PreparedQuery
from psoup.answers.planning.question import (
    RegisteredQuery,
    StoredTexts,
    cached_prepared,
    cached_query,
    prepare,
    read_texts,
    texts_of,
)
from psoup.lookup import TenantStreams
from psoup.server.call import Call
from psoup.server.calls.zones import in_its_zones, zones_for
from psoup.server.core import Core
from psoup.server.permission import Acting
from psoup.server.settings import Settings
from psoup.server.wire.parameters import to_json, to_scalars
from psoup.v1 import psoup_pb2 as pb
from querystem.language import TemplateCache, bind_query
from querystem.pace import spending
from querystem.query import Query
from querystem.query_json import query_form
from querystem.zones import zones_of

# Longer texts are not even compared on the event loop.
_SHORT_TEXT_CHARACTERS = 2048

# ---- texts that a call brings


async def bind(
    core: Core, call: Call, streams: TenantStreams, sql: str, parameters: Mapping[str, pb.Value]
) -> tuple[Query, str]:
    """Return the query, and its parameters as they are stored. Raise QueryError, BadRequest.

    A short text that needs no parsing is not worth a thread.
    """
    if not parameters and len(sql) <= _SHORT_TEXT_CHARACTERS:
        cached = core.templates.find(streams.tenant, sql, streams.lookup)
        if cached is not None:
            return cached, to_json({})
    return await core.in_thread(
        call, _bind, core.templates, core.settings, streams, sql, parameters
    )


async def bind_readable(
    core: Core, call: Call, acting: Acting, request: pb.AskRequest | pb.ExplainRequest
) -> tuple[Query, TenantStreams]:
    """Return the query of a request's text, all of which the caller may read, and the streams that
    it was bound to. Raise QueryError, BadRequest, PermissionDenied."""
    streams = acting.streams(core.follower.state)
    query, _ = await bind(core, call, streams, request.sql, request.parameters)
    acting.demand_named(core.follower.state, query, streams)
    return await in_its_zones(core, call, query), streams


def _bind(
    templates: TemplateCache,
    settings: Settings,
    streams: TenantStreams,
    sql: str,
    parameters: Mapping[str, pb.Value],
) -> tuple[Query, str]:
    limit, values = settings.query_bytes, to_scalars(parameters, settings.batch)
    if values:
        query = bind_query(sql, streams.lookup, values, max_text=limit, names=streams.names)
    else:
        query = templates.bind(
            streams.tenant, sql, streams.lookup, max_text=limit, names=streams.names
        )
    return written_out(query), to_json(values)


def written_out(query: Query) -> Query:
    """Return the query after its stored texts were written, so that they are not written on the
    event loop."""
    spending()(sum(map(len, query.predicate_keys)) + len(query_form(query)))
    return query


# ---- texts of registrations


async def readable(
    core: Core, call: Call, acting: Acting, handle: bytes, window: str, unrefreshed: bool
) -> tuple[RegisteredQuery, PreparedQuery]:
    """Return a registration as having the text that was read, and its query, all of which the
    caller may read.

    Raise UnknownHandle, RegistrationExpired, PermissionDenied, QueryError.
    """
    state = core.follower.state
    registration = acting.registration(state, handle)
    call.works_for(registration)
    source = RegisteredQuery(acting.tenant, handle, registration.position, acting.own(state))
    prepared = cached_prepared(core.maker.memo, state, registration, window, unrefreshed)
    if prepared is None:
        prepared = await _read(core, call, texts_of(state, source, window, unrefreshed))
    if not acting.reads(core.follower.state, registration, prepared.query):
        # Another server may just have granted it.
        await core.follower.catch_up()
        acting.demand_read(core.follower.state, registration, prepared.query)
    return source, prepared


async def _read(core: Core, call: Call, texts: StoredTexts) -> PreparedQuery:
    """Return the query of a registration's texts. If it is not cached, they are read in a thread.
    Raise QueryError for a malformed window, UnknownTimeZone."""
    memo = core.maker.memo
    query = cached_query(memo, texts)
    if query is None:
        query = await core.in_thread(call, read_texts, memo, texts)
    zones = await zones_for(core, call, zones_of(query))
    return prepare(memo, replace(texts, zones=zones), query)
