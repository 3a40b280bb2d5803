"""ALTER takes `define` on the stream; what it ends is named only to those who may see it; policies
and grants stay; only its source publishes to a stream that has one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from psoup.v1 import psoup_pb2 as pb
from tests.support.server.callers import NamedCaller, open_server
from tests.support.server.process import detail, ipc


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncIterator[Any]:
    async with open_server(tmp_path / "store") as (_, stub):
        boss = NamedCaller(stub, "shop", "boss", ("administrator",))
        await boss.define("CREATE STREAM orders (region TEXT, amount BIGINT) RETAIN 1 DAY")
        await boss.define("CREATE STREAM secrets (a BIGINT)")
        await boss.define("GRANT define ON orders TO OWNER dana")
        await boss.define("GRANT read ON orders TO ROLE field")
        await boss.define("CREATE POLICY mine ON orders USING (region = claim('region'))")
        yield stub


async def refusal(work: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as problem:
        await work
    return detail(problem.value).reason, str(problem.value.details())


async def test_define_on_the_stream_is_needed_and_enough(stub: Any) -> None:
    dana = NamedCaller(stub, "shop", "dana", ())
    reader = NamedCaller(stub, "shop", "ann", ("reader",))
    add = "ALTER STREAM orders ADD COLUMN venue TEXT"
    assert (await refusal(reader.define(add)))[0] == "PERMISSION_DENIED"
    assert (await refusal(dana.define("ALTER STREAM secrets ADD COLUMN b TEXT")))[0] in (
        "UNKNOWN_STREAM",
        "PERMISSION_DENIED",
    )
    await dana.define(add)
    boss = NamedCaller(stub, "shop", "boss", ("administrator",))
    audit = await boss.only("Audit", pb.AuditRequest())
    record = next(record for record in audit.records if record.action == "alter stream")
    assert (record.actor, record.object) == ("dana", "orders")
    assert record.detail == "ADD COLUMN venue TEXT"


async def test_policies_and_grants_stay(stub: Any) -> None:
    boss = NamedCaller(stub, "shop", "boss", ("administrator",))
    table = pa.table({"region": ["n", "s"], "amount": [1, 2]})
    request = pb.PublishRequest(stream="orders", arrow=ipc(table))
    await boss.only("Publish", request)
    await boss.define("ALTER STREAM orders ADD COLUMN fee DOUBLE DEFAULT 0.5")
    await boss.only("Publish", request)
    reader = NamedCaller(stub, "shop", "ann", ("field", "reader"), claims={"region": "n"})
    handle = await reader.register("SELECT amount, fee FROM orders WHERE fee = 0.5")
    assert (await reader.invoke(handle))[1] == [(1, 0.5), (1, 0.5)]


async def test_registrations_of_others_are_counted_not_named(stub: Any) -> None:
    boss = NamedCaller(stub, "shop", "boss", ("administrator",))
    await boss.register("SELECT amount FROM orders RANGE 20 HOURS", client_key="private")
    dana = NamedCaller(stub, "shop", "dana", ())
    reason, text = await refusal(dana.define("ALTER STREAM orders SET RETAIN 1 HOUR"))
    assert reason == "IN_USE" and "private" not in text
    reason, text = await refusal(boss.define("ALTER STREAM orders SET RETAIN 1 HOUR"))
    assert reason == "IN_USE" and "private of boss" in text
    ended = (await dana.define("ALTER STREAM orders SET RETAIN 1 HOUR CASCADE")).ended
    assert not ended.registrations and ended.registration_count == 0


async def test_the_source_of_another_owner(stub: Any) -> None:
    boss = NamedCaller(stub, "shop", "boss", ("administrator",))
    await boss.define("CREATE STREAM fed (a BIGINT) SOURCE kafka OWNER gate")
    arrow = ipc(pa.table({"a": [1]}))
    request = pb.PublishRequest(stream="fed", arrow=arrow, publisher="kafka/0", sequence=1)
    gate = NamedCaller(stub, "shop", "gate", ("publisher",))
    stranger = NamedCaller(stub, "shop", "other", ("publisher",))
    await gate.only("Publish", request)
    for caller in (stranger, boss):
        assert (await refusal(caller.only("Publish", request)))[0] == "PERMISSION_DENIED"
