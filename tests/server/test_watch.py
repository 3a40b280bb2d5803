"""Watch through servers as processes: news, beats, and when it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration

from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import Copy
from tests.server.conftest import Start
from tests.support.server.process import ServerProcess
from tests.support.server.syncing import SQL, item_of, numbers, parts_of, recharge

pytestmark = pytest.mark.process


def test_watch_brings_what_is_new_and_beats(server: ServerProcess) -> None:
    server.define(SQL)
    handle = server.register("SELECT a FROM s").handle
    quiet = server.register("SELECT a FROM s WHERE a < 0").handle
    request = pb.WatchRequest(
        sync=pb.SyncRequest(
            tenant=server.tenant,
            items=[pb.SyncItem(handle=item_handle) for item_handle in (handle, quiet)],
        ),
        beat=Duration(seconds=1),
    )
    call = server.stub.Watch(request, timeout=240)
    copies = {0: Copy(), 1: Copy()}
    _take_ends(call, copies, 2)
    assert next(call).HasField("beat"), "the end of a round of several items"
    for number in range(3):
        server.publish("s", numbers(number, 1))
        assert _take_ends(call, copies, 1) == [0]
    assert copies[0].answer(copies[0].now) == [(0,), (1,), (2,)]
    assert next(call).HasField("beat")
    assert next(call).HasField("beat"), "nothing was sent for a second"
    call.cancel()


def _take_ends(call: Iterator[pb.SyncPart], copies: dict[int, Copy], count: int) -> list[int]:
    """Until so many items have ended; which ones."""
    ended: list[int] = []
    while len(ended) < count:
        part = next(call)
        if part.HasField("beat"):
            continue
        copies[part.item].take(part)
        if part.HasField("end"):
            ended.append(part.item)
    return ended


def test_a_long_poll_ends_with_the_first_news(server: ServerProcess) -> None:
    server.define(SQL)
    handle = server.register("SELECT count(*) AS n FROM s").handle
    copy = Copy()
    recharge(server, handle, copy)
    request = pb.WatchRequest(
        sync=pb.SyncRequest(tenant=server.tenant, items=[item_of(handle, copy)]), rounds=1
    )
    timer = threading.Timer(0.3, lambda: server.publish("s", numbers(0, 4)))
    timer.start()
    for part in server.stub.Watch(request, timeout=240):
        copy.take(part)
    timer.join()
    assert copy.answer(copy.now) == [(4,)]


def test_a_watch_that_resumes_a_transfer_brings_what_came_since(server: ServerProcess) -> None:
    """The transfer has the position it was begun with; nothing else wakes the watch here."""
    server.define(SQL)
    server.publish("s", numbers(0, 500))
    handle, copy = server.register("SELECT a FROM s").handle, Copy()
    for part in parts_of(server, item_of(handle, copy), byte_budget=100):
        copy.take(part)
    assert copy.resume
    server.publish("s", numbers(500, 1))
    request = pb.WatchRequest(
        sync=pb.SyncRequest(tenant=server.tenant, items=[item_of(handle, copy)]), rounds=2
    )
    for part in server.stub.Watch(request, timeout=120):
        copy.take(part)
    assert len(copy.answer(copy.now)) == 501


def test_watch_ends_with_its_last_item(server: ServerProcess) -> None:
    """What can't be answered is told so once; when nothing is left there is no more to wait for."""
    server.define(SQL)
    handle, copy = server.register("SELECT a FROM s").handle, Copy()
    items = [pb.SyncItem(handle=b"x" * 16), pb.SyncItem(handle=handle)]
    request = pb.WatchRequest(sync=pb.SyncRequest(tenant=server.tenant, items=items))
    call = server.stub.Watch(request, timeout=120)
    assert next(call).refused.detail.reason == "UNKNOWN_HANDLE"
    _take_ends(call, {1: copy}, 1)
    server.define("DROP STREAM s")
    assert next(call).HasField("beat"), "the end of a round of several items"
    assert [part.refused.detail.reason for part in call] == ["STREAM_DROPPED"]


def test_watch_ends_when_the_server_stops(start: Start) -> None:
    server = start()
    server.define(SQL)
    handle = server.register("SELECT a FROM s").handle
    request = pb.WatchRequest(sync=pb.SyncRequest(items=[pb.SyncItem(handle=handle)]))
    call = server.stub.Watch(request, timeout=240)
    copy = Copy()
    _take_ends(call, {0: copy}, 1)
    server.send_signal()
    assert list(call) == []
    assert server.wait() == 0


def test_an_aggregate_that_time_changes_is_watched(server: ServerProcess) -> None:
    server.define(SQL)
    server.publish("s", numbers(0, 4))
    handle = server.register("SELECT count(*) AS n FROM s RANGE 2 SECONDS").handle
    request = pb.WatchRequest(
        sync=pb.SyncRequest(tenant=server.tenant, items=[pb.SyncItem(handle=handle)]), rounds=2
    )
    copy = Copy()
    for part in server.stub.Watch(request, timeout=240):
        copy.take(part)
    assert copy.answer(copy.now) == [(0,)]


def test_a_join_is_watched_by_all_its_streams(server: ServerProcess) -> None:
    """What comes to either stream is told, and what leaves one; time alone is not."""
    server.define(SQL)
    server.define("CREATE STREAM names (a BIGINT, b TEXT) KEY (a)")
    sql = "SELECT s.a, n.b FROM s WINDOW(RANGE 1 HOUR), names AS n WHERE s.a = n.a"
    handle = server.register(sql).handle
    request = pb.WatchRequest(
        sync=pb.SyncRequest(tenant=server.tenant, items=[pb.SyncItem(handle=handle)])
    )
    call = server.stub.Watch(request, timeout=240)
    copies = {0: Copy()}
    _take_ends(call, copies, 1)
    server.publish("s", numbers(0, 3))
    news = [("names", [(1, "one")]), ("s", [(1, "x")]), ("names", [(1, "uno"), (2, "dos")])]
    answers = []
    for stream, rows in news:
        columns = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
        server.publish(stream, columns)
        _take_ends(call, copies, 1)
        answers.append(copies[0].answer(copies[0].now))
    assert answers == [
        [(1, "one")],
        [(1, "one"), (1, "one")],
        [(1, "uno"), (2, "dos"), (1, "uno")],
    ]
    assert copies[0].sound() and copies[0].slides
    call.cancel()
