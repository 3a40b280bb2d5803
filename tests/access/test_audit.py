"""The audit: what was administered, by whom, from the log and from the engine's table."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from pyspark.sql import SparkSession

from psoup.access.keys import new_key
from psoup.engine.settings import EngineSettings
from psoup.server.core import Core
from psoup.store import Store
from psoup.store.audit import records_of
from psoup.store.log.access_events import AccessPut
from psoup.store.state.access import Key
from psoup.v1 import psoup_pb2 as pb
from psoup.write.keys import append_key, append_revocation, last_state
from psoup.write.timepiece import system_clock
from tests.damage import flip, named_files
from tests.support.engine.author import READINGS, Author
from tests.support.engine.pump import Pump
from tests.support.server.callers import NamedCaller, open_server

EAGER = EngineSettings(housekeeping=0.0, compact_files=2)
PATIENT = EngineSettings(housekeeping=0.0, compact_files=100)
STATEMENTS = (
    "CREATE STREAM orders (a BIGINT)",
    "CREATE VIEW few AS SELECT * FROM orders WHERE a < 3",
    "GRANT read, register ON orders TO ROLE field",
    "REVOKE read ON orders FROM ROLE field",
    "DROP STREAM orders CASCADE",
)
TOLD = [
    ("create stream", "orders"),
    ("create view", "few"),
    ("grant", "orders"),
    ("grant", "orders"),
    ("revoke", "orders"),
    ("drop view", "few"),
    ("revoke", "orders"),
    ("drop stream", "orders"),
    ("set quota", "owner alice"),
]


async def administer(boss: NamedCaller, root: NamedCaller) -> None:
    for sql in STATEMENTS:
        await boss.call("Define", pb.DefineRequest(sql=sql))
    limits = [pb.QuotaLimit(name="watches", limit=3)]
    await root.call("SetQuota", pb.SetQuotaRequest(tenant="shop", owner="alice", limits=limits))


async def pages(caller: NamedCaller, **fields: object) -> list[pb.AuditRecord]:
    records, token = [], ""
    while True:
        request = pb.AuditRequest(page_token=token, **fields)  # type: ignore[arg-type]
        (page,) = await caller.call("Audit", request)
        records += page.records
        token = page.next_page_token
        if not token:
            return records


def test_a_key_of_the_folder_has_the_time_of_its_machine(tmp_path: Path) -> None:
    store, before = Store.open(tmp_path / "store", create=True), system_clock()
    key, _ = new_key("main", "root", ("operator",), "", before)
    created = append_key(store, key)
    ended = append_revocation(store, "main", key.id)
    entries = [store.log.read(position.version)[0] for position in (created, ended)]
    state = store.state(store.epochs.latest()[1])
    for entry, action in zip(entries, ("create key", "revoke key"), strict=True):
        (record,) = records_of(state, entry)
        assert record.action == action and before <= record.stamp <= system_clock()
        state.apply(entry)
    # The time of the store goes on by servers' clocks alone.
    assert last_state(store).clock == 0


async def test_who_did_what(tmp_path: Path, spark: SparkSession) -> None:
    async with open_server(tmp_path / "store") as (server, stub):
        boss = NamedCaller(stub, "shop", "boss", ("administrator",))
        root = NamedCaller(stub, "ops", "root", ("operator",))
        await administer(boss, root)
        sql = "CREATE STREAM theirs (a BIGINT)"
        await root.call("Define", pb.DefineRequest(tenant="else", owner="eve", sql=sql))
        before = await pages(boss)
        actions = [(record.action, record.object) for record in reversed(before)]
        assert sorted(actions[5:8]) == sorted(TOLD[5:8]), "all of one drop"
        assert (actions[:5], actions[8:]) == (TOLD[:5], TOLD[8:])
        assert {record.actor for record in before[1:]} == {"boss"} and before[0].actor == "ops/root"
        assert {record.tenant for record in before} == {"shop"}
        assert "read ON orders TO ROLE field" in {record.detail for record in before}
        pump = Pump(server.core.store, spark, EAGER)
        pump.step()
        await root.call("Define", pb.DefineRequest(tenant="shop", sql="CREATE STREAM s (a BIGINT)"))
        await _wait_for_audit(server.core)
        after = await pages(boss, page_size=2)
        assert after[1:] == before and after[0].object == "s"
        everything = await pages(root)
        assert [record for record in everything if record.tenant == "shop"] == after
        (foreign,) = [record for record in everything if record.tenant == "else"]
        assert (foreign.actor, foreign.object) == ("ops/root", "theirs")
        with pytest.raises(grpc.aio.AioRpcError):
            await boss.call("Audit", pb.AuditRequest(page_token="nonsense"))


async def _wait_for_audit(core: Core) -> None:
    """Waits until the server shows the epoch."""
    while not core.follower.epoch.number:
        assert await core.follower.moved(20)
    await core.follower.catch_up()


def test_no_secret_and_no_digest_is_told(tmp_path: Path) -> None:
    author = Author(Store.open(tmp_path / "store", create=True, sync=False))
    author.create(READINGS)
    key = Key("k1", "main", "alice", ("reader",), '{"region": "north"}', "d1ge5t", 1)
    author.append(AccessPut((key,)))
    entry = author.store.log.read(2)[0]
    (record,) = records_of(author.state, entry)
    assert (record.action, record.object) == ("create key", "k1")
    assert "d1ge5t" not in repr(record) and "north" not in repr(record)


def test_small_files_become_one_and_nothing_is_lost(tmp_path: Path, spark: SparkSession) -> None:
    store = Store.open(tmp_path / "store", create=True, sync=False)
    author, pump = Author(store), Pump(store, spark, EAGER)
    for _ in range(4):
        author.drop(author.create(READINGS))
        pump.step()
    pump.run()
    rows = spark.read.format("delta").load(str(store.root / "audit")).collect()
    assert [row["action"] for row in sorted(rows, key=lambda row: row["position"])] == (
        ["create stream", "drop stream"] * 4
    )
    assert len(named_files(store, "audit")) == 1


def test_a_damaged_file_is_told_of(tmp_path: Path, spark: SparkSession) -> None:
    store = Store.open(tmp_path / "store", create=True, sync=False)
    author, pump = Author(store), Pump(store, spark, PATIENT)
    author.create(READINGS)
    pump.run()
    flip(named_files(store, "audit")[0])
    pump.run()
    rows = spark.read.format("delta").load(str(store.root / "audit")).collect()
    assert [(row["action"], row["detail"]) for row in rows] == [("lose audit", "1 records")]
