"""Streams: rows a second and freshness through one stream, and through fifty at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa

from benchmarks import intervals, workload
from benchmarks.freshness import EPOCH_AIMS, EpochWatch, goal
from benchmarks.memory import processor
from benchmarks.report import Report
from benchmarks.timing import Times
from client_sdk import Client
from tests.support.system.processes import RunningStore

STREAMS = 50
QUERIES = 20
PUBLISHERS = 5
BATCH_ROWS = 2_000
SHARE_AIM = 0.6
TRICKLE_ROWS, TRICKLES_PER_SECOND = 100, 50


def run(folder: Path, quick: bool) -> Report:
    rounds = 1 if quick else 3
    batches = STREAMS if quick else 8 * STREAMS
    report = Report(
        "streams",
        f"{QUERIES} queries a stream, {PUBLISHERS} publishers, {batches * BATCH_ROWS:,} rows in "
        f"batches of {BATCH_ROWS:,}, {rounds} rounds",
    )
    with RunningStore(folder) as store:
        store.start_server()
        store.start_engine(ready=False)
        with store.client() as client:
            flows = {count: Flow(store, client, count) for count in (1, STREAMS)}
            for flow in flows.values():
                flow.publish(STREAMS)
            for _ in range(rounds):
                for flow in flows.values():
                    flow.measure(batches)
            _add_rates(report, flows)
            for flow in flows.values():
                _add_freshness(report, flow, 2 if quick else 20)
            intervals.measure(report, store, client, quick)
    return report


@dataclass(frozen=True)
class Taken:
    """Seconds until all was in an epoch, and those of the engine's processor time."""

    rows: int
    seconds: float
    engine: float


class Flow:
    """So many streams, each with queries of its own, and publishers that take turns at them."""

    def __init__(self, store: RunningStore, client: Client, count: int) -> None:
        self._store = store
        self._client = client
        self.names = [f"flow_{count}_{number}" for number in range(count)]
        self._publishers = [client.publisher(f"flow-{count}-{n}") for n in range(PUBLISHERS)]
        self._rows = workload.rows(BATCH_ROWS)
        self.taken: list[Taken] = []
        for name in self.names:
            client.define(workload.STREAM.replace("traffic", name))
            workload.register_mixed(client, QUERIES, name)

    def publish(self, batches: int) -> None:
        """From all publishers at once, until an epoch holds everything."""
        with ThreadPoolExecutor(PUBLISHERS) as pool:
            list(
                pool.map(
                    lambda thread_number: self._turns(thread_number, batches), range(PUBLISHERS)
                )
            )
        self._store.wait_until_matched(self._client, 600)

    def _turns(self, thread_number: int, batches: int) -> None:
        for number in range(thread_number, batches, PUBLISHERS):
            name = self.names[number % len(self.names)]
            self._publishers[thread_number].publish(name, self._rows)

    def measure(self, batches: int) -> None:
        engine, began = self._engine(), time.perf_counter()
        self.publish(batches)
        seconds = time.perf_counter() - began
        self.taken.append(Taken(batches * BATCH_ROWS, seconds, self._engine() - engine))

    def _engine(self) -> float:
        engine = self._store.engine
        assert engine is not None
        return processor([engine.pid, *engine.children()])

    def trickle(self, seconds: int) -> Sequence[float]:
        """Small batches at a steady pace, stream after stream: until an epoch holds each."""
        rows: pa.Table = self._rows.slice(0, TRICKLE_ROWS)
        published = []
        with EpochWatch(self._store.store) as watch:
            due = time.perf_counter()
            for number in range(seconds * TRICKLES_PER_SECOND):
                began = time.perf_counter()
                name = self.names[number % len(self.names)]
                published.append((began, self._publishers[0].publish(name, rows).position))
                due += 1 / TRICKLES_PER_SECOND
                time.sleep(max(0.0, due - time.perf_counter()))
            watch.wait_for(published[-1][1])
        return [(watch.when(token) or 0.0) - began for began, token in published]


def _add_rates(report: Report, flows: dict[int, Flow]) -> None:
    """The best round of each, by the clock and by the engine's processor time."""
    single, many = flows.values()
    for what, unit, attribute in (
        ("publish until all is in an epoch", "rows/s", "seconds"),
        ("rows by second of the engine's processor time", "rows/s", "engine"),
    ):
        rates = [max(t.rows / getattr(t, attribute) for t in flow.taken) for flow in (single, many)]
        share = rates[1] / rates[0]
        judged = {"aim": f"≥ {SHARE_AIM} ×", "met": share >= SHARE_AIM}
        report.add(f"{what}, one stream", rates[0], unit)
        report.add(
            f"{what}, {len(many.names)} streams",
            rates[1],
            unit,
            ratio=share,
            beside="one",
            **judged,
        )


def _add_freshness(report: Report, flow: Flow, seconds: int) -> None:
    times = Times(list(islice(flow.trickle(seconds), TRICKLES_PER_SECOND // 2, None)))
    many = f"{len(flow.names)} streams" if len(flow.names) > 1 else "one stream"
    what = f"publish → epoch, {TRICKLE_ROWS * TRICKLES_PER_SECOND:,} rows/s, {many}"
    for quantile, aim in EPOCH_AIMS.items():
        value = getattr(times, quantile)
        report.add(f"{what} {quantile}", value * 1e3, "ms", **goal(value, aim))
