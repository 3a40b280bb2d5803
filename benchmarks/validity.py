"""Rows with a validity, beside the same rows in a stream with arrival time: what is valid at NOW or
was in the last day, and a window of the rows that came last.

NOW is a minute later at each call. Times are processor time in one process.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.overdue import asking, syncing
from benchmarks.report import Report
from benchmarks.timing import least_cpu
from datastem.instants import DAY, HOUR
from datastem.memory import Memory
from psoup.answers import AnswerMaker, Replica
from psoup.server.calls.define import define
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

COLUMNS = "(id BIGINT, room BIGINT, starts TIMESTAMP, ends TIMESTAMP)"
STREAMS = {
    "plain": f"CREATE STREAM plain {COLUMNS}",
    "bookings": f"CREATE STREAM bookings {COLUMNS} VALID FROM starts UNTIL ends",
}
WINDOW = "RANGE 2 DAYS"
# Each holds one batch or less.
QUERIES = {
    WINDOW: "SELECT id FROM plain RANGE 2 DAYS",
    "valid at NOW": "SELECT id FROM bookings",
    "valid in the last day": "SELECT id FROM bookings BEGIN NOW - 1 DAY END NOW",
    "starts <= NOW AND ends > NOW": "SELECT id FROM plain WHERE starts <= NOW AND ends > NOW",
}
_BATCHES, _MEMORY_BYTES = 20, 1 << 30
_START = 1_700_000_000_000_000
_END = _START + _BATCHES * DAY


def run(folder: Path, quick: bool) -> Report:
    rows, rounds = (200_000, 20) if quick else (1_000_000, 100)
    report = Report(
        "validity",
        f"{rows:,} rows of 20 days, each valid for an hour; processor time in one process",
    )
    store = asyncio.run(_filled(folder / "store", rows))
    replica = Replica.open(store, Memory(_MEMORY_BYTES))
    maker = AnswerMaker(store, _MEMORY_BYTES)
    syncs = {name: syncing(maker, replica, text, _END) for name, text in QUERIES.items()}
    counts = {
        name: asking(
            maker, replica, text.replace("SELECT id", "SELECT count(*) AS n, max(room) AS m"), _END
        )
        for name, text in QUERIES.items()
    }
    for what, calls in (("sync with nothing new", syncs), ("count", counts)):
        times = least_cpu(calls, rounds)
        for name, seconds in times.items():
            ratio = seconds / times[WINDOW]
            report.add(f"{what}, {name}", seconds * 1e3, "ms", ratio=ratio, beside=WINDOW)
    return report


async def _filled(path: Path, rows: int) -> Store:
    """Make a store with rows of 20 days, each valid for an hour of the day after it came."""
    clock = [_START]
    core = Core(Store.open(path, create=True, sync=False), Settings(path), lambda: clock[0])
    await core.start()
    for sql in STREAMS.values():
        await define(core, new_call(), pb.DefineRequest(sql=sql))
    random = np.random.default_rng(1)
    count = rows // _BATCHES
    for number in range(_BATCHES):
        clock[0] = _START + number * DAY
        starts = clock[0] + random.integers(0, DAY, count)
        columns = {
            "id": pa.array(np.arange(count)),
            "room": pa.array(random.integers(0, 100, count)),
            "starts": pa.array(starts, pa.timestamp("us", "UTC")),
            "ends": pa.array(starts + HOUR, pa.timestamp("us", "UTC")),
        }
        for stream in STREAMS:
            await publish(
                core, new_call(), pb.PublishRequest(stream=stream, arrow=ipc(pa.table(columns)))
            )
    HandMadeEngine(core.store).step()
    store = core.store
    await core.stop()
    return store
