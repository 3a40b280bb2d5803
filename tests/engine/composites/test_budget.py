"""Answers are the same if the state of a join is larger than a worker's cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from psoup.engine.settings import EngineSettings
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.answers.test_composites import answers
from tests.answers.test_without_server import running
from tests.support.engine.pump import Pump
from tests.support.server.callers import new_call
from tests.support.server.process import ipc

pytestmark = pytest.mark.spark

STREAMS = ("CREATE STREAM bids (item BIGINT, price BIGINT)", "CREATE STREAM asks (item BIGINT)")
SQL = (
    "SELECT count(*) AS n, sum(b.price) AS total, min(a.row_id) AS first FROM bids b, asks a"
    " WHERE a.item = b.item AND b.price > a.item"
)
ROWS = 15_000
BATCHES = 4
BUDGET = 1 << 20


async def fill(core: Core, number: int) -> None:
    items = np.random.default_rng(number).integers(0, ROWS, 2 * ROWS)
    bids = {"item": items[:ROWS], "price": items[::-1][:ROWS]}
    for name, columns in (("bids", bids), ("asks", {"item": items[ROWS:]})):
        await publish(
            core, new_call(), pb.PublishRequest(stream=name, arrow=ipc(pa.table(columns)))
        )


async def test_a_worker_budget_smaller_than_the_state(tmp_path: Path, spark: SparkSession) -> None:
    settings = EngineSettings(housekeeping=0.0, worker_bytes=BUDGET, slice_rows=ROWS)
    async with running(tmp_path / "store") as core:
        for sql in STREAMS:
            statement = parse_statement(sql)
            assert isinstance(statement, CreateStream)
            await core.appender.submit(Define("main", "main", statement.schema))
        for number in range(BATCHES // 2):
            await fill(core, number)
        registered, *_ = await register(core, new_call(), pb.RegisterRequest(sql=SQL))
        pump = Pump(core.store, spark, settings)
        pump.run()
        for number in range(BATCHES // 2, BATCHES):
            await fill(core, number)
            pump.run()
        plan, answer, expected = answers(core.store, registered.handles[0], None)
    assert plan.composite is not None and plan.composite.mark.high > 2 * ROWS
    assert plan.composite.mark.highs == (BATCHES * ROWS,) * 2
    assert answer.to_pylist() == expected.to_pylist()
    # A row of the state takes 32 bytes.
    assert 2 * BATCHES * ROWS * 32 > 3 * BUDGET
