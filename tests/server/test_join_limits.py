"""What a join may take: pairs, memory and time; and others are not held up by it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from psoup.answers.joins.join_limits import JoinLimits
from psoup.server.main import Server
from psoup.v1 import psoup_pb2 as pb
from querystem.join import methods
from tests.server.test_overload import (
    Gate,
    answer,
    calling,
    gate,
    granted,
    prepare,
    serving,
    small_chunks,
    until,
)
from tests.support.server.process import detail, rows_of

__all__ = ["gate", "granted", "small_chunks"]

CROSS = "SELECT x.a FROM s x, s y"
# A condition that is evaluated for each pair, and waits at the gate.
HELD = f"{CROSS} WHERE x.t LIKE '%1%' OR y.a = 1"


def ask(stub: Any, sql: str, tenant: str = "", **options: Any) -> Any:
    return answer(stub.Ask(pb.AskRequest(tenant=tenant, sql=sql), **options))


async def refused(stub: Any, sql: str) -> tuple[grpc.StatusCode, pb.ErrorDetail]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(stub, sql)
    return caught.value.code(), detail(caught.value)


async def test_too_many_pairs_are_counted_and_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, join_pairs=9_999) as server, calling(server) as stub:
        await prepare(stub, "")
        code, problem = await refused(stub, CROSS)
        assert (code, problem.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MUCH_WORK")
        assert (problem.expected, problem.got) == ("at most 9999 pairs", "10000 pairs")
        assert "narrow a window" in problem.hint and not problem.HasField("retry_after")
        handle = (await stub.Register(pb.RegisterRequest(sql=CROSS))).handle
        with pytest.raises(grpc.aio.AioRpcError, match="10,000 pairs"):
            await answer(stub.Invoke(pb.InvokeRequest(handle=handle)))
        with pytest.raises(grpc.aio.AioRpcError, match="10,000 pairs"):
            await stub.Explain(pb.ExplainRequest(handle=handle))
        header, *_ = await ask(stub, f"{CROSS} WHERE x.a = y.a")
        assert header.header.row_count == 100


def bounded(server: Server, nbytes: int) -> JoinLimits:
    """Bounds the memory of joins; gives the limits that were before."""
    before = server.core.maker.join_limits
    server.core.maker.join_limits = replace(before, nbytes=nbytes)
    return before


async def test_the_memory_of_a_join_is_bounded(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, calling(server) as stub:
        await prepare(stub, "")
        assert bounded(server, 100_000).nbytes == server.settings.memory // 4
        for sql in (CROSS, HELD.replace("%1%", "%")):
            code, problem = await refused(stub, sql)
            assert (code, problem.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MUCH_WORK")
            assert problem.expected == "at most 100000 bytes" and problem.got.endswith(" bytes")
        bounded(server, 2_000_000)
        header, *_ = await ask(stub, CROSS)
        assert header.header.row_count == 10_000


@pytest.mark.usefixtures("small_chunks")
async def test_the_memory_of_joins_under_way_counts(tmp_path: Path, gate: Gate) -> None:
    async with serving(tmp_path) as server, calling(server) as stub:
        await prepare(stub, "")
        memory = server.core.follower.memory
        before = memory.used
        first = asyncio.create_task(ask(stub, HELD))
        await until(lambda: gate.entered > 0)
        assert memory.used > before
        gate.open()
        await first
        assert memory.used == before


@pytest.mark.usefixtures("small_chunks")
async def test_a_join_ends_at_its_deadline(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "PAIRS_AT_ONCE", 100)
    async with serving(tmp_path) as server, calling(server) as stub:
        await prepare(stub, "")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(stub, HELD, timeout=1)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: all(turn._cut for turn in server.core.turns._present))
        entered = gate.entered
        gate.open()
        await server.core.turns.ended()
        assert gate.entered == entered, "pairs were looked at for somebody who had gone"


async def test_small_calls_go_on_beside_joins(
    tmp_path: Path, gate: Gate, granted: list[str]
) -> None:
    async with (
        serving(tmp_path) as server,
        calling(server) as heavy,
        calling(server) as light,
    ):
        await prepare(light, "heavy", "light")
        query = pb.RegisterRequest(tenant="light", sql="SELECT a FROM s WHERE a = 1")
        invoke = pb.InvokeRequest(tenant="light", handle=(await light.Register(query)).handle)
        await answer(light.Invoke(invoke))
        joins = [asyncio.create_task(ask(heavy, HELD, "heavy")) for _ in range(8)]
        workers = server.settings.workers
        await until(lambda: gate.entered == workers and server.core.turns.waiting == 8 - workers)
        await light.Status(pb.StatusRequest())
        # The new row has to be evaluated, which takes one turn.
        row = rows_of(["a", "t"], [pb.Value(bigint=1), pb.Value(text="new")])
        await light.Publish(pb.PublishRequest(tenant="light", stream="s", rows=row))
        small = asyncio.create_task(answer(light.Invoke(invoke)))
        await until(lambda: server.core.turns.waiting == 8 - workers + 1)
        before = len(granted)
        gate.let_through()
        header, *_ = await small
        assert header.header.row_count == 2
        assert granted[before] == "light", "the first chunk that could begin was its own"
        gate.open()
        assert len(await asyncio.gather(*joins)) == 8
