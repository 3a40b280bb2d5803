"""Invoke: a 100-row answer out of a window of 65,536 rows, beside an empty streaming call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc

from benchmarks import workload
from benchmarks.baseline import empty_call
from benchmarks.report import Report
from benchmarks.timing import Times, interleaved
from client_sdk import Client
from psoup.v1 import psoup_pb2 as pb
from psoup.v1 import psoup_pb2_grpc
from tests.system.processes import RunningStore

QUERIES = 100
AIM = 3.0
EMPTY = "empty call"


def run(folder: Path, quick: bool) -> Report:
    count, rounds = (200_000, 300) if quick else (1_000_000, 2_000)
    with RunningStore(folder) as store, empty_call() as empty:
        target = store.start_server()
        store.start_engine()
        with store.client() as client, grpc.insecure_channel(target) as channel:
            handles = _prepare(store, client, count)
            raw = Raw(psoup_pb2_grpc.PsoupStub(channel), handles)
            typed = Raw(psoup_pb2_grpc.PsoupStub(channel), handles, pb.ENCODING_UNSPECIFIED)
            calls: dict[str, Callable[[int], object]] = {
                EMPTY: lambda _: empty(),
                "raw stub, Arrow": raw,
                "raw stub, typed values": typed,
                "SDK": lambda n: client.invoke(handles[n % QUERIES]),
                "SDK, rows as dicts": lambda n: client.invoke(handles[n % QUERIES]).rows,
            }
            interleaved(calls, QUERIES * 2)
            raw.elapsed.clear()
            times = interleaved(calls, rounds)
    return _report(count, rounds, times, raw)


class Raw:
    """Invoke through the generated stub alone; keeps what the headers say."""

    def __init__(
        self,
        stub: psoup_pb2_grpc.PsoupStub,
        handles: list[bytes],
        encoding: pb.Encoding = pb.ENCODING_ARROW,
    ) -> None:
        self._invoke = stub.Invoke
        self._requests = [pb.InvokeRequest(handle=h, encoding=encoding) for h in handles]
        self.elapsed: list[float] = []
        self.rows = 0

    def __call__(self, number: int) -> None:
        header, *_ = self._invoke(self._requests[number % len(self._requests)])
        assert header.header.computed_rows == 0, "the engine has not caught up"
        self.rows += header.header.row_count
        self.elapsed.append(header.header.elapsed.ToTimedelta().total_seconds())


def _prepare(store: RunningStore, client: Client, count: int) -> list[bytes]:
    client.define(workload.STREAM)
    handles = workload.register(client, [workload.pair_query(n) for n in range(QUERIES)])
    table = workload.rows(count)
    client.publisher("benchmark").publish_many("traffic", workload.batches(table, 20_000))
    store.wait_until_matched(client)
    return handles


def _report(count: int, rounds: int, times: dict[str, Times], raw: Raw) -> Report:
    rows = raw.rows / (rounds + 2 * QUERIES)
    setting = f"{rows:.0f} rows of a window of {workload.WINDOW_ROWS:,}, stream of {count:,}"
    report = Report("invoke", f"{setting}, {rounds:,} rounds")
    empty, server = times.pop(EMPTY), Times(raw.elapsed)
    transport = times["raw stub, Arrow"].minus(server)
    for quantile in ("p50", "p99"):
        base = getattr(empty, quantile)
        report.add(f"{EMPTY} {quantile}", base * 1e3, "ms")
        for name, taken in times.items():
            ratio = getattr(taken, quantile) / base
            aim = {"aim": f"≤ {AIM:.0f} ×", "met": ratio <= AIM} if "dicts" not in name else {}
            value = getattr(taken, quantile) * 1e3
            report.add(f"{name} {quantile}", value, "ms", ratio=ratio, beside="empty", **aim)
        for name, taken in (("in the server", server), ("around it", transport)):
            value = getattr(taken, quantile)
            ratio = value / base
            report.add(f"— {name} {quantile}", value * 1e3, "ms", ratio=ratio, beside="empty")
    return report
