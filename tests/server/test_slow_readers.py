"""Slow readers: what a server holds of an answer until a client has read it, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pytest

from benchmarks.memory import resident
from psoup.answers import Question
from psoup.server.calls import sending
from psoup.server.calls.binding import readable
from psoup.server.core import Core
from psoup.server.main import Server
from psoup.server.settings import Settings
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from tests.server.conftest import Start
from tests.support.server.callers import NamedCaller, anyone, new_call
from tests.support.server.process import detail, ipc

MIB = 1 << 20
ROWS = 300_000
# A client with a small window takes little of what it does not read.
SMALL_WINDOW = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 64 << 10),
    ("grpc.max_receive_message_length", -1),
]

GROUPS = "SELECT k, sum(a) AS s, count(*) AS n FROM s GROUP BY k"


def rows_of(count: int, first: int = 0) -> pa.Table:
    dice = np.random.default_rng(first)
    return pa.table(
        {"k": np.arange(first, first + count), "a": dice.random(count), "b": dice.random(count)}
    )


@asynccontextmanager
async def serving(path: Path, **settings: Any) -> AsyncIterator[tuple[Core, Any, NamedCaller]]:
    """A server in this process, a stub with a small window, and a caller."""
    server = Server(Settings(path / "store", durability="none", drain=0.1, **settings))
    await server.start()
    try:
        place = f"127.0.0.1:{server.port}"
        async with grpc.aio.insecure_channel(place, options=SMALL_WINDOW) as channel:
            stub = PsoupStub(channel)
            yield server.core, stub, NamedCaller(stub)
    finally:
        await server.stop()


async def fill(stub: Any, stream: str, count: int) -> None:
    columns = "k BIGINT, a DOUBLE, b DOUBLE"
    await stub.Define(pb.DefineRequest(sql=f"CREATE STREAM {stream} ({columns})"))
    for first in range(0, count, 100_000):
        table = rows_of(min(100_000, count - first), first)
        await stub.Publish(pb.PublishRequest(stream=stream, arrow=ipc(table)))


def invoke(stub: Any, handle: bytes, **fields: Any) -> Any:
    return stub.Invoke(pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW, **fields))


async def table_of(call: Any, *parts: pb.InvokeResponse) -> pa.Table:
    content = [part.arrow for part in parts]
    while part := await call.read():
        content.append(part.arrow)
    return pa.ipc.open_stream(b"".join(content)).read_all()


async def eventually(condition: Any) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came true")


QUERIES = [
    "SELECT * FROM s",
    "SELECT k, a FROM s WHERE a < 0.5",
    "SELECT k + 1 AS next, a * b AS product FROM s",
    "SELECT k, a FROM s ORDER BY a DESC",
    GROUPS,
]


@pytest.mark.parametrize("sql", QUERIES)
def test_an_answer_in_chunks_is_the_answer(tmp_path: Path, sql: str) -> None:
    """In both encodings; the room is free again when the last message is read."""

    async def test() -> None:
        async with serving(tmp_path) as (core, stub, caller):
            await fill(stub, "s", 150_000)
            handle = await caller.register(sql)
            call = invoke(stub, handle)
            header = (await call.read()).header
            table = await table_of(call)
            view = core.follower.view
            expected = core.maker.answer(view, await question(core, handle)).table
            assert header.row_count == table.num_rows == expected.num_rows
            assert table.equals(expected.combine_chunks())
            typed = stub.Invoke(pb.InvokeRequest(handle=handle))
            rows = [row async for part in typed for row in part.rows.rows]
            assert len(rows) == table.num_rows
            first = table.schema.names[0]
            firsts = [getattr(row.values[0], row.values[0].WhichOneof("kind")) for row in rows]
            assert firsts == table.column(first).to_pylist()
            await eventually(lambda: not core.answer_room.used)

    asyncio.run(test())


async def question(core: Core, handle: bytes) -> Question:
    acting = anyone()
    source, prepared = await readable(core, new_call(), acting, handle, "", False)
    return Question(source, prepared.query, acting.principal, prepared=prepared)


def test_late_rows_are_in_order(tmp_path: Path) -> None:
    """Blocks overlap in time, and rows are sent by their ts all the same."""

    async def test() -> None:
        async with serving(tmp_path) as (core, stub, caller):
            sql = "CREATE STREAM s (k BIGINT, at TIMESTAMP) ORDERED BY at"
            await stub.Define(pb.DefineRequest(sql=sql))
            dice = np.random.default_rng(7)
            for first in range(0, 200_000, 50_000):
                at = np.arange(first, first + 50_000) * 1000
                late = dice.random(50_000) < 0.01
                at[late] = np.maximum(0, at[late] - 30_000_000)
                instants = pa.array(at, pa.timestamp("us", tz="UTC"))
                table = pa.table({"k": np.arange(first, first + 50_000), "at": instants})
                await stub.Publish(pb.PublishRequest(stream="s", arrow=ipc(table)))
            handle = await caller.register("SELECT k, at FROM s")
            call = invoke(stub, handle)
            await call.read()
            table = await table_of(call)
            expected = core.maker.answer(core.follower.view, await question(core, handle)).table
            assert table.equals(expected.combine_chunks())
            ts = table.column("at").to_numpy().astype(np.int64)
            assert (np.diff(ts) >= 0).all() and (np.diff(table.column("k").to_numpy()) < 0).any()

    asyncio.run(test())


def test_an_answer_without_room_waits_and_is_refused_holding_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "STALL_SECONDS", 3600.0)

    async def test() -> None:
        settings: dict[str, Any] = {"memory": 32 * MIB, "patience": 0.2}
        async with serving(tmp_path, **settings) as (core, stub, caller):
            await fill(stub, "s", ROWS)
            handle = await caller.register(GROUPS)
            slow = invoke(stub, handle)
            header = (await slow.read()).header
            first = await slow.read()
            used = core.answer_room.used
            assert used > 4 * MIB
            for _ in range(3):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await table_of(invoke(stub, handle))
                error = detail(refused.value)
                assert error.reason == "OVERLOADED" and error.HasField("retry_after")
            # What is made ahead for the slow reader may come or go.
            assert abs(core.answer_room.used - used) < 4 * MIB
            # Small answers go on meanwhile, and so do those that are kept as ids.
            few = await caller.register("SELECT k FROM s WHERE k < 10")
            assert len((await caller.invoke(few))[1]) == 10
            assert (await table_of(slow, first)).num_rows == header.row_count == ROWS
            await eventually(lambda: not core.answer_room.used)
            again = invoke(stub, handle)
            await again.read()
            assert (await table_of(again)).num_rows == ROWS

    asyncio.run(test())


def test_a_client_that_stalls_loses_its_answer_if_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(sending, "_STALL_POLL_SECONDS", 0.05)

    async def test() -> None:
        async with serving(tmp_path, memory=32 * MIB, patience=60.0) as (core, stub, caller):
            await fill(stub, "s", ROWS)
            handle = await caller.register(GROUPS)
            stalled = invoke(stub, handle)
            await stalled.read()
            first = await stalled.read()
            waiting = invoke(stub, handle)
            await waiting.read()
            assert (await table_of(waiting)).num_rows == ROWS
            with pytest.raises(grpc.aio.AioRpcError) as dropped:
                await table_of(stalled, first)
            assert dropped.value.code() is grpc.StatusCode.ABORTED
            assert detail(dropped.value).reason == "DATA_FILE_GONE"
            await eventually(lambda: not core.answer_room.used)

    asyncio.run(test())


def test_a_sync_of_results_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "STALL_SECONDS", 3600.0)

    async def test() -> None:
        settings: dict[str, Any] = {"memory": 32 * MIB, "patience": 0.2}
        async with serving(tmp_path, **settings) as (core, stub, caller):
            await fill(stub, "s", ROWS)
            handle = await caller.register(GROUPS)
            items = pb.SyncRequest(items=[pb.SyncItem(handle=handle)])
            slow = stub.Sync(items)
            await slow.read()
            used = core.answer_room.used
            assert used > 4 * MIB
            (part,) = [part async for part in stub.Sync(items)]
            assert part.refused.detail.reason == "OVERLOADED"
            watched = stub.Watch(pb.WatchRequest(sync=items, rounds=1))
            assert (await watched.read()).refused.detail.reason == "OVERLOADED"
            assert core.answer_room.used == used
            slow.cancel()
            await eventually(lambda: not core.answer_room.used)
            parts = [part async for part in stub.Sync(items)]
            assert parts[-1].end.row_count == ROWS
            await eventually(lambda: not core.answer_room.used)

    asyncio.run(test())


def test_a_reader_past_the_grace_is_told_that_rows_are_gone(tmp_path: Path) -> None:
    """The rows are read from what the answer began with, for as long as that is there."""

    async def test() -> None:
        async with serving(tmp_path) as (core, stub, caller):
            await fill(stub, "s", ROWS)
            handle = await caller.register("SELECT k, a, b FROM s")
            whole = invoke(stub, handle)
            await whole.read()
            expected = await table_of(whole)
            patient, slow = invoke(stub, handle), invoke(stub, handle)
            for call in (patient, slow):
                await call.read()
            firsts = [await patient.read(), await slow.read()]
            await stub.Define(pb.DefineRequest(sql="DROP STREAM s"))
            assert core.follower.view.find_stem(stream_of(core)) is None
            assert (await table_of(patient, firsts[0])).equals(expected)
            for file in (tmp_path / "store" / "log").glob("*.parquet"):
                file.unlink()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await table_of(slow, firsts[1])
            assert caught.value.code() is grpc.StatusCode.ABORTED
            assert detail(caught.value).reason == "DATA_FILE_GONE"
            await eventually(lambda: not core.answer_room.used)

    asyncio.run(test())


def stream_of(core: Core) -> int:
    (stream,) = core.follower.state.streams.values()
    return stream.id


@pytest.mark.process
@pytest.mark.parametrize(
    ("sql", "call"),
    [
        ("SELECT k, a, b FROM s WHERE a < 0.9", "Invoke"),
        ("SELECT k + 1 AS k, a * b AS a, b FROM s", "Ask"),
        ("SELECT k, a, b FROM s", "Sync"),
        pytest.param(GROUPS, "Invoke", marks=pytest.mark.soak),
        pytest.param(GROUPS, "Sync", marks=pytest.mark.soak),
    ],
)
def test_slow_readers_leave_the_memory_as_it_is(start: Start, sql: str, call: str) -> None:
    """Thirty of them. Without a bound each would take the rows of its answer, 7 to 12 MB."""
    server = start("--memory", "128MB", "--durability", "none")
    server.define("CREATE STREAM s (k BIGINT, a DOUBLE, b DOUBLE)")
    for first in range(0, ROWS, 100_000):
        server.publish("s", rows_of(100_000, first))
    handle = server.register(sql).handle
    _drain(_calls(server.stub, call, sql, handle))
    before = resident([server.pid])
    channels = [grpc.insecure_channel(server.address, options=SMALL_WINDOW) for _ in range(30)]
    calls = [_calls(PsoupStub(channel), call, sql, handle) for channel in channels]
    outcomes = [_first(reader) for reader in calls]
    assert set(outcomes) <= {"", "OVERLOADED"} and outcomes.count("")
    assert resident([server.pid]) - before < 100 * MIB
    for channel in channels:
        channel.close()
    assert _drain(_calls(server.stub, call, sql, handle)) > MIB


def _calls(stub: Any, call: str, sql: str, handle: bytes) -> Any:
    match call:
        case "Invoke":
            return stub.Invoke(pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW))
        case "Ask":
            return stub.Ask(pb.AskRequest(sql=sql, encoding=pb.ENCODING_ARROW))
        case _:
            items = [pb.SyncItem(handle=handle)]
            return stub.Sync(pb.SyncRequest(items=items, encoding=pb.ENCODING_ARROW))


def _first(call: Any) -> str:
    """Read two messages; return the reason of a refusal, or nothing."""
    try:
        part = next(call)
        if isinstance(part, pb.SyncPart) and part.HasField("refused"):
            return str(part.refused.detail.reason)
        next(call)
    except grpc.RpcError as error:
        return str(detail(error).reason)
    return ""


def _drain(call: Any) -> int:
    return sum(part.ByteSize() for part in call)


async def test_ids_that_a_few_bytes_name_take_room_until_the_sync_ends(tmp_path: Path) -> None:
    async with serving(tmp_path, memory=64 * MIB, patience=0.3) as (core, stub, caller):
        await caller.define("CREATE STREAM s (k BIGINT, a DOUBLE, b DOUBLE)")
        handle = await caller.register("SELECT k FROM s")
        repair = pb.SyncItem(handle=handle, have=pb.Ids(runs=[0, 4_000_000]))
        request = pb.SyncRequest(items=[repair])
        used = core.room.used
        sizes: list[int] = []
        count_room = core.room._count

        def count(nbytes: int) -> None:
            count_room(nbytes)
            sizes.append(core.room.used)

        core.room._count = count  # type: ignore[method-assign]
        assert [part async for part in stub.Sync(request)]
        assert max(sizes) >= 4_000_000 * 8 and core.room.used == used
        # Another request has the room: the repair waits, and is told to come again.
        assert core.room.try_take(30 * MIB)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            [part async for part in stub.Sync(request)]
        assert detail(refused.value).reason == "OVERLOADED"
