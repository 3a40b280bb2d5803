"""One client does not stop the others: chunks of its work are held back here, and counted.

Servers in this process over real gRPC, so that a test can hold a chunk; no time is measured.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc

from psoup.answers.planning import question
from psoup.server.main import Server
from psoup.server.settings import Settings
from psoup.server.sharing import turns
from psoup.server.sharing.turns import Turn, Turns
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from querystem.kernel import evaluation, text
from querystem.language.tokens import scan
from querystem.query import Query
from querystem.query_json import read_form
from tests.support.server.process import detail, ipc, rows_of

_ROWS = 100


@asynccontextmanager
async def serving(path: Path, **settings: Any) -> AsyncIterator[Server]:
    server = Server(Settings(path / "store", durability="none", drain=0.1, **settings))
    await server.start()
    try:
        yield server
    finally:
        assert await server.stop()


@asynccontextmanager
async def calling(server: Server) -> AsyncIterator[Any]:
    """A stub over a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=options) as channel:
        stub = PsoupStub(channel)
        stub.health = health_pb2_grpc.HealthStub(channel)  # type: ignore[attr-defined]
        yield stub


async def prepare(stub: Any, *tenants: str) -> None:
    table = pa.table({"a": range(_ROWS), "t": [f"text {n}" for n in range(_ROWS)]})
    for tenant in tenants:
        sql = "CREATE STREAM s (a BIGINT, t TEXT)"
        await stub.Define(pb.DefineRequest(tenant=tenant, sql=sql))
        await stub.Publish(pb.PublishRequest(tenant=tenant, stream="s", arrow=ipc(table)))


async def answer(call: Any) -> list[Any]:
    return [part async for part in call]


def ask(stub: Any, tenant: str, where: str, **options: Any) -> Any:
    sql = f"SELECT count(*) AS n FROM s WHERE {where}"
    return answer(stub.Ask(pb.AskRequest(tenant=tenant, sql=sql), **options))


class Gate:
    """Every LIKE waits until it is let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = 0
        self._passes = threading.Semaphore(0)
        self._open = False
        original = text.like

        def held(*args: Any) -> Any:
            self.entered += 1
            if not self._open:
                assert self._passes.acquire(timeout=240)
            return original(*args)

        monkeypatch.setattr(evaluation, "like", held)

    def let_through(self, count: int = 1) -> None:
        self._passes.release(count)

    def open(self) -> None:
        self._open = True
        self._passes.release(1000)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate_ = Gate(monkeypatch)
    yield gate_
    gate_.open()


@pytest.fixture
def granted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tenants of the chunks that began, in order."""
    tenants: list[str] = []
    grant = Turns._grant

    def noted(self: Turns, turn: Turn, slot: str) -> None:
        tenants.append(turn.tenant)
        grant(self, turn, slot)

    monkeypatch.setattr(Turns, "_grant", noted)
    return tenants


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of an evaluation ends a chunk."""
    monkeypatch.setattr(turns, "CHUNK_UNITS", 1)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(30_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came")


async def test_with_every_chunk_held_back_the_small_calls_go_on(
    tmp_path: Path, gate: Gate, granted: list[str]
) -> None:
    async with (
        serving(tmp_path) as server,
        calling(server) as heavy,
        calling(server) as light,
    ):
        await prepare(light, "heavy", "light")
        query = pb.RegisterRequest(tenant="light", sql="SELECT a FROM s WHERE a = 1")
        handle = (await light.Register(query)).handle
        invoke = pb.InvokeRequest(tenant="light", handle=handle, encoding=pb.ENCODING_ARROW)
        await answer(light.Invoke(invoke))
        asks = [asyncio.create_task(ask(heavy, "heavy", f"t LIKE '%{n}%'")) for n in range(8)]
        workers = server.settings.workers
        await until(lambda: gate.entered == workers and server.core.turns.waiting == 8 - workers)
        chunks = server.core.turns.chunks
        await light.Status(pb.StatusRequest())
        checked = await light.health.Check(health_pb2.HealthCheckRequest())
        assert checked.status == health_pb2.HealthCheckResponse.SERVING
        row = rows_of(["a", "t"], [pb.Value(bigint=1), pb.Value(text="new")])
        await light.Publish(pb.PublishRequest(tenant="light", stream="s", rows=row))
        await light.ListStreams(pb.ListStreamsRequest(tenant="light"))
        assert server.core.turns.chunks == chunks, "none of them waited for a chunk"
        # The new row has to be evaluated, which takes one turn.
        small = asyncio.create_task(answer(light.Invoke(invoke)))
        await until(lambda: server.core.turns.waiting == 8 - workers + 1)
        before = len(granted)
        gate.let_through()
        header, *_ = await small
        assert header.header.row_count == 2
        assert granted[before] == "light", "the first chunk that could begin was its own"
        gate.open()
        assert len(await asyncio.gather(*asks)) == 8


@pytest.mark.usefixtures("small_chunks")
async def test_nothing_is_computed_for_callers_that_have_gone(tmp_path: Path, gate: Gate) -> None:
    terms = " OR ".join(f"t LIKE '%{n}a%'" for n in range(200))
    async with serving(tmp_path) as server, calling(server) as stub:
        await prepare(stub, "a")
        late = [
            asyncio.create_task(ask(stub, "a", f"{terms} OR a = {n}", timeout=1)) for n in range(8)
        ]
        ends = await asyncio.gather(*late, return_exceptions=True)
        codes = [end.code() for end in ends if isinstance(end, grpc.aio.AioRpcError)]
        assert codes == [grpc.StatusCode.DEADLINE_EXCEEDED] * 8
        entered = gate.entered
        assert entered <= server.settings.workers
        await until(lambda: all(turn._cut for turn in server.core.turns._present))
        gate.open()
        await server.core.turns.ended()
        assert gate.entered == entered, "a chunk was run for somebody who had gone"
        cancelled = asyncio.create_task(ask(stub, "a", terms))
        await until(lambda: gate.entered > entered)
        cancelled.cancel()
        await server.core.turns.ended()


@pytest.mark.usefixtures("small_chunks")
async def test_a_server_that_stops_cuts_what_runs(tmp_path: Path, gate: Gate) -> None:
    terms = " OR ".join(f"t LIKE '%{n}a%'" for n in range(200))
    async with serving(tmp_path) as server, calling(server) as stub:
        await prepare(stub, "a")
        asks = [asyncio.create_task(ask(stub, "a", f"{terms} OR a = {n}")) for n in range(8)]
        # The slot for first chunks has passed on after each of them.
        await until(lambda: gate.entered == server.settings.workers - 1)
        entered = gate.entered
        stopping = asyncio.create_task(server.stop())
        await until(lambda: server.core.turns._stopped is not None)
        gate.open()
        assert await stopping
        assert gate.entered == entered
        ends = await asyncio.gather(*asks, return_exceptions=True)
        assert all(isinstance(end, grpc.aio.AioRpcError) for end in ends)


@contextmanager
def watched_reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the threads that read a text or a stored query."""
    threads: list[str] = []
    tokens = scan._tokens

    def scanned(text: str) -> Any:
        threads.append(threading.current_thread().name)
        return tokens(text)

    def stored(form: str, predicate_keys: Sequence[str]) -> Query:
        threads.append(threading.current_thread().name)
        return read_form(form, predicate_keys)

    monkeypatch.setattr(scan, "_tokens", scanned)
    monkeypatch.setattr(question, "read_form", stored)
    yield threads


