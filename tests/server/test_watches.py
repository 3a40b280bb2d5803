"""Whom an event wakes: nobody whom it does not concern, and nobody is forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from datastem.instants import SECOND
from psoup.server.calls import watch
from psoup.server.calls.define import define
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.calls.watch import Watcher
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.server.watches import prober
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.registrations import UnregisterOne
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

START = 1_700_000_000 * SECOND
_STREAMS = (
    "CREATE STREAM s (a BIGINT)",
    "CREATE STREAM other (a BIGINT)",
    "CREATE STREAM event (a BIGINT, at TIMESTAMP) ORDERED BY at AHEAD 1 HOUR",
    "CREATE STREAM keyed (a BIGINT, b BIGINT) KEY (a)",
    "CREATE VIEW big AS SELECT a FROM s WHERE a > 100",
)


@dataclass
class Server:
    core: Core
    clock: int = START
    watchers: list[Watcher] = field(default_factory=list)

    async def define(self, sql: str) -> None:
        await define(self.core, new_call(), pb.DefineRequest(sql=sql))

    async def watch(self, *queries: str) -> Watcher:
        """A Watch of queries, after its first round."""
        items = []
        for sql in queries:
            registered, *_ = await register(self.core, new_call(), pb.RegisterRequest(sql=sql))
            items.append(pb.SyncItem(handle=registered.handles[0]))
        watcher = Watcher(self.core, new_call(), pb.SyncRequest(items=items)).__enter__()
        self.watchers.append(watcher)
        await self.woken(watcher)
        return watcher

    async def woken(self, watcher: Watcher) -> list[int]:
        """The items that were woken since, after a round of them."""
        await self.core.watches.settled()
        self.core.watches._check()
        due = sorted(watcher._due)
        while watcher._due:
            async for _ in watcher.round():
                pass
        return due

    async def publish(self, stream: str, *a: int, **columns: list[Any]) -> None:
        self.clock += SECOND
        rows = pa.table({"a": pa.array(a, pa.int64()), **columns})
        await publish(self.core, new_call(), pb.PublishRequest(stream=stream, arrow=ipc(rows)))

    async def publish_at(self, *seconds: int) -> None:
        """Rows of event time, so many seconds from the start."""
        at = pa.array([START + second * SECOND for second in seconds], pa.int64()).view(
            "timestamp[us]"
        )
        await self.publish("event", *seconds, at=at)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server_ = Server.__new__(Server)
    core = Core(
        Store.open(tmp_path / "s", create=True, sync=False),
        Settings(tmp_path / "s"),
        lambda: server_.clock,
    )
    server_.__init__(core)  # type: ignore[misc]
    await core.start()
    for sql in _STREAMS:
        await server_.define(sql)
    yield server_
    for watcher in server_.watchers:
        watcher.__exit__()
    assert not len(core.watches)
    await core.watches.settled()
    core.watches._check()
    await core.stop()


async def test_rows_wake_whose_predicate_they_match(server: Server) -> None:
    where = [f"SELECT a FROM s WHERE a = {number}" for number in range(300)]
    watcher = await server.watch(*where, "SELECT a FROM s", "SELECT a FROM other")
    await server.publish("s", 7, 200, 555)
    assert await server.woken(watcher) == [7, 200, 300]
    await server.publish("other", 7)
    assert await server.woken(watcher) == [301]
    await server.publish("s", 999)
    assert await server.woken(watcher) == [300]


async def test_any_row_wakes_where_others_shift_or_end(server: Server) -> None:
    watcher = await server.watch(
        "SELECT a FROM s WHERE a = 1 ROWS 3",
        "SELECT a FROM s WHERE a = 1 BEGIN ROW LAST - 3 END ROW LAST",
        "SELECT a FROM keyed WHERE b = 1",
        "SELECT s.a FROM s WINDOW(RANGE 1 HOUR), keyed AS k WHERE s.a = k.a AND s.a = 5",
        "SELECT a FROM s WHERE a = 4 REFRESH ON other WHERE a = 9",
        "SELECT a FROM s WHERE a = 4 AND EXISTS (SELECT 1 FROM other AS o WHERE o.a = 6)",
    )
    await server.publish("s", 2)
    assert await server.woken(watcher) == [0, 1]
    await server.publish("keyed", 2, b=[2])
    assert await server.woken(watcher) == [2, 3]
    await server.publish("s", 5)
    assert await server.woken(watcher) == [0, 1, 3]
    for number, woken in ((8, []), (9, [4]), (6, [5])):
        await server.publish("other", number)
        assert await server.woken(watcher) == woken


async def test_late_rows_wake_by_their_ts(server: Server) -> None:
    """Whatever moves NOW wakes; a late row, whose window holds it, or will."""
    await server.publish_at(1000)
    watcher = await server.watch(
        "SELECT a FROM event RANGE 100 SECONDS",
        "SELECT a FROM event RANGE 500 SECONDS",
        "SELECT a FROM event BEGIN NOW - 100 SECONDS END NOW - 50 SECONDS",
        "SELECT a FROM event BEGIN '2023-11-14 22:15:00' END '2023-11-14 22:16:00'",
        "SELECT a FROM event WHERE a < 200 UNBOUNDED",
    )
    for seconds, woken in ((950, [0, 1, 2]), (890, [1]), (960, [0, 1, 2]), (120, [3, 4])):
        await server.publish_at(seconds)
        assert await server.woken(watcher) == woken
    everyone = [0, 1, 2, 3, 4]
    await server.publish_at(1200)
    assert await server.woken(watcher) == everyone
    await server.publish_at(1000)
    assert await server.woken(watcher) == [1]
    beat = Timestamp(seconds=START // SECOND + 1300)
    await publish(server.core, new_call(), pb.PublishRequest(stream="event", heartbeat=beat))
    assert await server.woken(watcher) == everyone
    await publish(server.core, new_call(), pb.PublishRequest(stream="event", heartbeat=beat))
    assert await server.woken(watcher) == []


async def test_what_is_no_row_wakes_whom_it_is_about(server: Server) -> None:
    watcher = await server.watch(
        "SELECT a FROM big", "SELECT a FROM other", "SELECT a FROM s", "SELECT a FROM s WHERE a = 1"
    )
    await server.define("DROP VIEW big")
    assert await server.woken(watcher) == [0] and 0 not in watcher.items
    await server.define("DROP STREAM other")
    assert await server.woken(watcher) == [1] and 1 not in watcher.items
    handle = watcher.items[2].item.handle
    await server.core.appender.submit(UnregisterOne("main", handle))
    assert await server.woken(watcher) == [2] and 2 not in watcher.items
    await server.define("CREATE STREAM more (a BIGINT)")
    await register(server.core, new_call(), pb.RegisterRequest(sql="SELECT a FROM s WHERE a = 1"))
    assert await server.woken(watcher) == []


async def test_a_query_that_replaces_another_is_watched_from_then_on(server: Server) -> None:
    """Rows that come before it was asked anew, and rows that come while it is."""
    request = pb.RegisterRequest(sql="SELECT a FROM s WHERE a = 1", client_key="k")
    registered, *_ = await register(server.core, new_call(), request)
    watcher = Watcher(
        server.core, new_call(), pb.SyncRequest(items=[pb.SyncItem(handle=registered.handles[0])])
    ).__enter__()
    server.watchers.append(watcher)
    await server.woken(watcher)
    request.sql, request.replace = "SELECT a FROM other WHERE a = 2", True
    await register(server.core, new_call(), request)
    assert watcher._due
    parts = watcher.round()
    await anext(parts)
    await server.publish("other", 2)
    async for _ in parts:
        pass
    assert await server.woken(watcher) == [0]
    await server.publish("s", 1)
    assert await server.woken(watcher) == []
    await server.publish("other", 2)
    assert await server.woken(watcher) == [0]


async def test_who_asks_is_woken_of_a_tenant_a_stream_or_all(server: Server) -> None:
    watcher = await server.watch("SELECT a FROM s WHERE a = 1", "SELECT a FROM other WHERE a = 1")
    watches, state = server.core.watches, server.core.follower.state
    other_stream = state.find_stream("main", "other")
    assert other_stream is not None
    for wake, woken in (
        (lambda: watches.wake_stream(other_stream.id), [1]),
        (lambda: watches.wake_tenant("main"), [0, 1]),
        (lambda: watches.wake_tenant("nobody"), []),
        (lambda: watches.wake_handle(watcher.items[0].item.handle), [0]),
        (watches.wake_all, [0, 1]),
    ):
        wake()
        assert await server.woken(watcher) == woken
    await server.publish("s", 1)
    assert await server.woken(watcher) == [0]


async def test_time_wakes_also_where_a_stamp_is_ahead(server: Server) -> None:
    await server.publish("s", 1)
    watcher = await server.watch("SELECT count(*) AS n FROM s RANGE 60 SECONDS", "SELECT a FROM s")
    server.clock += 61 * SECOND
    assert await server.woken(watcher) == []
    await server.publish("other", 1)
    assert await server.woken(watcher) == [0]


async def test_who_opens_its_store_anew_past_commits_wakes_everybody(server: Server) -> None:
    """Nobody has heard of the commits that were trimmed meanwhile."""
    folder = server.core.store.root
    slow = Core(Store.open(folder, sync=False), Settings(folder, poll=3600), lambda: server.clock)
    await slow.start()
    behind = Server(slow, server.clock)
    watcher = await behind.watch("SELECT a FROM s WHERE a = 1", "SELECT a FROM other WHERE a = 1")
    await server.core.follower.catch_up()
    engine = HandMadeEngine(server.core.store)
    await server.publish("s", 1)
    engine.step()
    engine.trim()
    await server.core.follower.catch_up()
    await slow.follower.catch_up()
    assert await behind.woken(watcher) == [0, 1]
    await slow.follower.refresh()
    assert await behind.woken(watcher) == []
    watcher.__exit__()
    await slow.stop()


async def test_who_sleeps_for_very_many_rows_is_asked_at_the_next_contact(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MAX_SLEPT_ROWS", 10)
    watcher = await server.watch("SELECT a FROM s WHERE a = 1", "SELECT a FROM other WHERE a = 1")
    for count, woken in ((10, []), (1, [0]), (9, [])):
        await server.publish("s", *range(5, 5 + count))
        watcher.contact()
        assert await server.woken(watcher) == woken


async def test_a_failed_probe_wakes_everybody(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queries = [f"SELECT a FROM s WHERE a = {number}" for number in range(99)]
    watcher = await server.watch(*queries, "SELECT a FROM other WHERE a = 1")
    with monkeypatch.context() as patch:
        patch.setattr(prober, "_spans", lambda *_: 1 / 0)
        await server.publish("s", 5)
        assert await server.woken(watcher) == [*range(100)]
    assert caplog.text.count("could not match rows for watches") == 1
    await server.publish("s", 1)
    assert await server.woken(watcher) == [1]


async def test_rows_that_come_faster_than_they_are_matched_wake_their_stream(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prober, "MAX_WAITING_BYTES", 10)
    watcher = await server.watch("SELECT a FROM s WHERE a = 1", "SELECT a FROM other WHERE a = 1")
    stream = server.core.follower.state.find_stream("main", "s")
    assert stream is not None
    # As if so many were waiting for the thread.
    server.core.watches._prober._waiting[stream.id] = 9
    await server.publish("s", *range(5, 14))
    assert await server.woken(watcher) == [0]
    server.core.watches._prober._waiting.clear()
    await server.publish("s", *range(5, 14))
    assert await server.woken(watcher) == []
