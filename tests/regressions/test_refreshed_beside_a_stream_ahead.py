"""A copy with REFRESH EVERY was said to be good past the next point where a stream of event time,
taken apart, was ahead of the clock."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from datastem.instants import SECOND
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.calls.sync import sync
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.server.wire.values import from_instant, to_instant
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.oracle.copy import Copy
from tests.support.server.callers import new_call
from tests.support.server.process import ipc

START = 1_700_000_000 * SECOND
STREAMS = (
    "CREATE STREAM r (a BIGINT)",
    "CREATE STREAM s (a BIGINT, at TIMESTAMP) ORDERED BY at",
)
QUERY = "SELECT r.a FROM r WINDOW(RANGE 9 SECONDS), s LIMIT 3 REFRESH EVERY 4 SECONDS"


async def test_it_is_good_until_the_next_point(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    core = Core(Store.open(folder, create=True, sync=False), Settings(folder), lambda: START + 1)
    await core.start()
    for sql in STREAMS:
        statement = parse_statement(sql)
        assert isinstance(statement, CreateStream)
        await core.appender.submit(Define("main", "main", statement.schema))
    await publish(core, new_call(), pb.PublishRequest(stream="r", arrow=ipc(pa.table({"a": [1]}))))
    ahead = from_instant(START + 30 * SECOND)
    await publish(core, new_call(), pb.PublishRequest(stream="s", heartbeat=ahead))
    handle = (await register(core, new_call(), pb.RegisterRequest(sql=QUERY)))[0].handles[0]
    copy = Copy()
    async for part in sync(core, new_call(), pb.SyncRequest(items=[pb.SyncItem(handle=handle)])):
        copy.take(pb.SyncPart.FromString(part.SerializeToString()))
    assert copy.end is not None and copy.now == START
    assert to_instant(copy.end.good_until) == START + 4 * SECOND
    await core.stop()
