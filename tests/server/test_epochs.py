"""Answers from the engine's files, from the tail, from both: always the same rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from datastem.instants import DAY, SECOND
from psoup.errors import RowsLost
from psoup.lookup import find_registration
from psoup.server.calls.invoke import invoke
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.server.wire.describing import registration_messages
from psoup.server.wire.status import status_message
from psoup.store import Accept, Data, Entry, Event, Lost, Position, Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.support.server.callers import anyone, new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc, received

pytestmark = pytest.mark.usefixtures("counted_ids")

START = 20_000 * DAY
SQL = "CREATE STREAM s (a BIGINT, at TIMESTAMP) ORDERED BY at"
QUERY = "SELECT a, row_id FROM s WHERE a % 7 = 3 RANGE 100 SECONDS"


@asynccontextmanager
async def running(path: Path, **settings: Any) -> AsyncIterator[Core]:
    core = Core(Store.open(path, create=True, sync=False), Settings(path, **settings))
    await core.start()
    try:
        yield core
    finally:
        await core.stop()


async def define(core: Core) -> None:
    statement = parse_statement(SQL)
    assert isinstance(statement, CreateStream)
    await core.appender.submit(Define("main", "main", statement.schema))


def rows(first: int, count: int, seed: int = 0) -> pa.Table:
    """One row every millisecond; some are late by up to 20 seconds."""
    random = np.random.default_rng(seed)
    late = random.integers(0, 20 * SECOND, count) * (random.random(count) < 0.1)
    at = START + np.arange(first, first + count) * 1000 - late
    return pa.table(
        {"a": np.arange(first, first + count), "at": pa.array(at).view("timestamp[us]")}
    )


async def send(core: Core, table: pa.Table) -> None:
    await publish(core, new_call(), pb.PublishRequest(stream="s", arrow=ipc(table)))


async def ask(core: Core, handle: bytes, **fields: Any) -> tuple[pb.AnswerHeader, list[int]]:
    request = pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW, **fields)
    header, *parts = await received(invoke(core, new_call(), request))
    table = pa.ipc.open_stream(b"".join(part.arrow for part in parts)).read_all()
    return header.header, table["a"].to_pylist()


def naive(tables: list[pa.Table], seconds: int = 100) -> list[int]:
    table = pa.concat_tables(tables)
    at, a = table["at"].cast(pa.int64()).to_numpy(), table["a"].to_numpy()
    keep = (a % 7 == 3) & (at > at.max() - seconds * SECOND)
    return [int(x) for x in a[keep][np.lexsort((a[keep], at[keep]))]]


async def until(core: Core, condition: Callable[[], bool]) -> None:
    """Waits for the follower."""
    async with asyncio.timeout(240):
        while not condition():
            await core.follower.moved(1)


@pytest.mark.parametrize("memory", [512 << 20, 1 << 20], ids=["roomy", "tight"])
async def test_covered_and_uncovered_rows_make_one_answer(tmp_path: Path, memory: int) -> None:
    tables = [rows(n * 60_000, 60_000, n) for n in range(4)]
    async with running(tmp_path / "store", memory=memory) as core:
        engine = HandMadeEngine(core.store)
        await define(core)
        early = (await register(core, new_call(), pb.RegisterRequest(sql=QUERY)))[0].handles[0]
        for table in tables[:3]:
            await send(core, table)
        engine.step()
        later_sql = QUERY.replace("= 3", "= 3 AND a >= 0")
        later = (await register(core, new_call(), pb.RegisterRequest(sql=later_sql)))[0].handles[0]
        await send(core, tables[3])
        await until(core, lambda: core.follower.view.epoch.number == 1)
        header, answer = await ask(core, early)
        assert answer == naive(tables)
        assert (header.epoch, header.behind_rows) == (1, 60_000)
        assert 0 < header.computed_rows <= 60_000, "only the tail"
        header, answer = await ask(core, later)
        assert answer == naive(tables)
        assert header.computed_rows > 60_000, "the tail and the history it has not met"
        registration = find_registration(core.follower.state, "main", later)
        (described,) = await registration_messages(core, new_call(), anyone(), [registration])
        assert (described.matched_rows, described.stream_rows) == (0, 240_000)
        engine.step()
        await until(core, lambda: core.follower.view.epoch.number == 2)
        status = status_message(core, anyone())
        assert (status.behind_rows, status.backfill_rows) == (0, 45_000), "of the last 100 seconds"
        assert status.rest_rows == 135_000
        for handle in (early, later):
            assert (await ask(core, handle))[1] == naive(tables)

    async with running(tmp_path / "store", memory=memory) as core:
        header, answer = await ask(core, early, wait_for_engine=True)
        assert (answer, header.computed_rows) == (naive(tables), 0)
        header, answer = await ask(core, later)
        assert answer == naive(tables)
        header, answer = await ask(core, early, window="RANGE 30 SECONDS")
        assert answer == naive(tables, 30)
        if memory < 4 << 20:
            assert core.follower.memory.used < 6 << 20


async def test_a_file_that_is_gone_is_found_in_the_newest_epoch(tmp_path: Path) -> None:
    tables = [rows(n * 40_000, 40_000, n) for n in range(3)]
    async with running(tmp_path / "store") as writer:
        engine = HandMadeEngine(writer.store)
        await define(writer)
        handle = (await register(writer, new_call(), pb.RegisterRequest(sql=QUERY)))[0].handles[0]
        for table in tables:
            await send(writer, table)
            engine.step()
        async with running(tmp_path / "store", poll=3600) as core:
            assert core.follower.view.epoch.number == 3
            engine.rewrite(1)
            header, answer = await ask(core, handle)
            assert answer == naive(tables)
            assert header.epoch == 4


async def test_a_log_trimmed_under_a_slow_server(tmp_path: Path) -> None:
    tables = [rows(n * 1000, 1000, n) for n in range(4)]
    async with (
        running(tmp_path / "store") as writer,
        running(tmp_path / "store", poll=3600) as slow,
    ):
        engine = HandMadeEngine(writer.store)
        await define(writer)
        handle = (await register(writer, new_call(), pb.RegisterRequest(sql=QUERY)))[0].handles[0]
        for table in tables[:3]:
            await send(writer, table)
        engine.step()
        engine.trim()
        await writer.follower.catch_up()
        await send(writer, tables[3])
        # It may have read a part of the log: a file that arrives ends the first pause.
        await slow.follower.catch_up()
        header, answer = await ask(slow, handle)
        assert answer == naive(tables)
        assert header.epoch == 1


async def test_waiting_for_the_engine_ends_when_it_comes(tmp_path: Path) -> None:
    table = rows(0, 1000)
    async with running(tmp_path / "store", wait=240.0) as core:
        engine = HandMadeEngine(core.store)
        await define(core)
        handle = (await register(core, new_call(), pb.RegisterRequest(sql=QUERY)))[0].handles[0]
        await send(core, table)
        waiting: Awaitable[Any] = asyncio.create_task(ask(core, handle, wait_for_engine=True))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(engine.step)
        header, answer = await waiting
        assert (answer, header.computed_rows, header.epoch) == (naive([table]), 0, 1)


async def test_a_payload_that_does_not_decode_is_a_hole(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as core:
        await define(core)
        handle = (await register(core, new_call(), pb.RegisterRequest(sql=QUERY)))[0].handles[0]
        await send(core, rows(0, 100))
        await _append_junk(core, 50)
        await send(core, rows(100, 100))
    async with running(tmp_path / "store") as core:
        assert core.follower.state.streams[1].high == 250
        with pytest.raises(RowsLost, match="rows 100 to 149 of stream s.* log/part"):
            await ask(core, handle)
        await _append(core, Accept((Lost(1, 100, 150),)))
        header, answer = await ask(core, handle)
        assert answer == naive([rows(0, 100), rows(100, 100)])
        assert any("rows 100 to 149" in note for note in header.notes)
        request = pb.InvokeRequest(handle=handle, window="UNBOUNDED")
        parts = await received(invoke(core, new_call(), request))
        ids = [row.values[1].bigint for part in parts for row in part.rows.rows]
        assert all(not 100 <= row_id < 150 for row_id in ids) and max(ids) >= 150


async def _append_junk(core: Core, count: int) -> None:
    high = core.follower.state.streams[1].high
    await _append(core, Data(1, "", 0, count, high, START, START, None, START, b"", b"", b"junk"))


async def _append(core: Core, event: Event) -> None:
    state, version = core.follower.state, core.follower.version + 1
    entry = Entry(Position(version, 0), state.clock, "main", "main", event)
    core.store.log.append(version, [entry])
    await core.follower.catch_up()
