"""How many interval queries a stream may have until a step takes longer than a second."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import pyarrow as pa

from benchmarks.freshness import EpochWatch
from benchmarks.kernel_queries import NAMES, Intervals
from benchmarks.report import Report
from client_sdk import Client
from tests.support.system.processes import RunningStore

FIRST, LEAST = 4_096, 256
LIMIT = 1.0
BATCH_ROWS, PER_SECOND = 500, 10
# The search ends when what holds and what does not differ by this factor.
CLOSE = 1.2


def measure(report: Report, store: RunningStore, client: Client, quick: bool) -> None:
    """With --quick one count is tried."""
    steps = {FIRST: _step(store, client, FIRST, 2)} if quick else _search(store, client)
    most = max((count for count, step_seconds in steps.items() if step_seconds < LIMIT), default=0)
    rate = BATCH_ROWS * PER_SECOND
    what = f"most queries of two intervals with a step under {LIMIT:g} s, {rate:,} rows/s"
    report.add(what, most, "queries")
    for number, step_seconds in sorted(steps.items()):
        report.add(f"  a step with {number:,} of them p50", step_seconds * 1e3, "ms")


def _search(store: RunningStore, client: Client) -> dict[int, float]:
    """Doubles until it is too slow, then halves the distance until it is small."""
    count, passed, failed, steps = FIRST, 0, 0, {}
    while not failed or max(CLOSE * passed, LEAST) < failed:
        steps[count] = _step(store, client, count, 8)
        if steps[count] < LIMIT:
            passed = count
        else:
            failed = count
        count = (passed + failed) // 2 if failed else 2 * passed
    return steps


def _step(store: RunningStore, client: Client, count: int, seconds: int) -> float:
    """The median time from one step's epoch to the next while rows come at a steady pace."""
    name = f"intervals_{count}"
    define(client, name, count)
    publisher, random = client.publisher(name), np.random.default_rng(count)
    publisher.publish(name, rows(random, BATCH_ROWS))
    store.wait_until_matched(client, 600)
    with EpochWatch(store.store) as watch:
        began = due = time.perf_counter()
        for _ in range(seconds * PER_SECOND):
            published = publisher.publish(name, rows(random, BATCH_ROWS))
            due += 1 / PER_SECOND
            time.sleep(max(0.0, due - time.perf_counter()))
        watch.wait_for(published.position, 600)
    client.define(f"DROP STREAM {name}")
    return median(watch.periods() or [time.perf_counter() - began])


def define(client: Client, name: str, count: int) -> None:
    """Define a stream of four columns, and `count` queries with intervals on two of them."""
    columns = ", ".join(f"{column} BIGINT" for column in NAMES)
    client.define(f"CREATE STREAM {name} ({columns})")
    for (x, y), table in Intervals.make(count).tables().items():
        where = f"{NAMES[x]} BETWEEN :lo0 AND :hi0 AND {NAMES[y]} BETWEEN :lo1 AND :hi1"
        sql = f"SELECT * FROM {name} WHERE {where} ROWS 1000"
        client.register_many(sql, table.drop_columns(["id"]))


def rows(random: np.random.Generator, count: int) -> pa.Table:
    return pa.table({name: random.integers(0, 256, count) for name in NAMES})
