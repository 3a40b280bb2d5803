"""Register: from a text and values to registrations that can be appended."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pyarrow as pa

from datastem.instants import SECOND
from psoup.access.actions import reads_all
from psoup.answers.planning.question import check_zones, in_zones
from psoup.errors import BadRequest, UnknownTimeZone
from psoup.lookup import TenantStreams
from psoup.server.call import Call
from psoup.server.calls.binding import bind, written_out
from psoup.server.calls.publish import measured
from psoup.server.calls.zones import in_its_zones, zones_for
from psoup.server.core import Core
from psoup.server.permission import Acting
from psoup.server.settings import Settings, check_name, check_text, lease_micros
from psoup.server.wire.arrow import Buffer, read_table
from psoup.server.wire.describing import lease_until
from psoup.server.wire.parameters import (
    rows_columns,
    table_columns,
    to_json_many,
)
from psoup.server.wire.values import columns_message, pattern_message
from psoup.store import Position, State
from psoup.v1 import psoup_pb2 as pb
from psoup.write.draft import Stale
from psoup.write.registrations import (
    ManyRows,
    Prepared,
    RegisterAll,
    Registered,
    RegisterRows,
    UnregisterOne,
    composition_of,
)
from querystem.advice import base_rows_notes, now_notes, window_notes
from querystem.composites import Composition
from querystem.language import NotYet, Span, UnknownColumn, bind_rows
from querystem.query import Query
from querystem.query_json import read_shape
from querystem.zones import renewed_all, zones_in, zones_of

_ATTEMPTS = 3
_KEY_COLUMN = "client_key"
# A table of values is in memory as it came, as Python's values, as JSON and as predicate keys, with
# this many bytes for the objects of a row.
_COPIES = 8
_ROW_BYTES = 1000


async def handle_register(
    core: Core, call: Call, request: pb.RegisterRequest
) -> pb.RegisterResponse:
    """Raise what `register` raises."""
    registered, query, streams = await register(core, call, request)
    schemas = [streams.schema(leg.stream) for leg in query.legs]
    return pb.RegisterResponse(
        handle=registered.handles[0],
        position=core.positions.encode(registered.position),
        created=bool(registered.created),
        columns=columns_message(query.columns),
        pattern=pattern_message(query, streams.schema),
        lease_until=lease_until(core.leases, registered.handles[0]),
        replaced=bool(registered.replaced),
        notes=[
            *window_notes(query, schemas),
            *now_notes(query, schemas),
            *base_rows_notes(query, _reads_all(core, call.acting(request), streams)),
        ],
    )


def _reads_all(core: Core, acting: Acting, streams: TenantStreams) -> bool:
    """Return whether the caller may read all rows of the streams that a text was bound to."""
    state, caller = core.follower.state, acting.principal
    return all(reads_all(state, stream_id, caller) for stream_id in streams.ids.values())


async def handle_register_many(
    core: Core, call: Call, request: pb.RegisterManyRequest
) -> pb.RegisterManyResponse:
    """Raise what `register_many` raises."""
    registered = await register_many(core, call, request)
    return pb.RegisterManyResponse(
        handles=registered.handles,
        position=core.positions.encode(registered.position),
        created_count=registered.created,
        replaced_count=registered.replaced,
    )


async def unregister(
    core: Core, call: Call, request: pb.UnregisterRequest
) -> pb.UnregisterResponse:
    """Raise UnknownHandle, also for a registration that the caller may not use."""
    acting = call.acting(request)
    await core.follower.catch_up()
    owner = acting.own(core.follower.state)
    position = await core.submit(call, UnregisterOne(acting.tenant, request.handle, owner))
    return pb.UnregisterResponse(position=core.positions.encode(position))


async def register(
    core: Core, call: Call, request: pb.RegisterRequest
) -> tuple[Registered, Query, TenantStreams]:
    """Register a query, durably. Return it with the streams it was bound to, which may have ended
    by now. Raise QueryError, ServerError."""
    acting, lease = await _terms(core, call, request)
    check_name(request.client_key, "client_key")
    if request.replace and not request.client_key:
        raise BadRequest(
            "only a query that has a client key can be replaced",
            field="replace",
            hint="name the client key it was registered with",
        )
    for _ in range(_ATTEMPTS):
        await core.follower.catch_up()
        streams, query, parameters = await _bound(core, call, acting, request)
        _check_streams(query)
        acting.demand_named(core.follower.state, query, streams)
        query = await in_its_zones(core, call, query)
        composition = await _composition(core, call, streams, query)
        ready = [Prepared(request.client_key, parameters, query, composition)]
        terms = acting.tenant, acting.owner, streams.ids, request.sql, lease
        bound_to = streams.view_ids, streams.altered_at
        proposal = RegisterAll(*terms, ready, request.replace, *bound_to)
        # A stream or view that the text was bound to has ended in between, or has other columns:
        # bind to the newest state.
        with contextlib.suppress(Stale):
            return await core.submit(call, proposal), query, streams
    raise _dropped_repeatedly()


def _check_streams(query: Query) -> None:
    """Raise NotYet for a query that reads no stream."""
    if not query.legs:
        raise NotYet(
            "a registration of a query that reads no stream",
            Span(0, len("SELECT")),
            hint="ask it: its answer never changes",
        )


async def _bound(
    core: Core, call: Call, acting: Acting, request: pb.RegisterRequest
) -> tuple[TenantStreams, Query, str]:
    """Return the streams that a text is bound to, its query and its parameters. Raise QueryError.

    A registration keeps its meaning when a column that its text names is renamed. Who registers the
    text again, as programs do when they start, gets that registration.
    """
    state = core.follower.state
    terms = request.sql, request.parameters
    streams = acting.streams(state)
    try:
        return streams, *await bind(core, call, streams, *terms)
    except UnknownColumn:
        as_of = _registered_at(state, acting, request.sql, [request.client_key])
        if as_of is None:
            raise
    streams = acting.streams(state, as_of)
    return streams, *await bind(core, call, streams, *terms)


def _registered_at(
    state: State, acting: Acting, sql: str, client_keys: Sequence[str]
) -> Position | None:
    """Return the position of the first registration of a text with one of some client keys; None
    without one."""
    keys = pa.array([key for key in client_keys if key], pa.string())
    existing = state.registrations.find_all(acting.tenant, acting.owner, keys).values()
    packed = min((old.position for old in existing if old.text == sql), default=None)
    return None if packed is None else Position.unpack(packed)


async def _composition(
    core: Core, call: Call, streams: TenantStreams, query: Query
) -> Composition | None:
    """Return the composite of a query, or None. One stream is not worth a thread."""
    if len(query.legs) < 2:
        return None
    return await core.in_thread(call, composition_of, query, streams.streams_of(query))


async def register_many(core: Core, call: Call, request: pb.RegisterManyRequest) -> Registered:
    """Register a query for each row of a table: for all or for none. Raise QueryError, RowError,
    ServerError."""
    if request.WhichOneof("table") is None:
        raise BadRequest("RegisterMany needs a table of values", field="table")
    acting, lease = await _terms(core, call, request)
    tenant, owner = acting.tenant, acting.owner
    arrow = call.batch_of(request) if request.HasField("arrow") else None
    await _reserve(core, call, arrow)

    def propose(streams: TenantStreams) -> RegisterAll | RegisterRows:
        values = _ParameterTable(core.settings, request.rows, arrow)
        sql, terms = request.sql, (values.columns, values.count)
        limit, names = core.settings.query_bytes, streams.names
        try:
            bound = bind_rows(sql, streams.lookup, *terms, max_text=limit, names=names)
        except UnknownColumn:
            as_of = _registered_at(core.follower.state, acting, sql, values.client_keys)
            if as_of is None:
                raise
            streams = acting.streams(core.follower.state, as_of)
            bound = bind_rows(sql, streams.lookup, *terms, max_text=limit, names=names)
        if bound.pattern is not None:
            acting.demand_named(core.follower.state, bound.pattern, streams)
        parameters = to_json_many(values.columns, values.count)
        bound_to = streams.view_ids, streams.altered_at
        zones = core.follower.state.zones
        if bound.form is not None:
            texts = [bound.form, *bound.keys]
            check_zones(zones_of(read_shape(bound.form)) | zones_in(texts), zones)
            form, *keys = renewed_all(texts, zones)
            rows = ManyRows(values.client_keys, parameters, keys)
            subject = tenant, owner, streams.bound.id, sql, lease
            return RegisterRows(*subject, form, rows, request.replace, *bound_to)
        for query in bound.queries:
            _check_streams(query)
        written = [written_out(in_zones(query, zones)) for query in bound.queries]
        composed = (composition_of(query, streams.streams_of(query)) for query in written)
        ready = list(map(Prepared, values.client_keys, parameters, written, composed))
        terms_of_all = tenant, owner, streams.ids, sql, lease
        return RegisterAll(*terms_of_all, ready, request.replace, *bound_to)

    for _ in range(_ATTEMPTS):
        await core.follower.catch_up()
        try:
            proposal = await core.in_thread(call, propose, acting.streams(core.follower.state))
        except UnknownTimeZone as unknown:
            await zones_for(core, call, unknown.names)
            continue
        with contextlib.suppress(Stale):
            registered = await core.submit(call, proposal)
            # Admission has counted one event for the call already.
            more = len(registered.handles) - 1
            core.quotas.charge_events(tenant, acting.principal.owner, more)
            return registered
    raise _dropped_repeatedly()


async def _reserve(core: Core, call: Call, arrow: Buffer | None) -> None:
    """Reserve room for the table as it will be unpacked. Raise Overloaded, RowError."""
    if call.hold is not None and arrow is not None:
        measures = await measured(core, call, arrow)
        limit = core.settings.batch.batch_bytes
        nbytes = limit if measures.dictionaries else measures.nbytes
        await call.hold.reserve(len(arrow) + _COPIES * nbytes + measures.rows * _ROW_BYTES)


def _dropped_repeatedly() -> BadRequest:
    return BadRequest("the stream was altered, or dropped and created again, over and over")


async def _terms(
    core: Core, call: Call, request: pb.RegisterRequest | pb.RegisterManyRequest
) -> tuple[Acting, int]:
    """Return the tenant and owner that a request acts for, and its lease, after its text was
    checked."""
    acting, settings = call.acting(request), core.settings
    check_text(request.sql, settings)
    if request.HasField("lease"):
        lease = lease_micros(request.lease, "lease")
    else:
        lease = settings.default_lease * SECOND
    await core.follower.catch_up()
    acting.check_owner(core.follower.state)
    return acting, lease


class _ParameterTable:
    """The table of a RegisterMany: the values of the parameters, and client keys if it has any."""

    def __init__(self, settings: Settings, rows: pb.Rows, arrow: Buffer | None) -> None:
        """Raise RowError, BadRequest."""
        limits = settings.batch
        if arrow is not None:
            table = read_table(arrow, limits)
            self.count = _checked(settings, table.num_rows)
            columns = table_columns(table, limits)
        else:
            self.count = _checked(settings, len(rows.rows))
            columns = rows_columns(rows, limits)
        keys = columns.pop(_KEY_COLUMN, [None] * self.count)
        self.client_keys = ["" if key is None else str(key) for key in keys]
        self.columns = columns
        for key in self.client_keys:
            check_name(key, _KEY_COLUMN)


def _checked(settings: Settings, count: int) -> int:
    """Return the count of rows. Raise BadRequest if it exceeds the limit of a call."""
    most = settings.registrations_per_call
    if count > most:
        raise BadRequest(
            f"{count:,} registrations; at most {most:,} are taken in one call",
            reason="BATCH_TOO_LARGE",
            expected=f"at most {most} rows",
            got=f"{count} rows",
            hint="send them in several calls",
        )
    return count
