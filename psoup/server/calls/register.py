"""Register: from a text and values to registrations that can be appended."""

from __future__ import annotations

import contextlib

from google.protobuf.duration_pb2 import Duration

from datastem.instants import SECOND
from psoup.errors import BadRequest
from psoup.lookup import TenantStreams
from psoup.server.calls.invoke import bind, written_out
from psoup.server.calls.publish import measured
from psoup.server.core import Core
from psoup.server.memory import HOLD
from psoup.server.permission import Acting
from psoup.server.settings import Settings, check_name, check_text
from psoup.server.wire.arrow import Buffer, batch_of, read_table
from psoup.server.wire.parameters import (
    rows_columns,
    table_columns,
    to_json_many,
)
from psoup.v1 import psoup_pb2 as pb
from psoup.write.draft import Stale
from psoup.write.registrations import (
    ManyRows,
    Prepared,
    RegisterAll,
    Registered,
    RegisterRows,
    composition_of,
)
from querystem.composites import Composition
from querystem.language import bind_rows
from querystem.query import Query

_ATTEMPTS = 3
_KEY_COLUMN = "client_key"
# A table of values in memory: as it came, as Python's values, as JSON and as keys; and around each
# row of it.
_COPIES = 8
_ROW_BYTES = 1000
_MAX_LEASE = 100 * 366 * 24 * 3600


async def register(
    core: Core, request: pb.RegisterRequest
) -> tuple[Registered, Query, TenantStreams]:
    """Registers a query, durably; with it come the streams it was bound to, which may be gone by
    now. Raises QueryError, ServerError."""
    acting, lease = await _terms(core, request)
    check_name(request.client_key, "client_key", core.settings)
    if request.replace and not request.client_key:
        raise BadRequest(
            "only a query that has a client key can be replaced",
            field="replace",
            hint="name the client key it was registered with",
        )
    for _ in range(_ATTEMPTS):
        await core.follower.catch_up()
        found = acting.streams(core.follower.state)
        query, parameters = await bind(core, found, request.sql, request.parameters)
        acting.demand_named(core.follower.state, query, found)
        composition = await _composition(core, found, query)
        ready = [Prepared(request.client_key, parameters, query, composition)]
        terms = acting.tenant, acting.owner, found.ids, request.sql, lease
        proposal = RegisterAll(*terms, ready, request.replace, found.view_ids)
        with contextlib.suppress(Stale):
            return await core.appender.submit(proposal), query, found
    raise _again_and_again()


async def _composition(core: Core, found: TenantStreams, query: Query) -> Composition | None:
    """The composite of a query; None where it has none. One stream is not worth a thread."""
    if len(query.legs) < 2:
        return None
    return await core.in_thread(composition_of, query, found.streams_of(query))


async def register_many(core: Core, request: pb.RegisterManyRequest) -> Registered:
    """Raises QueryError, RowError, ServerError. All rows or none."""
    if request.WhichOneof("table") is None:
        raise BadRequest("RegisterMany needs a table of values", field="table")
    acting, lease = await _terms(core, request)
    tenant, owner = acting.tenant, acting.owner
    arrow = batch_of(request) if request.HasField("arrow") else None
    await _reserve(core, arrow)

    def propose(found: TenantStreams) -> RegisterAll | RegisterRows:
        given = _Given(core.settings, request.rows, arrow)
        limit, sql = core.settings.query_bytes, request.sql
        bound = bind_rows(
            sql, found.lookup, given.columns, given.count, max_text=limit, names=found.names
        )
        if bound.pattern is not None:
            acting.demand_named(core.follower.state, bound.pattern, found)
        parameters = to_json_many(given.columns, given.count)
        if bound.form is not None:
            rows = ManyRows(given.client_keys, parameters, bound.keys)
            terms = tenant, owner, found.bound.id, sql, lease
            return RegisterRows(*terms, bound.form, rows, request.replace, found.view_ids)
        written = list(map(written_out, bound.queries))
        composed = (composition_of(query, found.streams_of(query)) for query in written)
        ready = list(map(Prepared, given.client_keys, parameters, written, composed))
        terms_of_all = tenant, owner, found.ids, sql, lease
        return RegisterAll(*terms_of_all, ready, request.replace, found.view_ids)

    for _ in range(_ATTEMPTS):
        await core.follower.catch_up()
        proposal = await core.in_thread(propose, acting.streams(core.follower.state))
        with contextlib.suppress(Stale):
            registered = await core.appender.submit(proposal)
            more = len(registered.handles) - 1
            core.quotas.charge_events(tenant, acting.principal.owner, more)
            return registered
    raise _again_and_again()


async def _reserve(core: Core, arrow: Buffer | None) -> None:
    """Finds room for the table as it will be unpacked. Raises Overloaded, RowError."""
    hold = HOLD.get()
    if hold is not None and arrow is not None:
        found = await measured(core, arrow)
        limit = core.settings.batch.batch_bytes
        nbytes = limit if found.dictionaries else found.nbytes
        await hold.reserve(len(arrow) + _COPIES * nbytes + found.rows * _ROW_BYTES)


def _again_and_again() -> BadRequest:
    return BadRequest("the stream was dropped and created again, over and over")


async def _terms(
    core: Core, request: pb.RegisterRequest | pb.RegisterManyRequest
) -> tuple[Acting, int]:
    """Whom a request acts for, and its lease; its text is not too long."""
    settings = core.settings
    acting = Acting.of(request, settings)
    check_text(request.sql, settings)
    lease = _lease(settings, request.lease if request.HasField("lease") else None)
    await core.follower.catch_up()
    acting.check_owner(core.follower.state)
    return acting, lease


def _lease(settings: Settings, lease: Duration | None) -> int:
    if lease is None:
        return settings.default_lease * SECOND
    micros = lease.seconds * SECOND + lease.nanos // 1000
    if not 0 < micros <= _MAX_LEASE * SECOND:
        raise BadRequest(
            "a lease is longer than nothing and shorter than a hundred years",
            field="lease",
            got=f"{lease.seconds} seconds",
        )
    return micros


class _Given:
    """The table of a RegisterMany: the values of the parameters, and client keys if it has any."""

    def __init__(self, settings: Settings, rows: pb.Rows, arrow: Buffer | None) -> None:
        """Raises RowError, BadRequest."""
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
            check_name(key, _KEY_COLUMN, settings)


def _checked(settings: Settings, count: int) -> int:
    """The count of rows. Raises BadRequest where one call does not take so many."""
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
