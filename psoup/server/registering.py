"""Register: from a text and values to registrations that can be appended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from google.protobuf.duration_pb2 import Duration

from datastem.instants import SECOND
from datastem.schema import StreamSchema
from psoup.server.core import Core
from psoup.server.errors import BadRequest
from psoup.server.ipc import read_table
from psoup.server.names import check_name, default_name
from psoup.server.parameters import parameter_table, rows_table, to_json, to_scalars
from psoup.server.proposals import Prepared, RegisterAll, Registered, Stale
from psoup.store import State, StreamState
from psoup.v1 import psoup_pb2 as pb
from querystem.language import bind_query, prepare
from querystem.query import Query

_ATTEMPTS = 3
_KEY_COLUMN = "client_key"
_MAX_LEASE = 100 * 366 * 24 * 3600


async def register(core: Core, request: pb.RegisterRequest) -> tuple[Registered, Query]:
    """Raises QueryError, ServerError. Durable when it returns."""

    def prepared(found: Found) -> list[Prepared]:
        values = to_scalars(request.parameters)
        limit = core.settings.query_bytes
        query = bind_query(request.sql, found.lookup, values, max_text=limit, names=found.names)
        return [Prepared(request.client_key, to_json(values), query)]

    check_name(request.client_key, "client_key", core.settings)
    proposal, registered = await _register(core, request, prepared)
    return registered, proposal.prepared[0].query


async def register_many(core: Core, request: pb.RegisterManyRequest) -> Registered:
    """Raises QueryError, RowError, ServerError. All rows or none."""
    if request.WhichOneof("table") is None:
        raise BadRequest("RegisterMany needs a table of values", field="table")

    def prepared(found: Found) -> list[Prepared]:
        return _prepare_many(core, request, found)

    _, registered = await _register(core, request, prepared)
    return registered


_Request = pb.RegisterRequest | pb.RegisterManyRequest


async def _register(
    core: Core, request: _Request, prepared: Callable[[Found], list[Prepared]]
) -> tuple[RegisterAll, Registered]:
    tenant = default_name(request.tenant, "tenant", core.settings)
    owner = default_name(request.owner, "owner", core.settings)
    check_text(core, request.sql)
    lease = _lease(core, request.lease if request.HasField("lease") else None)
    for _ in range(_ATTEMPTS):
        await core.follower.catch_up()
        found = Found(core.follower.state, tenant)
        ready = await core.in_thread(prepared, found)
        proposal = RegisterAll(tenant, owner, found.ids, request.sql, lease, ready)
        with contextlib.suppress(Stale):
            return proposal, await core.appender.submit(proposal)
    raise BadRequest("the stream was dropped and created again, over and over")


class Found:
    """The streams of a tenant; remembers which ones a text was bound to."""

    def __init__(self, state: State, tenant: str) -> None:
        self._state = state
        self._tenant = tenant
        self._streams: dict[str, StreamState] = {}

    @property
    def bound(self) -> StreamState:
        """The one after FROM, which is looked up first."""
        return next(iter(self._streams.values()))

    @property
    def ids(self) -> dict[str, int]:
        return {name: stream.id for name, stream in self._streams.items()}

    def stream(self, name: str) -> StreamState:
        return self._streams[name]

    def lookup(self, name: str) -> StreamSchema | None:
        stream = self._state.find_stream(self._tenant, name)
        if stream is None:
            return None
        self._streams.setdefault(name, stream)
        return stream.schema

    def names(self) -> list[str]:
        return [name for tenant, name in list(self._state.stream_names) if tenant == self._tenant]


def check_text(core: Core, text: str) -> None:
    size = len(text.encode())
    if size > core.settings.query_bytes:
        raise BadRequest(
            f"a text of {size:,} bytes; at most {core.settings.query_bytes:,} are taken",
            reason="TEXT_TOO_LONG",
            field="sql",
            expected=f"at most {core.settings.query_bytes} bytes",
            got=f"{size} bytes",
        )


def _lease(core: Core, lease: Duration | None) -> int:
    if lease is None:
        return core.settings.default_lease * SECOND
    if not 0 < lease.seconds + lease.nanos / 1e9 <= _MAX_LEASE:
        raise BadRequest(
            "a lease is longer than nothing and shorter than a hundred years",
            field="lease",
            got=f"{lease.seconds} seconds",
        )
    return lease.seconds * SECOND + lease.nanos // 1000


def _prepare_many(core: Core, request: pb.RegisterManyRequest, found: Found) -> list[Prepared]:
    limits = core.settings.batch
    table = (
        read_table(request.arrow, limits.batch_bytes)
        if request.WhichOneof("table") == "arrow"
        else rows_table(request.rows)
    )
    most = core.settings.registrations_per_call
    if table.num_rows > most:
        raise BadRequest(
            f"{table.num_rows:,} registrations; at most {most:,} are taken in one call",
            reason="BATCH_TOO_LARGE",
            expected=f"at most {most} rows",
            got=f"{table.num_rows} rows",
            hint="send them in several calls",
        )
    types, batch = parameter_table(table, limits)
    keyed = types.pop(_KEY_COLUMN, None) is not None
    limit = core.settings.query_bytes
    template = prepare(request.sql, found.lookup, types, max_text=limit, names=found.names)
    ready = []
    for values in batch.to_pylist():
        key = values.pop(_KEY_COLUMN, None) if _KEY_COLUMN in values else None
        key = key if keyed and key else ""
        check_name(str(key), _KEY_COLUMN, core.settings)
        ready.append(Prepared(str(key), to_json(values), template.fill(values)))
    return ready
