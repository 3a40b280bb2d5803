"""A gRPC server in this process whose callers say in their metadata who they are, for tests of what
a caller may see."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa

from psoup.access.principal import ClaimValue, Principal
from psoup.server.core import Core
from psoup.server.identity import AcceptAnyone
from psoup.server.services import PsoupService, add_service
from psoup.server.settings import Settings
from psoup.server.status_codes import Context
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from tests.oracle.copy import Copy
from tests.support.server.process import ipc


class TellWho(AcceptAnyone):
    """Takes a caller for whoever the metadata of the call names."""

    async def principal(self, context: Context) -> Principal:
        said = dict(context.invocation_metadata() or ())
        roles = frozenset(str(said["roles"]).split())
        return Principal("main", str(said["owner"]), roles, json.loads(said["claims"]))


@dataclass
class Caller:
    """A caller with roles and claims, and the calls a test makes."""

    stub: Any
    claims: Mapping[str, ClaimValue]
    roles: str = "developer"
    owner: str = "main"

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        claims = json.dumps(self.claims)
        return (("roles", self.roles), ("owner", self.owner), ("claims", claims))

    async def call(self, name: str, request: Any) -> Any:
        return await getattr(self.stub, name)(request, metadata=self.metadata, timeout=30)

    async def define(self, sql: str) -> pb.DefineResponse:
        found: pb.DefineResponse = await self.call("Define", pb.DefineRequest(sql=sql))
        return found

    async def publish(self, stream: str, **columns: Any) -> None:
        await self.call("Publish", pb.PublishRequest(stream=stream, arrow=ipc(pa.table(columns))))

    async def register(self, sql: str) -> bytes:
        return bytes((await self.call("Register", pb.RegisterRequest(sql=sql))).handle)

    async def invoke(self, handle: bytes, **fields: Any) -> tuple[pb.AnswerHeader, list[Any]]:
        request = pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW, **fields)
        return await self._answer(self.stub.Invoke(request, metadata=self.metadata, timeout=30))

    async def ask(self, sql: str, **fields: Any) -> list[Any]:
        request = pb.AskRequest(sql=sql, encoding=pb.ENCODING_ARROW, **fields)
        call = self.stub.Ask(request, metadata=self.metadata, timeout=30)
        return (await self._answer(call))[1]

    async def _answer(self, call: Any) -> tuple[pb.AnswerHeader, list[Any]]:
        header, *rest = [message async for message in call]
        table = pa.ipc.open_stream(b"".join(part.arrow for part in rest)).read_all()
        rows = [tuple(row.values()) for row in table.to_pylist()]
        return header.header, [row[0] if len(row) == 1 else row for row in rows]

    async def sync(self, handle: bytes, copy: Copy, **fields: Any) -> pb.SyncBegin:
        item = pb.SyncItem(handle=handle, token=copy.resume or copy.token, **fields)
        request = pb.SyncRequest(items=[item])
        call = self.stub.Sync(request, metadata=self.metadata, timeout=30)
        parts = [part async for part in call]
        for part in parts:
            copy.take(part)
        assert copy.sound() and not copy.damaged()
        begin: pb.SyncBegin = parts[0].begin
        return begin


@dataclass
class CallerServer:
    core: Core
    stub: Any

    def caller(self, roles: str = "developer", **claims: ClaimValue) -> Caller:
        return Caller(self.stub, claims, roles)

    @property
    def administrator(self) -> Caller:
        return self.caller("administrator")


@asynccontextmanager
async def caller_server(path: Path, **settings: Any) -> AsyncIterator[CallerServer]:
    core = Core(Store.open(path, create=True, sync=False), Settings(path, **settings))
    core.authenticator = TellWho()
    await core.start()
    server = grpc.aio.server()
    add_service(PsoupService(core), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield CallerServer(core, PsoupStub(channel))
    finally:
        await server.stop(None)
        await core.stop()
