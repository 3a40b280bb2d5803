"""Freshness: how long from publishing a row until answers show it, and until an epoch holds it."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import workload
from benchmarks.baseline import bare_server
from benchmarks.report import Report
from benchmarks.spark import empty_jobs
from benchmarks.timing import Times, timed
from client_sdk import Client
from psoup.store import Store
from psoup.store.delta.durable import put_if_absent
from psoup.store.log.position import START, Position, PositionCodec
from tests.support.system.processes import RunningStore

STREAM = (
    "CREATE STREAM traffic (lane BIGINT, station BIGINT, speed DOUBLE, at TIMESTAMP, "
    "batch BIGINT) ORDERED BY at RETAIN 1 HOUR"
)
NEWEST = "SELECT batch FROM traffic WHERE lane = 1 AND station = 1 RANGE 2 SECONDS"
QUERIES = 1_024
BATCH_ROWS = 1_000
PER_SECOND = 5
VISIBLE_AIMS = {"p50": 0.1, "p99": 0.3}
EPOCH_AIMS = {"p50": 0.5, "p99": 1.5}


def run(folder: Path, quick: bool) -> Report:
    warm_up, rounds = (10, 20) if quick else (25, 300)
    with RunningStore(folder) as store, bare_server() as bare:
        for _ in range(2):
            store.start_server()
        store.start_engine(ready=False)
        with store.client(0) as near, store.client(1) as far:
            near.define(STREAM)
            handle = near.register(NEWEST).handle
            workload.register_mixed(near, QUERIES)
            trickle = Trickle(near, far, handle, [lambda: bare(), lambda: _synced_write(folder)])
            trickle.run(warm_up)
            store.wait_until_matched(near)
            with EpochWatch(store.store) as watch:
                trickle.run(rounds)
                watch.wait_for(trickle.positions[-1])
    # Not with --quick: Spark would start once more.
    jobs = None if quick else empty_jobs(folder / "spark", rounds // 2)
    return _report(rounds, trickle, watch, jobs)


class Trickle:
    """Publishes a batch every so often, and asks both servers for it as soon as it is taken.

    What it is measured beside is done once after each batch.
    """

    def __init__(
        self, near: Client, far: Client, handle: bytes, beside: list[Callable[[], object]]
    ) -> None:
        self._clients = {"the same server": near, "another server": far}
        self._handle = handle
        self._beside = beside
        self._number = 0

    def run(self, rounds: int) -> None:
        self.began: list[float] = []
        self.positions: list[bytes] = []
        self.acknowledged: list[float] = []
        self.visible: dict[str, list[float]] = {name: [] for name in self._clients}
        self.beside: list[list[float]] = [[] for _ in self._beside]
        due = time.perf_counter()
        with ThreadPoolExecutor(len(self._clients)) as pool:
            for _ in range(rounds):
                self._round(pool)
                for call, seconds in zip(self._beside, self.beside, strict=True):
                    seconds.append(timed(call)[0])
                due += 1 / PER_SECOND
                time.sleep(max(0.0, due - time.perf_counter()))

    def _round(self, pool: ThreadPoolExecutor) -> None:
        self._number += 1
        rows = _batch(self._number)
        began = time.perf_counter()
        published = self._clients["the same server"].publish("traffic", rows)
        self.began.append(began)
        self.acknowledged.append(time.perf_counter() - began)
        self.positions.append(published.position)
        visible = {
            name: pool.submit(self._until_visible, client, published.position)
            for name, client in self._clients.items()
        }
        for name, instant in visible.items():
            self.visible[name].append(instant.result() - began)

    def _until_visible(self, client: Client, position: bytes) -> float:
        while True:
            answer = client.invoke(self._handle, least_position=position)
            if answer.to_arrow()["batch"][-1].as_py() == self._number:
                return time.perf_counter()


class EpochWatch:
    """Notes when each epoch appears on disk, to within 5 ms."""

    def __init__(self, root: Path) -> None:
        self._store = Store.open(root)
        self._positions = PositionCodec(self._store.identity)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.epochs: list[tuple[float, Position]] = []

    def __enter__(self) -> EpochWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        last_version = 0
        while not self._stop.wait(0.005):
            version = self._store.epochs.folder.latest_version(last_version)
            if version != last_version:
                last_version, epoch = self._store.epochs.latest(version)
                self.epochs.append((time.perf_counter(), epoch.position))

    def wait_for(self, token: bytes, seconds: float = 60.0) -> None:
        deadline = time.perf_counter() + seconds
        while self.when(token) is None:
            assert time.perf_counter() < deadline, "no epoch has taken the last batch"
            time.sleep(0.05)

    def steps(self) -> list[float]:
        """The instants of the epochs that took more of the log, not of those of housekeeping."""
        first = zip([START, *(position for _, position in self.epochs)], self.epochs, strict=False)
        return [at for before, (at, position) in first if position > before]

    def periods(self) -> list[float]:
        return [later - at for at, later in pairwise(self.steps())]

    def when(self, token: bytes) -> float | None:
        """The instant of the first epoch that holds the position."""
        position = self._positions.decode(token).position
        place = bisect_left(self.epochs, position, key=lambda epoch: epoch[1])
        return self.epochs[place][0] if place < len(self.epochs) else None


def _batch(number: int) -> pa.Table:
    """The last row is the one the query looks for."""
    table = workload.rows(BATCH_ROWS).drop_columns(["at"])
    now = pa.scalar(datetime.now(UTC), pa.timestamp("us", tz="UTC"))
    chosen = np.arange(BATCH_ROWS) == BATCH_ROWS - 1
    lanes = pa.array(np.where(chosen, 1, 2))
    table = table.set_column(0, "lane", lanes).set_column(1, "station", lanes)
    table = table.append_column("at", pa.repeat(now, BATCH_ROWS))
    return table.append_column("batch", pa.array(np.full(BATCH_ROWS, number)))


def _synced_write(folder: Path) -> None:
    put_if_absent(folder / f"synced-{time.perf_counter_ns()}", bytes(32 * BATCH_ROWS))


def _report(rounds: int, trickle: Trickle, watch: EpochWatch, jobs: Times | None) -> Report:
    setting = f"{PER_SECOND} batches of {BATCH_ROWS:,} rows a second, {QUERIES:,} queries"
    report = Report("freshness", f"{setting}, {rounds} batches, two servers")
    instants = [watch.when(token) for token in trickle.positions]
    epochs = [at - began for at, began in zip(instants, trickle.began, strict=True) if at]
    calls, writes = (Times(seconds) for seconds in trickle.beside)
    answers = [(f"publish → answer of {k}", v, VISIBLE_AIMS) for k, v in trickle.visible.items()]
    by_log = [("publish → acknowledged", trickle.acknowledged, {}), *answers]
    by_engine = [
        ("publish → epoch", epochs, EPOCH_AIMS),
        ("one step → the next", watch.periods(), {}),
    ]
    for quantile in ("p50", "p99"):
        call, write = getattr(calls, quantile), getattr(writes, quantile)
        report.add(f"empty call {quantile}", call * 1e3, "ms")
        report.add(f"one synced write of a batch {quantile}", write * 1e3, "ms")
        log = engine = call + write, "call + write"
        if jobs:
            engine = getattr(jobs, quantile), "Spark job"
            report.add(f"empty Spark job with a Python stage {quantile}", engine[0] * 1e3, "ms")
        for measured, (base, beside) in ((by_log, log), (by_engine, engine)):
            for what, seconds, aims in measured:
                value = getattr(Times(seconds), quantile)
                judged = goal(value, aims[quantile]) if aims else {}
                ratio = {"ratio": value / base, "beside": beside}
                report.add(f"{what} {quantile}", value * 1e3, "ms", **ratio, **judged)
    return report


def goal(value: float, aim: float) -> dict[str, Any]:
    """Seconds, judged."""
    return {"aim": f"≤ {aim * 1e3:,.0f} ms", "met": value <= aim}
