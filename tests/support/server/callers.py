"""Callers of a server, for tests that call into it without a wire or say who they are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from grpc_status import rpc_status

from psoup.access.principal import ANYONE, Principal
from psoup.server.core import Core
from psoup.server.identity import PRINCIPAL, AcceptAnyone
from psoup.server.main import Server
from psoup.server.permission import Acting
from psoup.server.settings import Settings
from psoup.server.status_codes import Context
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub

_HEADER = "x-principal"


def anyone(core: Core) -> Acting:
    """The caller of a server that asks for no credential."""
    return Acting.of(pb.StatusRequest(), core.settings)


@contextmanager
def acting_as(principal: Principal) -> Iterator[None]:
    """Makes calls into a server of this process those of a principal."""
    token = PRINCIPAL.set(principal)
    try:
        yield
    finally:
        PRINCIPAL.reset(token)


class TrustedHeaders(AcceptAnyone):
    """Believes what a header says of the caller. A call without it is anyone's."""

    async def principal(self, context: Context) -> Principal:
        told = dict(context.invocation_metadata() or ()).get(_HEADER)
        if told is None:
            return ANYONE
        said = json.loads(told)
        return Principal(
            said["tenant"], said["owner"], frozenset(said["roles"]), said.get("claims", {})
        )


@dataclass(frozen=True)
class NamedCaller:
    """A caller of a server with TrustedHeaders. `call` gives the messages that come back."""

    stub: Any
    tenant: str = ""
    owner: str = ""
    roles: Sequence[str] = ()
    claims: Mapping[str, Any] | None = None

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        if not self.tenant:
            return ()
        said = {"tenant": self.tenant, "owner": self.owner, "roles": list(self.roles)}
        return ((_HEADER, json.dumps(said | {"claims": dict(self.claims or {})})),)

    async def call(self, rpc: str, request: Any, timeout: float = 30) -> list[Any]:
        method = pb.DESCRIPTOR.services_by_name["Psoup"].methods_by_name[rpc]
        sent = [request] if method.client_streaming else request
        made = getattr(self.stub, rpc)(
            iter(sent) if method.client_streaming else sent,
            metadata=self.metadata,
            timeout=timeout,
        )
        return [one async for one in made] if method.server_streaming else [await made]


@asynccontextmanager
async def open_server(path: Path, **settings: Any) -> AsyncIterator[tuple[Server, Any]]:
    """A server with TrustedHeaders in this process, and a stub of it."""
    server = Server(Settings(path, durability="none", **settings))
    server.core.authenticator = TrustedHeaders()
    await server.start()
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=options) as channel:
        yield server, PsoupStub(channel)
    await server.stop()


def detail_of_call(error: Any) -> pb.ErrorDetail:
    """The detail of an AioRpcError."""
    status = rpc_status.from_call(error)
    detail = pb.ErrorDetail()
    assert status is not None and status.details[0].Unpack(detail)
    return detail
