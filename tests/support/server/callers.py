"""Callers of a server, for tests that call into it without a wire or say who they are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa

from psoup.access.principal import ANYONE, ClaimValue, Principal
from psoup.server.call import Call
from psoup.server.calls.sync import sync
from psoup.server.core import Core
from psoup.server.identity import AcceptAnyone
from psoup.server.main import Server
from psoup.server.permission import Acting
from psoup.server.settings import Settings
from psoup.server.status_codes import Context
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from tests.oracle.copy import Copy
from tests.support.server.process import ipc

_HEADER = "x-principal"


def anyone() -> Acting:
    """Return the caller of a server that asks for no credential."""
    return Acting.of(ANYONE, pb.StatusRequest())


# Who makes the calls that `new_call` makes.
_PRINCIPAL: ContextVar[Principal] = ContextVar("principal", default=ANYONE)


class TestsCall(Call):
    """A call of the principal that `acting_as` names when it is used: worlds of policies make a
    coroutine with its call first, and choose the caller when they run it."""

    @property
    def principal(self) -> Principal:
        return _PRINCIPAL.get()

    @principal.setter
    def principal(self, principal: Principal) -> None:
        pass


def new_call(seconds: float | None = None) -> Call:
    """Make a call of anyone, or of the principal that `acting_as` names, past the wire."""
    return TestsCall(ANYONE, seconds=seconds)


@contextmanager
def acting_as(principal: Principal) -> Iterator[None]:
    """Make the calls of `new_call` those of a principal."""
    token = _PRINCIPAL.set(principal)
    try:
        yield
    finally:
        _PRINCIPAL.reset(token)


class TrustedHeaders(AcceptAnyone):
    """An authenticator that believes a header. A call without it is anyone's."""

    async def principal(self, context: Context) -> Principal:
        header = dict(context.invocation_metadata() or ()).get(_HEADER)
        if header is None:
            return ANYONE
        fields = json.loads(header)
        return Principal(
            fields["tenant"], fields["owner"], frozenset(fields["roles"]), fields.get("claims", {})
        )


@dataclass(frozen=True)
class NamedCaller:
    """A caller of a server with TrustedHeaders, and the calls a test makes."""

    stub: Any
    tenant: str = ""
    owner: str = ""
    roles: Sequence[str] = ()
    claims: Mapping[str, ClaimValue] = field(default_factory=dict)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        if not self.tenant:
            return ()
        fields = {"tenant": self.tenant, "owner": self.owner, "roles": list(self.roles)}
        return ((_HEADER, json.dumps(fields | {"claims": dict(self.claims)})),)

    async def call(self, rpc: str, request: Any, timeout: float = 30) -> list[Any]:
        """Return the messages that come back."""
        method = pb.DESCRIPTOR.services_by_name["Psoup"].methods_by_name[rpc]
        sent = [request] if method.client_streaming else request
        rpc_call = getattr(self.stub, rpc)(
            iter(sent) if method.client_streaming else sent,
            metadata=self.metadata,
            timeout=timeout,
        )
        return (
            [message async for message in rpc_call] if method.server_streaming else [await rpc_call]
        )

    async def only(self, rpc: str, request: Any) -> Any:
        """Return the one message that comes back."""
        (message,) = await self.call(rpc, request)
        return message

    async def define(self, sql: str) -> pb.DefineResponse:
        response: pb.DefineResponse = await self.only("Define", pb.DefineRequest(sql=sql))
        return response

    async def publish(self, stream: str, **columns: Any) -> None:
        await self.call("Publish", pb.PublishRequest(stream=stream, arrow=ipc(pa.table(columns))))

    async def register(self, sql: str, **fields: Any) -> bytes:
        return bytes((await self.only("Register", pb.RegisterRequest(sql=sql, **fields))).handle)

    async def invoke(self, handle: bytes, **fields: Any) -> tuple[pb.AnswerHeader, list[Any]]:
        """Return the header, and the rows: those of one column as its values."""
        request = pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW, **fields)
        return _answer(await self.call("Invoke", request))

    async def ask(self, sql: str, **fields: Any) -> list[Any]:
        """Return the rows: those of one column as its values."""
        request = pb.AskRequest(sql=sql, encoding=pb.ENCODING_ARROW, **fields)
        return _answer(await self.call("Ask", request))[1]

    async def sync(self, handle: bytes, copy: Copy, **fields: Any) -> pb.SyncBegin:
        """Bring a copy up to date, and return how the sync began."""
        item = pb.SyncItem(handle=handle, token=copy.resume or copy.token, **fields)
        parts = await self.call("Sync", pb.SyncRequest(items=[item]))
        for part in parts:
            copy.take(part)
        assert copy.sound() and not copy.damaged()
        begin: pb.SyncBegin = parts[0].begin
        return begin


def _answer(messages: Sequence[pb.InvokeResponse]) -> tuple[pb.AnswerHeader, list[Any]]:
    header, *parts = messages
    table = pa.ipc.open_stream(b"".join(part.arrow for part in parts)).read_all()
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return header.header, [row[0] if len(row) == 1 else row for row in rows]


@asynccontextmanager
async def open_server(
    path: Path, adapt: Callable[[Server], None] = lambda server: None, **settings: Any
) -> AsyncIterator[tuple[Server, Any]]:
    """Run a server with TrustedHeaders in this process, and give it with a stub. `adapt` may change
    the server before it starts."""
    server = Server(Settings(path, durability="none", **settings))
    server.core.authenticator = TrustedHeaders()
    adapt(server)
    await server.start()
    options = [("grpc.max_receive_message_length", -1)]
    try:
        place = f"127.0.0.1:{server.port}"
        async with grpc.aio.insecure_channel(place, options=options) as channel:
            yield server, PsoupStub(channel)
    finally:
        await server.stop()


@dataclass(frozen=True)
class TenantServer:
    """A server in this process, and callers of its tenant `main`."""

    core: Core
    stub: Any

    def caller(self, role: str = "developer", **claims: ClaimValue) -> NamedCaller:
        return NamedCaller(self.stub, "main", "main", (role,), claims)

    @property
    def administrator(self) -> NamedCaller:
        return self.caller("administrator")


@asynccontextmanager
async def tenant_server(path: Path, **settings: Any) -> AsyncIterator[TenantServer]:
    async with open_server(path, **settings) as (server, stub):
        yield TenantServer(server.core, stub)


async def sync_parts(core: Core, request: pb.SyncRequest, most: int | None) -> list[pb.SyncPart]:
    """Return the parts of a sync as the wire brings them, at most so many: then the line is cut."""
    parts: list[pb.SyncPart] = []
    async for part in sync(core, new_call(), request):
        if most is not None and len(parts) >= most:
            break
        parts.append(pb.SyncPart.FromString(part.SerializeToString()))
    return parts
