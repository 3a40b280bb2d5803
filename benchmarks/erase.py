"""The erasure of one key among many rows: how long until answers lack it, how long until no file
has it, and what answers take before, in between and after.

The rows of the key are spread over all files of the stem. The engine works without its loop, and
deletes files at once. Answers are compared by processor time in one process.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.alter import asker, opened_at
from benchmarks.report import Report
from benchmarks.timing import least_cpu
from psoup.engine.settings import EngineSettings
from psoup.engine.spark.session import open_session
from psoup.server.calls.define import define
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.store.erasure import erasure_status
from psoup.v1 import psoup_pb2 as pb
from tests.support.engine.pump import Pump
from tests.support.server.callers import new_call
from tests.support.server.process import ipc

STREAM = "CREATE STREAM customers (id BIGINT, name TEXT, spent DOUBLE) KEY (id)"
KEY = 4711
# Each key has this many rows.
ROWS_PER_KEY = 10
ANSWERS = {
    "a selection of the last 5,000 rows": "SELECT id FROM customers WHERE id < 9 ROWS 5000",
    "an aggregate over all customers": "SELECT sum(spent) AS s, count(*) AS n FROM customers",
}
MAX_RATIO = 1.1
_BATCH_ROWS = 500_000
_EAGER = EngineSettings(housekeeping=0.0, grace=0.0, commit_grace=0.0)
_MEMORY_BYTES = 2 << 30


def run(folder: Path, quick: bool) -> Report:
    rows, rounds = (1_000_000, 5) if quick else (10_000_000, 20)
    report = Report("erase", f"one key of a keyed stream of {rows:,} rows, {ROWS_PER_KEY} of them")
    spark = open_session(folder / "spark")
    try:
        asyncio.run(_measure(report, folder / "store", spark, rows, rounds))
    finally:
        spark.stop()
    return report


async def _measure(report: Report, path: Path, spark: object, count: int, rounds: int) -> None:
    core = Core(Store.open(path, create=True, sync=False), Settings(path, memory=_MEMORY_BYTES))
    await core.start()
    await define(core, new_call(), pb.DefineRequest(sql=STREAM))
    pump = Pump(Store.open(path, sync=False), spark, _EAGER)  # type: ignore[arg-type]
    began = time.monotonic()
    for batch in _batches(count):
        await publish(core, new_call(), pb.PublishRequest(stream="customers", arrow=ipc(batch)))
        await asyncio.to_thread(pump.step)
    await asyncio.to_thread(pump.run)
    filled = time.monotonic() - began
    await core.follower.refresh()
    began = time.monotonic()
    erase = pb.DefineRequest(sql=f"ERASE FROM customers WHERE id = {KEY}")
    await define(core, new_call(), erase)
    erased = time.monotonic() - began
    report.add("until answers lack the rows", erased, "s", ratio=erased / filled, beside="filling")
    replicas = {
        "before": opened_at(core.store, core.store.log.latest_version() - 2),
        "erased": opened_at(core.store, core.store.log.latest_version()),
    }
    before, in_between = (asker(core.store, replica) for replica in replicas.values())
    least = {
        what: least_cpu({"before": partial(before, sql), "after": partial(in_between, sql)}, rounds)
        for what, sql in ANSWERS.items()
    }
    began = time.monotonic()
    await asyncio.to_thread(_finish, pump)
    done = time.monotonic() - began
    report.add("until no file has them", done, "s", ratio=done / filled, beside="filling")
    await core.stop()
    after = asker(core.store, opened_at(core.store, core.store.log.latest_version()))
    for what, sql in ANSWERS.items():
        _add(report, f"{what}, after the statement", least[what])
        # The earlier replica has its blocks in memory: their files are gone.
        done_after = {"before": partial(before, sql), "after": partial(after, sql)}
        _add(report, f"{what}, when it is done", least_cpu({**done_after}, rounds))


def _add(report: Report, what: str, seconds: dict[str, float]) -> None:
    ratio = seconds["after"] / seconds["before"]
    report.add(
        what, 1000 * seconds["after"], "ms", ratio=ratio, beside="before",
        aim=f"≤ {MAX_RATIO} ×", met=ratio <= MAX_RATIO,
    )  # fmt: skip


def _batches(count: int) -> list[pa.Table]:
    keys = count // ROWS_PER_KEY
    tables = []
    for begin in range(0, count, _BATCH_ROWS):
        ids = np.arange(begin, min(begin + _BATCH_ROWS, count)) % keys
        names = pa.array(ids).cast(pa.string())
        tables.append(pa.table({"id": ids, "name": names, "spent": ids * 0.5}))
    return tables


def _finish(pump: Pump) -> None:
    while not all(status.is_done for status in erasure_status(pump.store)):
        pump.run()
