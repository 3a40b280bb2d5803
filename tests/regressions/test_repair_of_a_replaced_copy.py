"""A client asks to have a copy of combinations repaired, and says which of them it has; but the
copy is replaced, because other policies bind the client by now. Of the whole answer those were left
out that the client had, though it forgets them with the copy."""

from __future__ import annotations

from pathlib import Path

from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import Copy, runs_of
from tests.support.server.callers import tenant_server


async def test_a_whole_answer_is_whole_for_whoever_had_some_of_it(tmp_path: Path) -> None:
    async with tenant_server(tmp_path / "store") as server:
        boss = server.administrator
        await boss.define("CREATE STREAM a (k BIGINT)")
        await boss.define("CREATE STREAM b (k BIGINT)")
        await boss.define("CREATE POLICY low ON a USING (k < claim('most'))")
        for stream in ("a", "b"):
            await boss.publish(stream, k=list(range(10)))
        handle = await boss.register("SELECT a.k FROM a JOIN b ON a.k = b.k")
        copy = Copy()
        await server.caller(most=5).sync(handle, copy)
        del copy.rows[min(copy.rows)]
        begin = await server.caller(most=8).sync(handle, copy, have=runs_of(set(copy.rows)))
        assert begin.reason == pb.SYNC_REASON_PERMISSION
        assert [row[0] for row in copy.answer(copy.now)] == list(range(8))
