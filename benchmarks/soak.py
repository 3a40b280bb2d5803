"""Soak: rows, registrations and invokes without end, looked at over time. Flat is the aim.

Retention and grace are short, so that a steady state can show within a quarter of an hour: a
segment of 2^20 rows is the least that leaves the disk.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure, Panel, Series
from benchmarks.freshness import EpochWatch
from benchmarks.load import LIVE_QUERIES, Churn, Invoking, Publishing, running
from benchmarks.memory import Holding, resident, tables
from benchmarks.report import Report
from benchmarks.timing import Times
from tests.support.system.processes import RunningStore

STREAM = (
    "CREATE STREAM traffic (lane BIGINT, station BIGINT, speed DOUBLE, at TIMESTAMP) "
    "ORDERED BY at RETAIN 1 MINUTE"
)
MINUTES, QUICK_MINUTES = 3.0, 0.05
GRACE = "60"
SAMPLES = 60
# A shorter soak than this has not reached its steady state, and is not judged.
STEADY_MINUTES = 20.0
FLAT = 1.3


@dataclass(frozen=True)
class Sample:
    """At `minute`: what there is, and how the calls since the last sample went, in ms."""

    minute: float
    tables: dict[str, Holding]
    server: int
    engine: int
    invoke: Times
    answer: Times
    epoch: Times

    @property
    def files(self) -> int:
        return sum(holding.files for holding in self.tables.values())

    @property
    def mebibytes(self) -> float:
        return sum(holding.nbytes for holding in self.tables.values()) / 2**20

    def __str__(self) -> str:
        disk = f"{self.files:,} files of {self.mebibytes:.0f} MiB"
        memory = f"server {self.server / 2**20:,.0f} MiB, engine {self.engine / 2**20:,.0f} MiB"
        return f"minute {self.minute:4.1f}: {disk}, {memory}"


def run(folder: Path, quick: bool, minutes: float | None = None) -> Report:
    minutes = minutes or (QUICK_MINUTES if quick else MINUTES)
    with RunningStore(folder) as store:
        store.start_server()
        store.start_engine("--grace", GRACE)
        with store.client() as client:
            client.define(STREAM)
        with (
            store.client() as publishing_client,
            store.client() as two,
            store.client() as three,
            EpochWatch(store.store) as watch,
        ):
            publishing, churn = Publishing(publishing_client), Churn(two)
            invoking = Invoking(three, churn)
            with running(churn, publishing, invoking) as check:
                samples = Soak(store, watch, publishing, invoking).samples(minutes, check)
    return _report(minutes, samples, publishing, churn)


class Soak:
    def __init__(
        self, store: RunningStore, watch: EpochWatch, publishing: Publishing, invoking: Invoking
    ) -> None:
        self._store = store
        self._watch = watch
        self._publishing = publishing
        self._invoking = invoking

    def samples(self, minutes: float, check: Callable[[], None]) -> list[Sample]:
        began = time.perf_counter()
        every = minutes * 60 / SAMPLES
        samples = []
        for number in range(1, SAMPLES + 1):
            time.sleep(max(0.0, began + number * every - time.perf_counter()))
            check()
            samples.append(self._sample((time.perf_counter() - began) / 60))
            if minutes >= 1:
                print(samples[-1], file=sys.stderr, flush=True)
        return samples

    def _sample(self, minute: float) -> Sample:
        server, engine = self._store.servers[0], self._store.engine
        assert engine is not None and engine.alive, "the engine has ended"
        answers, epochs = self._publishing.drain(self._watch.when)
        return Sample(
            minute,
            tables(self._store.store),
            resident([server.pid]),
            resident([engine.pid, *engine.children()]),
            Times(self._invoking.drain()),
            Times(answers),
            Times(epochs),
        )


def _report(minutes: float, samples: list[Sample], publishing: Publishing, churn: Churn) -> Report:
    setting = (
        f"{minutes:g} minutes, {publishing.rows:,} rows published, {LIVE_QUERIES:,} queries of "
        f"which {churn.changes:,} were replaced, retention 1 minute, grace {GRACE} s"
    )
    report = Report("soak", setting)
    lines: dict[str, tuple[list[float], str]] = {
        "files": ([s.files for s in samples], "files"),
        "bytes on disk": ([s.mebibytes for s in samples], "MiB"),
        "server, resident": ([s.server / 2**20 for s in samples], "MiB"),
        "engine, resident": ([s.engine / 2**20 for s in samples], "MiB"),
        "invoke p99": ([s.invoke.p99 * 1e3 for s in samples if s.invoke.seconds], "ms"),
        "publish → answer p50": ([s.answer.p50 * 1e3 for s in samples if s.answer.seconds], "ms"),
        "publish → epoch p50": ([s.epoch.p50 * 1e3 for s in samples if s.epoch.seconds], "ms"),
    }
    for what, (values, unit) in lines.items():
        _add(report, what, values, unit, minutes)
    report.figures.append(_figure(samples))
    return report


def _add(report: Report, what: str, values: list[float], unit: str, minutes: float) -> None:
    """The last quarter beside the second: the first is the start."""
    if len(values) < 8:
        return
    quarter = len(values) // 4
    before, after = median(values[quarter : 2 * quarter]), median(values[-quarter:])
    ratio = after / before if before else 1.0
    judged = {"aim": f"≤ {FLAT} ×", "met": ratio <= FLAT} if minutes >= STEADY_MINUTES else {}
    name = f"{what}, last quarter"
    report.add(name, after, unit, ratio=ratio, beside="second quarter", **judged)


def _figure(samples: list[Sample]) -> Figure:
    names = sorted({name for sample in samples for name in sample.tables})
    minutes = [sample.minute for sample in samples]

    def by_table(what: str, scale: float) -> list[Series]:
        none = Holding(0, 0)
        return [
            Series(
                name,
                minutes,
                [getattr(s.tables.get(name, none), what) / scale for s in samples],
                place,
                "solid" if place < 6 else "dashed",
            )
            for place, name in enumerate(names)
        ]

    memory = [
        Series("server", minutes, [s.server / 2**20 for s in samples], 0),
        Series("engine: JVM, driver, workers", minutes, [s.engine / 2**20 for s in samples], 1),
    ]
    panels = [
        Panel("files on disk", "minutes", "files", by_table("files", 1)),
        Panel("bytes on disk", "minutes", "MiB", by_table("nbytes", 2**20)),
        Panel("resident memory", "minutes", "MiB", memory),
        Panel("invoke", "minutes", "ms", _times(samples, "invoke")),
        Panel("publish → answer", "minutes", "ms", _times(samples, "answer")),
        Panel("publish → epoch", "minutes", "ms", _times(samples, "epoch")),
    ]
    return Figure("soak", "A store under continuous publishing and registering", panels)


def _times(samples: list[Sample], what: str) -> list[Series]:
    measured = [s for s in samples if getattr(s, what).seconds]
    minutes = [sample.minute for sample in measured]
    return [
        Series(name, minutes, [getattr(getattr(s, what), name) * 1e3 for s in measured], colour)
        for colour, name in enumerate(("p50", "p99"))
    ]
