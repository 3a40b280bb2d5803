"""A query that was registered in the commit that also dropped its stream was answered NOT_FOUND.

The registration was durable, and nobody knew its handle: the answer was made from the state after
the commit instead of from what the text was bound to.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from psoup.server.main import Server
from psoup.server.settings import Settings
from psoup.store import Entry
from psoup.store.log.log import Log
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from tests.support.server.process import ipc
from tests.support.server.syncing import SQL, numbers

# A method of the stub, and its request.
Call = tuple[Callable[[Any], Any], Any]
QUERY = "SELECT a FROM s WHERE a > 3"


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Server, Any]]:
    server = Server(Settings(folder))
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield server, PsoupStub(channel)
    finally:
        await server.stop()


async def in_one_commit(
    server: Server, first: Call, calls: Sequence[Call], monkeypatch: pytest.MonkeyPatch
) -> list[Any]:
    """What the calls answer, which wait together in this order while the first one is appended."""
    going, append = threading.Event(), Log.append
    waiting = server.core.appender._line

    def held_back(log: Log, *args: Any) -> tuple[Sequence[Entry], int]:
        assert going.wait(240)
        return append(log, *args)

    monkeypatch.setattr(Log, "append", held_back)
    tasks = []
    for count, (method, request) in enumerate([first, *calls], start=1):
        tasks.append(asyncio.ensure_future(method(request)))
        async with asyncio.timeout(240):
            while waiting._unfinished < count:
                await asyncio.sleep(0.001)
    going.set()
    return list(await asyncio.gather(*tasks))[1:]


@pytest.mark.parametrize("after", ["", "CREATE STREAM s (b TEXT)"])
async def test_each_gets_its_own_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    async with serving(tmp_path / "store") as (server, stub):
        await stub.Define(pb.DefineRequest(sql=SQL))
        batch = pb.PublishRequest(stream="s", arrow=ipc(numbers(0, 5)))
        values = ipc(numbers(0, 3).select(["a"]))
        many = pb.RegisterManyRequest(sql="SELECT a FROM s WHERE a = :a", arrow=values)
        registered, rows, published, dropped, *created = await in_one_commit(
            server,
            (stub.Publish, batch),
            [
                (stub.Register, pb.RegisterRequest(sql=QUERY, client_key="mine")),
                (stub.RegisterMany, many),
                (stub.Publish, batch),
                (stub.Define, pb.DefineRequest(sql="DROP STREAM s")),
                *([(stub.Define, pb.DefineRequest(sql=after))] if after else []),
            ],
            monkeypatch,
        )
        versions = {
            server.core.positions.decode(reply.position).position.version
            for reply in (registered, rows, published, dropped, *created)
        }
        assert len(versions) == 1, "they were one commit"
        assert registered.created and [column.name for column in registered.columns] == ["a"]
        assert registered.pattern == pb.UPDATE_PATTERN_MON and registered.HasField("lease_until")
        assert rows.created_count == len(set(rows.handles)) == 3
        assert (published.row_count, published.first_row_id) == (5, 5)
        assert dropped.stream.id not in [reply.stream.id for reply in created]
        for handle in (registered.handle, *rows.handles):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                async for _ in stub.Invoke(pb.InvokeRequest(handle=handle)):
                    pass
            assert "was dropped" in str(refused.value.details())
            await stub.Unregister(pb.UnregisterRequest(handle=handle))
