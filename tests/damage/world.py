"""A small store with all kinds of files, made without Spark, and its answers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

SQL = (
    "CREATE STREAM trips (lane BIGINT, name TEXT, at TIMESTAMP) ORDERED BY at",
    "CREATE STREAM places (place TEXT, free BIGINT, at TIMESTAMP) KEY (place) ORDERED BY at",
)
QUERIES = (
    "SELECT row_id, lane, name FROM trips WHERE lane > 2",
    "SELECT row_id, name FROM trips WHERE lane = 1 RANGE 3 HOURS",
    "SELECT lane, count(*) AS n FROM trips GROUP BY lane",
    "SELECT place, free FROM places WHERE free > 0",
)
DAY = datetime(2026, 3, 1, tzinfo=UTC)
BATCH = 12


def trips(number: int) -> pa.Table:
    at = [DAY + timedelta(hours=2 * number, minutes=index) for index in range(BATCH)]
    lanes = [(number + index) % 5 for index in range(BATCH)]
    names = [None if index == 3 else f"trip {number}.{index}" for index in range(BATCH)]
    return pa.table({"lane": lanes, "name": names, "at": at})


def places(number: int) -> pa.Table:
    at = [DAY + timedelta(hours=2 * number)] * 3
    free = [number % 3, 1, number % 2]
    return pa.table({"place": ["a", "b", "c"], "free": free, "at": at})


def make(root: Path) -> list[bytes]:
    """Make a store with three epochs, two commits after them, and checkpoints; return the
    handles."""
    return asyncio.run(_make(root))


async def _make(root: Path) -> list[bytes]:
    store = Store.open(root, create=True, sync=False)
    core, engine = Core(store, Settings(root, durability="none")), HandMadeEngine(store)
    await core.start()
    try:
        for sql in SQL:
            statement = parse_statement(sql)
            assert isinstance(statement, CreateStream)
            await core.appender.submit(Define("main", "main", statement.schema))
        handles = [
            (await register(core, new_call(), pb.RegisterRequest(sql=sql)))[0].handles[0]
            for sql in QUERIES
        ]
        for number in range(5):
            for stream, table in (("trips", trips(number)), ("places", places(number))):
                await publish(core, new_call(), pb.PublishRequest(stream=stream, arrow=ipc(table)))
            if number < 3:
                engine.step()
    finally:
        await core.stop()
    stem = store.stem(engine.state.stream_names["main", "trips"])
    for folder in (store.log.folder, store.epochs.folder, store.table("matches"), stem):
        folder.checkpoint(folder.latest_version() - 1)
    return handles


def answers(server: Any, handles: list[bytes]) -> list[Any]:
    """Return the answers of a server process, query by query."""
    return [server.invoke(handle)[1].to_pylist() for handle in handles]
