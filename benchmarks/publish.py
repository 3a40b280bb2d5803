"""Publish: rows a second from one publisher with matching on, beside each half alone."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

from benchmarks import workload
from benchmarks.report import Report
from benchmarks.timing import timed
from client_sdk import Client
from querystem.index.stem import QueryStem
from querystem.language import CreateStream, bind_query, parse_statement
from tests.system.processes import RunningStore

QUERIES = 100
BATCH_ROWS = 20_000
AIM = 50_000.0


def run(folder: Path, quick: bool) -> Report:
    count = 400_000 if quick else 3_000_000
    table = workload.rows(count)
    report = Report("publish", f"{count:,} rows in batches of {BATCH_ROWS:,}, {QUERIES} queries")
    kernel = _kernel_rate(table.slice(0, min(count, 1_000_000)))
    _with_engine(folder / "with", table, report, kernel)
    _without_engine(folder / "without", table, report, kernel)
    report.add("the kernel alone, one core, in this process", kernel, "rows/s")
    return report


def _with_engine(folder: Path, table: pa.Table, report: Report, kernel: float) -> None:
    folder.mkdir()
    with RunningStore(folder) as store:
        store.start_server()
        store.start_engine()
        with store.client() as client:
            _define(client)
            _publish(client, table.slice(0, 2 * BATCH_ROWS), "warm-up")
            store.wait_until_matched(client)
            start = time.perf_counter()
            _publish(client, table, "benchmark")
            acknowledged = time.perf_counter() - start
            store.wait_until_matched(client, 600)
            matched = time.perf_counter() - start
    goal = {"aim": f"≥ {AIM:,.0f} rows/s"}
    for what, seconds in (("acknowledged", acknowledged), ("in an epoch", matched)):
        rate = table.num_rows / seconds
        what = f"publish until all is {what}, matching on"
        report.add(
            what, rate, "rows/s", ratio=rate / kernel, beside="kernel", met=rate >= AIM, **goal
        )


def _without_engine(folder: Path, table: pa.Table, report: Report, kernel: float) -> None:
    folder.mkdir()
    with RunningStore(folder) as store:
        store.start_server()
        with store.client() as client:
            _define(client)
            _publish(client, table.slice(0, 2 * BATCH_ROWS), "warm-up")
            alone, _ = timed(lambda: _publish(client, table, "benchmark"))
            store.start_engine()
            behind = client.status().behind_rows
            caught_up, _ = timed(lambda: store.wait_until_matched(client, 600))
    for what, rate in (
        ("publish alone, engine stopped", table.num_rows / alone),
        ("engine alone, catching up", behind / caught_up),
    ):
        report.add(what, rate, "rows/s", ratio=rate / kernel, beside="kernel")


def _define(client: Client) -> None:
    client.define(workload.STREAM)
    workload.register(client, [workload.mixed_query(n) for n in range(QUERIES)])


def _publish(client: Client, table: pa.Table, name: str) -> None:
    client.publisher(name).publish_many("traffic", workload.batches(table, BATCH_ROWS))


def _kernel_rate(table: pa.Table) -> float:
    """All queries over all rows: the predicate index and nothing else."""
    statement = parse_statement(workload.STREAM)
    assert isinstance(statement, CreateStream)
    stem = QueryStem()
    for number in range(QUERIES):
        query = bind_query(workload.mixed_query(number), lambda _: statement.schema)
        stem.insert(number, query.where)
    parts = table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
    stem.probe(parts[0])
    seconds, _ = timed(lambda: [stem.probe(part) for part in parts])
    return float(table.num_rows / seconds)
