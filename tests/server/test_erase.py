"""ERASE through a server: rows of a key leave answers and copies at once, also of clients that were
away; the key is refused; neither the log nor the audit has its value."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import Copy
from tests.support.engine.leftovers import leftovers
from tests.support.server.callers import NamedCaller, TenantServer, tenant_server
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import detail

PEOPLE = "CREATE STREAM people (id BIGINT, name TEXT, region TEXT) KEY (id)"
ORDERS = "CREATE STREAM orders (person TEXT, item TEXT, price DOUBLE)"


@asynccontextmanager
async def shop(path: Path) -> AsyncIterator[tuple[TenantServer, NamedCaller]]:
    async with tenant_server(path / "store") as server:
        boss = server.administrator
        await boss.define(PEOPLE)
        await boss.define(ORDERS)
        await boss.publish("people", id=[1, 2, 3], name=["Ann", "Bob", "Cy"], region=["n"] * 3)
        await boss.publish("people", id=[2], name=["Robert"], region=["s"])
        await boss.publish(
            "orders",
            person=["Ann", "Bob", "Bob"],
            item=["lamp", "bed", "cup"],
            price=[1.0, 2.0, 4.0],
        )
        yield server, boss


async def test_erased_rows_are_in_no_answer(tmp_path: Path) -> None:
    async with shop(tmp_path) as (server, boss):
        names = "SELECT name FROM people ORDER BY id"
        handle = await boss.register(names)
        grouped = await boss.register("SELECT region, COUNT(*) AS n FROM people GROUP BY region")
        joined = "SELECT o.item FROM orders o JOIN people p ON o.person = p.name ORDER BY o.item"
        assert (await boss.invoke(handle))[1] == ["Ann", "Robert", "Cy"]
        assert sorted((await boss.invoke(grouped))[1]) == [("n", 2), ("s", 1)]
        before = server.core.follower.now
        response = await boss.define("ERASE FROM people WHERE id = 2")
        assert response.stream.name == "people" and "2 rows are erased" in response.notes[0]
        assert (await boss.invoke(handle))[1] == ["Ann", "Cy"]
        assert (await boss.invoke(grouped))[1] == [("n", 2)]
        assert await boss.ask(joined) == ["lamp"]
        past = pb.InvokeRequest(handle=handle)
        past.as_of.FromMicroseconds(before)
        assert (await boss.invoke(handle, as_of=past.as_of))[1] == ["Ann", "Cy"]
        await boss.define("ERASE FROM orders WHERE person = 'Bob'")
        assert await boss.ask("SELECT SUM(price) AS total FROM orders") == [1.0]
    # A server that starts later knows it, from the log and from an epoch.
    async with tenant_server(tmp_path / "store") as server:
        assert await server.administrator.ask(names) == ["Ann", "Cy"]
        HandMadeEngine(server.core.store).step()
    async with tenant_server(tmp_path / "store") as server:
        assert await server.administrator.ask(names) == ["Ann", "Cy"]
        assert (await server.administrator.invoke(grouped))[1] == [("n", 2)]


async def test_copies_lose_erased_rows(tmp_path: Path) -> None:
    async with shop(tmp_path) as (server, boss):
        texts = {
            "rows": "SELECT id, name FROM people",
            "groups": "SELECT region, COUNT(*) AS n FROM people GROUP BY region",
            "distinct": "SELECT DISTINCT region FROM people",
            "newest": "SELECT name FROM people ROWS 1",
            "join": "SELECT o.item FROM orders o JOIN people p ON o.person = p.name",
            "orders": "SELECT item FROM orders",
        }
        handles = {name: await boss.register(text) for name, text in texts.items()}
        copies = {name: Copy() for name in texts}
        changes = Copy()
        for name, handle in handles.items():
            await boss.sync(handle, copies[name])
        await boss.sync(handles["rows"], changes, changes=True)
        await boss.define("ERASE FROM people WHERE id = 2")
        await boss.publish("people", id=[4], name=["Di"], region=["w"])
        for name, handle in handles.items():
            begin = await boss.sync(handle, copies[name])
            told = name in ("rows", "orders")
            assert begin.reason == (pb.SYNC_REASON_UNSPECIFIED if told else pb.SYNC_REASON_ERASED)
            shown = (await boss.invoke(handle))[1]
            assert len(copies[name].rows) == len(shown), name
        begin = await boss.sync(handles["rows"], changes, changes=True)
        assert begin.reason == pb.SYNC_REASON_UNSPECIFIED
        assert "Robert" not in str(changes.rows) and "Robert" not in str(copies["rows"].rows)
        # Nothing more is told by the next sync.
        begin = await boss.sync(handles["groups"], copies["groups"])
        assert begin.reason == pb.SYNC_REASON_UNSPECIFIED


async def test_a_connected_watch_loses_the_rows(tmp_path: Path) -> None:
    async with shop(tmp_path) as (_, boss):
        handle, copy = await boss.register("SELECT name FROM people"), Copy()
        request = pb.WatchRequest(sync=pb.SyncRequest(items=[pb.SyncItem(handle=handle)]))
        watch = boss.stub.Watch(request, metadata=boss.metadata, timeout=30)

        async def follow(count: int) -> None:
            async for part in watch:
                copy.take(part)
                if part.HasField("end") and len(copy.rows) == count:
                    return

        await follow(3)
        await boss.define("ERASE FROM people WHERE id = 1")
        await asyncio.wait_for(follow(2), 20)
        watch.cancel()


async def test_the_key_is_refused_and_its_value_is_nowhere(tmp_path: Path) -> None:
    async with tenant_server(tmp_path / "store") as server:
        boss = server.administrator
        await boss.define("CREATE STREAM people (id TEXT, name TEXT) KEY (id)")
        await boss.publish("people", id=["other"], name=["x"])
        seen = set(leftovers(tmp_path, "Annabella-Zyx"))
        assert not seen
        await boss.define("ERASE FROM people WHERE id = 'Annabella-Zyx'")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await boss.publish("people", id=["other", "Annabella-Zyx"], name=["x", "y"])
        assert detail(caught.value).reason == "ERASED" and detail(caught.value).row == 1
        await boss.publish("people", id=["other"], name=["y"])
        assert not leftovers(tmp_path, "Annabella-Zyx")
        audit = await boss.only("Audit", pb.AuditRequest())
        erased = [record for record in audit.records if record.action == "erase"]
        assert len(erased) == 2 and "Annabella" not in str(audit)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ERASE FROM people WHERE id > 1", "BAD_ERASE"),
        ("ERASE FROM people WHERE id = 1 OR id = 2", "BAD_ERASE"),
        ("ERASE FROM people WHERE name = 'Ann'", "BAD_ERASE"),
        ("ERASE FROM people WHERE id = NULL", "BAD_ERASE"),
        ("ERASE FROM orders WHERE person = 'Ann' AND item = 'lamp'", "BAD_ERASE"),
        ("ERASE FROM orders WHERE person = item", "BAD_ERASE"),
        ("ERASE FROM persons WHERE id = 1", "UNKNOWN_STREAM"),
        ("ERASE FROM people", "SYNTAX"),
        ("ERASE people", "SYNTAX"),
    ],
)
async def test_refused_statements(text: str, reason: str, tmp_path: Path) -> None:
    async with shop(tmp_path) as (server, boss):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await boss.define(text)
        assert detail(caught.value).reason == reason
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.caller().define("ERASE FROM people WHERE id = 1")
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert len(await boss.ask("SELECT id FROM people")) == 3
