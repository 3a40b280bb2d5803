"""Back-up: how fast a store is copied, and what invokes beside it take.

The store has files of random numbers, so that nothing is compressed. Invokes go on one after the
other; those beside a back-up are compared with those before and after it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.report import Report
from benchmarks.timing import Times
from client_sdk import Client
from datastem.schema import Column, StreamSchema
from datastem.types import DOUBLE
from psoup.store import Store
from tests.support.engine.author import Author
from tests.support.server.epochs import HandMadeEngine
from tests.support.system.processes import REPOSITORY, RunningStore

LEAST_RATE = 200.0
MOST_RATIO = 1.5
COLUMNS = tuple(Column(f"c{number}", DOUBLE) for number in range(8))
WIDE = StreamSchema("wide", COLUMNS)
BATCH_ROWS = 1 << 17
CALLS = 2_000
SMALL = "CREATE STREAM readings (device BIGINT, level BIGINT)"


def run(folder: Path, quick: bool) -> Report:
    size, rounds = (100, 2) if quick else (1_000, 3)
    setting = f"a store of {size:,} MB of random numbers, invokes of 100 rows beside"
    report = Report("backup", setting)
    _fill(folder / "store", size)
    alone, beside, rates, costs = list[float](), list[float](), list[float](), list[float]()
    with RunningStore(folder) as running, Client(running.start_server()) as client:
        handle = _small(client)
        for number in range(rounds):
            goal = len(alone) + CALLS
            _invoke(client, handle, alone, lambda: len(alone) >= goal)  # noqa: B023
            before, begun = _children_seconds(), time.perf_counter()
            process = _psoup("backup", running.store, folder / f"target-{number}")
            _invoke(client, handle, beside, lambda: process.poll() is not None)  # noqa: B023
            seconds = time.perf_counter() - begun
            assert process.wait() == 0
            copied = _size(folder / f"target-{number}")
            rates.append(copied / 1e6 / seconds)
            costs.append(copied / 1e6 / (_children_seconds() - before))
    again = _psoup("backup", folder / "store", folder / "target-0")
    begun = time.perf_counter()
    assert again.wait() == 0
    report.add(
        "MB a second of wall time, beside invokes, best", max(rates), "MB",
        aim=f"≥ {LEAST_RATE:g} MB", met=max(rates) >= LEAST_RATE,
    )  # fmt: skip
    report.add("MB a second of processor time, with the start of Python, best", max(costs), "MB")
    ratio = Times(beside).p99 / Times(alone).p99
    report.add("invoke, p99 alone", 1e3 * Times(alone).p99, "ms")
    report.add("invoke, p99 beside a back-up", 1e3 * Times(beside).p99, "ms")
    report.add("beside ÷ alone", ratio, "×", aim=f"≤ {MOST_RATIO:g} ×", met=ratio <= MOST_RATIO)
    report.add("the next back-up, nothing new", time.perf_counter() - begun, "s")
    return report


def _fill(root: Path, megabytes: int) -> None:
    store = Store.open(root, create=True, sync=False)
    author, engine, rng = Author(store), HandMadeEngine(store), np.random.default_rng(0)
    stream = author.create(WIDE)
    for _ in range(-(-megabytes * 1_000_000 // (8 * len(COLUMNS) * BATCH_ROWS))):
        columns = [pa.array(rng.random(BATCH_ROWS)) for _ in COLUMNS]
        author.publish(stream, pa.RecordBatch.from_arrays(columns, schema=WIDE.arrow))
        engine.step()
        engine.trim()


def _small(client: Client) -> bytes:
    client.define(SMALL)
    table = {"device": [n % 100 for n in range(10_000)], "level": list(range(10_000))}
    client.publish("readings", pa.table(table))
    return client.register("SELECT level FROM readings WHERE device = 7").handle


def _invoke(
    client: Client, handle: bytes, seconds: list[float], is_done: Callable[[], bool]
) -> None:
    """Invoke until it is done, and note how long each call took."""
    while not is_done():
        begun = time.perf_counter()
        client.invoke(handle).to_arrow()
        seconds.append(time.perf_counter() - begun)


def _psoup(*arguments: str | Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "psoup.cli", *map(str, arguments)]
    return subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL)


def _children_seconds() -> float:
    """Return the processor seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _size(folder: Path) -> int:
    paths = (Path(base) / name for base, _, names in os.walk(folder) for name in names)
    return sum(path.stat().st_size for path in paths)
