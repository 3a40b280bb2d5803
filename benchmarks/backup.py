"""Back-up: how fast a store is copied, and what invokes beside it take.

The store has files of random numbers, so that nothing is compressed. Invokes go on one after the
other: alone, beside `cp` of the same files, and beside a back-up, in turns.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
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
# Seconds of invokes before each copy.
ALONE = 5.0
SMALL = "CREATE STREAM readings (device BIGINT, level BIGINT)"


def run(folder: Path, quick: bool) -> Report:
    size, rounds = (100, 2) if quick else (1_000, 3)
    setting = f"a store of {size:,} MB of random numbers, invokes of 100 rows beside"
    report = Report("backup", setting)
    _fill(folder / "store", size)
    alone, copies, back_ups = Series(), Series(), Series()
    starts, costs = list[float](), list[float]()
    with RunningStore(folder) as running, Client(running.start_server()) as client:
        handle = _small(client)
        for number in range(rounds):
            end = time.perf_counter() + ALONE
            alone.invoke(client, handle, lambda: time.perf_counter() >= end)  # noqa: B023
            target = folder / f"copy-{number}"
            copies.beside(client, handle, _copy(running.store, target), target)
            target, before = folder / f"target-{number}", _children_seconds()
            back_ups.beside(client, handle, _back_up(running.store, target), target)
            costs.append(_children_seconds() - before)
            # The same again has nothing to copy.
            starts.append(Series().beside(client, handle, _back_up(running.store, target)))
    start, rate = min(starts), max(back_ups.rates)
    copying = max(
        size / (seconds - start)
        for size, seconds in zip(back_ups.sizes, back_ups.seconds, strict=True)
    )
    report.add(
        "MB a second, copying", copying, "MB", aim=f"≥ {LEAST_RATE:g} MB", met=copying >= LEAST_RATE
    )
    report.add(
        "MB a second, with the start of Python", rate, "MB",
        ratio=rate / max(copies.rates), beside="cp and sync",
    )  # fmt: skip
    report.add("MB a second of processor time", max(back_ups.sizes) / min(costs), "MB")
    report.add("a back-up of nothing new", start, "s")
    quiet, beside = Times(alone.calls).p99, Times(back_ups.calls).p99
    report.add("invoke alone, p99", 1e3 * quiet, "ms")
    copied = Times(copies.calls).p99
    report.add("invoke beside cp and sync, p99", 1e3 * copied, "ms", ratio=copied / quiet)
    report.add(
        "invoke beside a back-up, p99", 1e3 * beside, "ms", ratio=beside / quiet,
        aim=f"≤ {MOST_RATIO:g} × alone", met=beside <= MOST_RATIO * quiet,
    )  # fmt: skip
    return report


@dataclass
class Series:
    """Seconds of invokes, and seconds and megabytes of the copies that were made beside them."""

    calls: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        return [size / seconds for size, seconds in zip(self.sizes, self.seconds, strict=True)]

    def beside(
        self,
        client: Client,
        handle: bytes,
        copy: subprocess.Popen[bytes],
        target: Path | None = None,
    ) -> float:
        """Invoke until a copy has ended; return the seconds."""
        begun = time.perf_counter()
        self.invoke(client, handle, lambda: copy.poll() is not None)
        self.seconds.append(time.perf_counter() - begun)
        assert copy.wait() == 0
        if target is not None:
            self.sizes.append(_size(target) / 1e6)
        return self.seconds[-1]

    def invoke(self, client: Client, handle: bytes, is_done: Callable[[], bool]) -> None:
        """Invoke until it is done, and note how long each call took."""
        while not is_done():
            begun = time.perf_counter()
            client.invoke(handle).to_arrow()
            self.calls.append(time.perf_counter() - begun)


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


def _back_up(store: Path, target: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "psoup.cli", "backup", str(store), str(target)]
    return subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL)


def _copy(store: Path, target: Path) -> subprocess.Popen[bytes]:
    script = 'cp -r "$0" "$1" && find "$1" -type f -print0 | xargs -0 sync'
    return subprocess.Popen(["sh", "-c", script, str(store), str(target)])


def _children_seconds() -> float:
    """Return the processor seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _size(folder: Path) -> int:
    paths = (Path(base) / name for base, _, names in os.walk(folder) for name in names)
    return sum(path.stat().st_size for path in paths)
