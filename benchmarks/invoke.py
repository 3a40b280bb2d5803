"""Invoke: small answers beside an empty call and DuckDB, large ones beside a bare stream of bytes,
the first of a new query, and cold ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from benchmarks import workload
from benchmarks.baseline import BareCall, bare_server
from benchmarks.cold import Filled, cold, fill
from benchmarks.report import Report
from benchmarks.rerun import Rerun
from benchmarks.stub import Invokes, Stub
from benchmarks.timing import Times, interleaved, timed
from client_sdk import Client
from psoup.v1 import psoup_pb2 as pb
from tests.support.system.processes import RunningStore

INVOKED = 100
BIG_ROWS = 100_000
EMPTY, DUCKDB = "empty call", "DuckDB"
AGGREGATES = {"count": "count(*)", "avg": "avg(speed)"}
CALL_AIMS = {"p50": 2.0, "p99": 5.0}
WORK_AIMS = {"rows": 6.0, "count": 10.0, "avg": 10.0}
BIG_AIM, FIRST_AIM = 0.6, 0.100


@dataclass(frozen=True)
class Sizes:
    rows: int
    queries: int
    rounds: int
    large: int
    cold_rows: int
    cold_starts: int


FULL = Sizes(1_000_000, 4096, 2_000, 60, 10_000_000, 5)
QUICK = Sizes(200_000, 512, 100, 5, 200_000, 2)


def run(folder: Path, quick: bool) -> Report:
    sizes = QUICK if quick else FULL
    setting = f"{sizes.rows:,} rows, {sizes.queries:,} queries, {sizes.rounds:,} rounds"
    report = Report("invoke", setting)
    with RunningStore(folder) as store, bare_server() as bare:
        target = store.start_server()
        engine = store.start_engine(ready=False)
        rows = workload.rows(sizes.rows)
        with store.client() as client, grpc.insecure_channel(target) as channel:
            handles = workload.fill(store, client, rows, sizes.queries, INVOKED)
            stub = Stub(channel)
            _small(report, client, stub, bare, Rerun(rows), sizes.rounds)
            _big(report, client, stub, bare, sizes.large)
            engine.stop()
            _first(report, client, stub, sizes)
    filled = Filled(folder, rows, handles)
    if sizes.cold_rows > sizes.rows:
        filled = fill(folder / "cold", sizes.cold_rows, sizes.queries)
    cold(report, filled, sizes.cold_starts)
    return report


# ---- about 100 rows


def _small(
    report: Report, client: Client, stub: Stub, bare: BareCall, duckdb: Rerun, rounds: int
) -> None:
    kinds = {"rows": "lane, station, speed, at", **AGGREGATES}
    invokes = {kind: Invokes(stub, _handles(client, sql)) for kind, sql in kinds.items()}
    rows = _handles(client, kinds["rows"])
    calls: dict[str, Callable[[int], Any]] = {
        EMPTY: lambda _: bare(),
        **invokes,
        **{f"{DUCKDB} {kind}": partial(_rerun, duckdb, sql) for kind, sql in kinds.items()},
        "typed values": Invokes(stub, rows, pb.ENCODING_UNSPECIFIED),
        "SDK": lambda n: client.invoke(rows[n % INVOKED]),
        "SDK, rows as dicts": lambda n: client.invoke(rows[n % INVOKED]).rows,
    }
    interleaved(calls, INVOKED)
    for own_invokes in invokes.values():
        own_invokes.headers.clear()
    times = interleaved(calls, rounds)
    headers = [header for own_invokes in invokes.values() for header in own_invokes.headers]
    assert not any(header.computed_rows for header in headers), "the engine has not caught up"
    _report_calls(report, times)
    for kind, own_invokes in invokes.items():
        _report_work(report, kind, own_invokes.work, times[f"{DUCKDB} {kind}"])


def _handles(client: Client, outputs: str) -> list[bytes]:
    return workload.register(client, [workload.pair_query(n, outputs) for n in range(INVOKED)])


def _rerun(duckdb: Rerun, outputs: str, number: int) -> None:
    duckdb.pair(number % INVOKED, outputs.replace(" at", ' "at"'))


def _report_calls(report: Report, times: dict[str, Times]) -> None:
    for quantile, aim in CALL_AIMS.items():
        base = getattr(times[EMPTY], quantile)
        report.add(f"{EMPTY} {quantile}", base * 1e3, "ms")
        for name, measured in times.items():
            if name == EMPTY or name.startswith(DUCKDB):
                continue
            value = getattr(measured, quantile)
            ratio = value / base
            goal = {"aim": f"≤ {aim:.0f} ×", "met": ratio <= aim} if name == "rows" else {}
            report.add(
                f"invoke, {name} {quantile}", value * 1e3, "ms", ratio=ratio, beside="empty", **goal
            )


def _report_work(report: Report, kind: str, work: Times, duckdb: Times) -> None:
    ratio, aim = duckdb.p50 / work.p50, WORK_AIMS[kind]
    report.add(f"{DUCKDB} again, {kind} p50", duckdb.p50 * 1e3, "ms")
    report.add(
        f"our work apart from the call, {kind} p50",
        work.p50 * 1e3,
        "ms",
        ratio=ratio,
        beside="less than DuckDB",
        aim=f"≥ {aim:.0f} ×",
        met=ratio >= aim,
    )


# ---- many rows


def _big(report: Report, client: Client, stub: Stub, bare: BareCall, rounds: int) -> None:
    text = f"SELECT lane, station, speed, at FROM traffic RANGE {BIG_ROWS} MILLISECONDS"
    handle = client.register(text).handle
    sizes = [len(piece) for piece in stub.pieces(handle)]
    calls: dict[str, Callable[[int], Any]] = {
        "bare": lambda _: bare(sum(sizes), max(sizes)),
        "invoke": lambda _: sum(map(len, stub.pieces(handle))),
    }
    interleaved(calls, 5)
    times = interleaved(calls, rounds)
    speeds = {name: sum(sizes) / measured.p50 / 1e6 for name, measured in times.items()}
    ratio = speeds["invoke"] / speeds["bare"]
    report.add(f"bare stream of {sum(sizes) / 1e6:.1f} MB", speeds["bare"], "MB/s")
    report.add(
        f"invoke of {BIG_ROWS:,} rows, Arrow",
        speeds["invoke"],
        "MB/s",
        ratio=ratio,
        beside="bare stream",
        aim=f"≥ {BIG_AIM:.1f} ×",
        met=ratio >= BIG_AIM,
    )


# ---- a query that the engine has not matched yet


def _first(report: Report, client: Client, stub: Stub, sizes: Sizes) -> None:
    """The engine is stopped, so all rows are evaluated when the query is first invoked."""
    seconds, again = [], []
    for number in range(sizes.large):
        lane, station = workload.pair(number)
        where = f"lane = {lane} AND station = {station} AND speed < {90 + number / 100}"
        text = f"SELECT lane, station, speed, at FROM traffic WHERE {where}"
        invoke = partial(stub.invoke, client.register(text).handle)
        first_seconds, header = timed(invoke)
        assert header.computed_rows == sizes.rows, "not all rows were new to the query"
        seconds.append(first_seconds)
        again.append(timed(invoke)[0])
    value = Times(seconds).p50
    report.add(
        f"first answer of a new query over all {sizes.rows:,} rows p50",
        value * 1e3,
        "ms",
        ratio=value / Times(again).p50,
        beside="its second",
        aim=f"≤ {FIRST_AIM * 1e3:.0f} ms",
        met=value <= FIRST_AIM,
    )
