"""While a Sync was sending, rows it was yet to send passed the retention: it failed as INTERNAL."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from datastem.instants import SECOND
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.calls.sync import sync
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.oracle.copy import Copy
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

pytestmark = pytest.mark.usefixtures("counted_ids")

START = 1_700_000_000 * SECOND
STREAM = "CREATE STREAM s (a BIGINT, at TIMESTAMP) ORDERED BY at RETAIN 60 SECONDS AHEAD 1 HOUR"


async def _publish(core: Core, first: int, count: int, at: int) -> None:
    columns = {
        "a": pa.array(range(first, first + count)),
        "at": pa.array([at] * count, pa.int64()).view("timestamp[us]"),
    }
    await publish(core, new_call(), pb.PublishRequest(stream="s", arrow=ipc(pa.table(columns))))


@pytest.mark.parametrize(
    ("select", "retained"),
    [
        ("SELECT a FROM s", range(30, 40)),
        ("SELECT a FROM s ORDER BY a DESC RANGE 50 SECONDS", range(39, 29, -1)),
        ("SELECT a FROM s ROWS 25", range(30, 40)),
        ("SELECT a FROM s ROWS 25 PARTITION BY a", range(30, 40)),
    ],
)
@pytest.mark.parametrize("pieces", [1, 4])
async def test_what_is_left_is_sent(
    tmp_path: Path, select: str, retained: range, pieces: int
) -> None:
    folder = tmp_path / "store"
    store = Store.open(folder, create=True, sync=False)
    core = Core(store, Settings(folder, sync_bytes=100), lambda: START)
    await core.start()
    statement = parse_statement(STREAM)
    assert isinstance(statement, CreateStream)
    await core.appender.submit(Define("main", "main", statement.schema))
    handle = (await register(core, new_call(), pb.RegisterRequest(sql=select)))[0].handles[0]
    engine, copy = HandMadeEngine(store), Copy()
    for first, count, at in ((0, 30, START), (30, 10, START + 40 * SECOND)):
        await _publish(core, first, count, at)
        engine.step()
    await core.follower.catch_up()
    number = 0
    async for part in sync(core, new_call(), pb.SyncRequest(items=[pb.SyncItem(handle=handle)])):
        copy.take(pb.SyncPart.FromString(part.SerializeToString()))
        number += 1
        if number == pieces:
            await _publish(core, 40, 1, START + 70 * SECOND)
            engine.step()
            engine.forget(1, 1)
            await core.follower.refresh()
    assert copy.end is not None and copy.sound()
    assert copy.answer(copy.now) == [(a,) for a in retained]
    assert copy.now == START + 70 * SECOND
    await core.stop()