async def test_nothing_is_read_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as server, calling(server) as stub:
        with watched_reading(monkeypatch) as threads:
            await prepare(stub, "")
            first = await stub.Register(pb.RegisterRequest(sql="SELECT a FROM s WHERE a = 1"))
            handle = first.handle
            table = ipc(pa.table({"p": [1, 2, 3]}))
            many = pb.RegisterManyRequest(sql="SELECT a FROM s WHERE a = :p", arrow=table)
            await stub.RegisterMany(many)
            await ask(stub, "", "a = 1")
            for window in ("", "RANGE 1 HOUR", "RANGE 1 HOUR"):
                await answer(stub.Invoke(pb.InvokeRequest(handle=handle, window=window)))
            items = [pb.SyncItem(handle=handle, window=f"RANGE {n} HOURS") for n in range(1, 9)]
            parts = await answer(stub.Sync(pb.SyncRequest(items=items)))
            assert sum(part.HasField("end") for part in parts) == 8
            item = pb.SyncItem(handle=handle, window="RANGE 1 DAY")
            watch = pb.WatchRequest(
                sync=pb.SyncRequest(items=[item]), rounds=1, every=Duration(seconds=1)
            )
            await answer(stub.Watch(watch))
            await stub.Explain(pb.ExplainRequest(handle=handle, window="RANGE 2 DAYS"))
            await stub.ListRegistrations(pb.ListRegistrationsRequest())
            await stub.DescribeRegistration(pb.DescribeRegistrationRequest(handle=handle))
        assert len(threads) > 12
        assert threading.current_thread().name not in threads


async def test_long_windows_are_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 items of 16 KB each held a server for minutes. No message holds so many any more."""
    async with serving(tmp_path) as server, calling(server) as stub:
        await prepare(stub, "")
        handle = (await stub.Register(pb.RegisterRequest(sql="SELECT a FROM s"))).handle
        window = "ROWS 5 PARTITION BY " + "a," * 8000 + "a"
        items = [pb.SyncItem(handle=handle, window=window) for _ in range(60)]
        with watched_reading(monkeypatch) as threads:
            parts = await answer(stub.Sync(pb.SyncRequest(items=items)))
        assert {part.refused.detail.reason for part in parts} == {"TEXT_TOO_LONG"}
        assert len(parts) == 60 and len(threads) <= 1
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await answer(stub.Invoke(pb.InvokeRequest(handle=handle, window=window)))
        assert detail(caught.value).reason == "TEXT_TOO_LONG"


async def test_heavy_conditions_count_for_more_and_go_on_when_asked_again(tmp_path: Path) -> None:
    terms = " OR ".join(f"t LIKE '%{n}a%'" for n in range(640))
    async with serving(tmp_path, compute_rows=40 * _ROWS) as server, calling(server) as stub:
        await prepare(stub, "")
        await ask(stub, "", "t LIKE '%a%'")
        refused = 0
        while True:
            try:
                header, *_ = await ask(stub, "", terms)
                break
            except grpc.aio.AioRpcError as error:
                assert detail(error).reason == "TOO_MUCH_WORK"
                refused += 1
                assert refused < 20
        assert refused and header.header.row_count == 1
