"""Queries of many references, through a server in this process: answers and copies."""

from __future__ import annotations

from pathlib import Path

import grpc
import pyarrow as pa
import pytest

from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import Copy
from tests.support.server.callers import tenant_server
from tests.support.server.process import detail, ipc


@pytest.mark.parametrize("count", [3, 33, 64])
async def test_copies_of_many_references(count: int, tmp_path: Path) -> None:
    """Up to 32 references a copy slides; with more it is synced as a result."""
    names = [f"t{number}" for number in range(count)]
    links = [f"{one}.a = {other}.b" for one, other in zip(names, names[1:], strict=False)]
    listed = ", ".join(f"t AS {name}" for name in names)
    text = f"SELECT t0.a FROM {listed} WHERE {' AND '.join(links)}"
    async with tenant_server(tmp_path) as server:
        caller, copy = server.administrator, Copy()
        await caller.define("CREATE STREAM t (a BIGINT, b BIGINT)")
        await caller.publish("t", a=[1, 2], b=[1, 3])
        handle = await caller.register(text)
        for values in ([1], [1, 2, 3, 4]):
            await caller.sync(handle, copy)
            assert copy.slides == (count <= 32)
            assert sorted(copy.answer(copy.now)) == [(value,) for value in values]
            assert sorted((await caller.invoke(handle))[1]) == values
            await caller.publish("t", a=[3, 4], b=[2, 4])


async def test_a_query_that_reads_no_stream_is_asked(tmp_path: Path) -> None:
    async with tenant_server(tmp_path) as server:
        caller = server.administrator
        assert await caller.ask("SELECT 1 IN (2, 3) AS a, 1 AS b") == [(False, 1)]
        (instant,) = await caller.ask("SELECT NOW AS at")
        assert instant.timestamp() * 1e6 <= server.core.follower.now
        explained = await caller.only("Explain", pb.ExplainRequest(sql="SELECT 1 AS a"))
        assert explained.operator.inputs[0].name == "one row" and not explained.legs
        one = pb.RegisterRequest(sql="SELECT 1 AS a")
        table = ipc(pa.table({"v": [1, 2]}))
        many = pb.RegisterManyRequest(sql="SELECT :v AS a", arrow=table)
        for rpc, request in (("Register", one), ("RegisterMany", many)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await caller.call(rpc, request)
            assert detail(caught.value).reason == "NOT_YET" and detail(caught.value).hint


async def test_rows_that_no_stream_brings(tmp_path: Path) -> None:
    """Beside streams they stay as they are, in answers, views and copies."""
    async with tenant_server(tmp_path) as server:
        caller, copy = server.administrator, Copy()
        await caller.define("CREATE STREAM t (a BIGINT)")
        await caller.define("CREATE VIEW limits AS SELECT 2 AS least, 'x' AS name")
        assert await caller.ask("SELECT * FROM limits") == [(2, "x")]
        join = await caller.register("SELECT t.a FROM t, limits WHERE t.a >= limits.least")
        union = await caller.register("SELECT t.a FROM t UNION ALL SELECT 7")
        for values in ([], [1, 2, 3]):
            if values:
                await caller.publish("t", a=values)
            assert (await caller.invoke(join))[1] == [value for value in values if value >= 2]
            await caller.sync(union, copy)
            assert sorted(copy.answer(copy.now)) == [(value,) for value in [*values, 7]]
