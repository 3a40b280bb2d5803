"""Publish: rows a second from one publisher with matching on, beside each half alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import intervals, workload
from benchmarks.kernel_queries import Intervals
from benchmarks.report import Report
from benchmarks.timing import timed
from client_sdk import Client
from querystem.index.stem import QueryStem
from querystem.language import CreateStream, bind_query, parse_statement
from tests.support.system.processes import RunningStore

BATCH_ROWS = 20_000


@dataclass(frozen=True)
class Setting:
    """A stream and its queries: how they come into a store, and into an index alone."""

    stream: str
    queries: str
    rows: pa.Table
    define: Callable[[Client], None]
    stem: Callable[[], QueryStem]
    aim: float


def settings(count: int) -> list[Setting]:
    """The trace with 100 queries of two kinds; the paper's conjunctions of two intervals."""
    few = "100 queries"
    many = "1,024 interval queries"
    random = np.random.default_rng(0)
    return [
        Setting("traffic", few, workload.rows(count), _define_mixed, _mixed_stem, 150_000.0),
        Setting(
            "data",
            many,
            intervals.rows(random, count),
            lambda client: intervals.define(client, "data", 1_024),
            Intervals.make(1_024).stem,
            100_000.0,
        ),
    ]


def run(folder: Path, quick: bool) -> Report:
    count = 200_000 if quick else 2_000_000
    both = settings(count)
    report = Report("publish", f"{count:,} rows in batches of {BATCH_ROWS:,}")
    kernels = {setting.stream: _kernel_rate(setting) for setting in both}
    _with_engine(folder / "with", both, report, kernels)
    _without_engine(folder / "without", both[0], report, kernels, quick)
    for setting in both:
        what = f"{setting.queries}: the kernel alone, one core, in this process"
        report.add(what, kernels[setting.stream], "rows/s")
    return report


def _with_engine(
    folder: Path, both: list[Setting], report: Report, kernels: Mapping[str, float]
) -> None:
    folder.mkdir()
    with RunningStore(folder) as store:
        store.start_server()
        store.start_engine(ready=False)
        with store.client() as client:
            for setting in both:
                setting.define(client)
                _publish(client, setting, "warm-up", 2 * BATCH_ROWS)
                store.wait_until_matched(client)
                began = time.perf_counter()
                _publish(client, setting, "benchmark")
                acknowledged = time.perf_counter() - began
                store.wait_until_matched(client, 600)
                matched = time.perf_counter() - began
                seconds = {"acknowledged": acknowledged, "in an epoch": matched}
                _add(report, setting, seconds, kernels[setting.stream])


def _add(report: Report, setting: Setting, seconds_until: dict[str, float], kernel: float) -> None:
    for what, seconds in seconds_until.items():
        rate = setting.rows.num_rows / seconds
        what = f"{setting.queries}: publish until all is {what}, matching on"
        judged = {"aim": f"≥ {setting.aim:,.0f} rows/s", "met": rate >= setting.aim}
        report.add(what, rate, "rows/s", ratio=rate / kernel, beside="kernel", **judged)


def _without_engine(
    folder: Path, setting: Setting, report: Report, kernels: Mapping[str, float], quick: bool
) -> None:
    """The engine's first step takes all of them. Not with --quick: Spark would start again."""
    rates = {}
    folder.mkdir()
    with RunningStore(folder) as store:
        store.start_server()
        with store.client() as client:
            setting.define(client)
            _publish(client, setting, "warm-up", 2 * BATCH_ROWS)
            alone, _ = timed(lambda: _publish(client, setting, "benchmark"))
            rates["publish alone, engine stopped"] = setting.rows.num_rows / alone
            if not quick:
                store.start_engine()
                behind = client.status().behind_rows
                caught_up, _ = timed(lambda: store.wait_until_matched(client, 600))
                rates["engine alone, catching up"] = behind / caught_up
    for what, rate in rates.items():
        ratio = {"ratio": rate / kernels[setting.stream], "beside": "kernel"}
        report.add(f"{setting.queries}: {what}", rate, "rows/s", **ratio)


def _publish(client: Client, setting: Setting, name: str, count: int | None = None) -> None:
    batches = workload.batches(setting.rows.slice(0, count), BATCH_ROWS)
    client.publisher(f"{name} {setting.stream}").publish_many(setting.stream, batches)


def _define_mixed(client: Client) -> None:
    client.define(workload.STREAM)
    workload.register_mixed(client, 100)


def _mixed_stem() -> QueryStem:
    statement = parse_statement(workload.STREAM)
    assert isinstance(statement, CreateStream)
    stem = QueryStem()
    for number, text in enumerate(workload.mixed_texts(100)):
        stem.insert(number, bind_query(text, lambda _: statement.schema).leg.where)
    return stem


def _kernel_rate(setting: Setting) -> float:
    """All queries over all rows: the predicate index and nothing else."""
    rows = setting.rows.slice(0, 1_000_000)
    parts = rows.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
    stem = setting.stem()
    stem.probe(parts[0]).bitmaps()
    seconds, _ = timed(lambda: [stem.probe(part).bitmaps() for part in parts])
    return float(rows.num_rows / seconds)
