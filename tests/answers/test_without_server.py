"""Answers are made without a server: over a store's folder, and equal to a server's."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from datastem.memory import Memory
from psoup.answers import AnswerMaker, Question, Replica, View
from psoup.errors import StreamDropped
from psoup.server.calls.invoke import ask
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define, Drop
from querystem.language import CreateStream, parse_statement
from tests.conftest import ROOT
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc, received

answer = runpy.run_path(str(ROOT / "examples" / "answer_without_server.py"))["answer"]

NOW = 1_700_000_000_000_000
STREAMS = [
    "CREATE STREAM cars (lane BIGINT, speed DOUBLE)",
    "CREATE STREAM parked (place BIGINT, plate TEXT) KEY (place)",
]
QUERIES = [
    "SELECT lane, speed, row_id FROM cars WHERE speed > 50 RANGE 1 HOUR",
    "SELECT lane, avg(speed) AS mean, count(*) AS n FROM cars GROUP BY lane ORDER BY lane",
    "SELECT lane, speed FROM cars ORDER BY speed DESC LIMIT 5",
    "SELECT lane, speed FROM cars ROWS 2 PARTITION BY lane",
    "SELECT place, plate FROM parked WHERE place < 7",
    "SELECT count(*) AS n FROM cars RANGE 1 HOUR REFRESH EVERY 1 MINUTE",
    "SELECT count(*) AS n FROM cars REFRESH ON parked WHERE place = 3",
]


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[Core]:
    core = Core(Store.open(path, create=True, sync=False), Settings(path), lambda: NOW)
    await core.start()
    try:
        yield core
    finally:
        await core.stop()


async def fill(core: Core, first: int) -> None:
    numbers = range(first, first + 40)
    cars = {"lane": [n % 4 for n in numbers], "speed": [40.0 + n % 31 for n in numbers]}
    parked = {"place": [n % 10 for n in numbers], "plate": [f"P {n}" for n in numbers]}
    for stream, columns in (("cars", cars), ("parked", parked)):
        request = pb.PublishRequest(stream=stream, arrow=ipc(pa.table(columns)))
        await publish(core, new_call(), request)


async def define(core: Core) -> None:
    for sql in STREAMS:
        statement = parse_statement(sql)
        assert isinstance(statement, CreateStream)
        await core.appender.submit(Define("main", "main", statement.schema))


async def from_server(core: Core, sql: str) -> pa.Table:
    request = pb.AskRequest(sql=sql, encoding=pb.ENCODING_ARROW)
    _, *parts = await received(ask(core, new_call(), request))
    return pa.ipc.open_stream(b"".join(part.arrow for part in parts)).read_all()


@pytest.mark.parametrize("steps", [0, 1, 2], ids=["log alone", "files and log", "files alone"])
async def test_an_answer_over_a_folder_is_the_server_s(tmp_path: Path, steps: int) -> None:
    """While a server runs, and an engine has written none, some or all of the rows to files."""
    async with running(tmp_path / "store") as core:
        engine = HandMadeEngine(core.store)
        await define(core)
        for number in range(2):
            await fill(core, 40 * number)
            if number < steps:
                engine.step()
        for sql in QUERIES:
            expected = await from_server(core, sql)
            result = answer(tmp_path / "store", sql, NOW)
            assert expected.num_rows
            assert result.to_pylist() == expected.to_pylist(), sql


async def test_a_stream_that_is_dropped_meanwhile_is_told(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as core:
        await define(core)
        store = Store.open(tmp_path / "store")
        before = Replica.open(store, Memory(1 << 20))
        question = Question.of_text(QUERIES[0], before.state)
        assert AnswerMaker(store).answer(View.at(before, NOW), question).row_count == 0
        await core.appender.submit(Drop("main", "main", "cars"))
        after = Replica.open(store, Memory(1 << 20))
        with pytest.raises(StreamDropped, match="stream cars was dropped"):
            AnswerMaker(store).answer(View.at(after, NOW), question)


def test_answers_are_made_without_a_wire() -> None:
    code = (
        "import sys, psoup.answers, psoup.answers.difference; "
        "print([name for name in ('grpc', 'google.protobuf', 'psoup.v1', 'psoup.server') "
        "if name in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "[]"
