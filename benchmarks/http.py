"""HTTP beside gRPC: the server's processor time and the latency of answers, in turns; idle streams
of changes; the window slider of the console."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from benchmarks import workload
from benchmarks.report import Report
from benchmarks.stub import Stub
from benchmarks.timing import Times
from psoup.v1 import psoup_pb2 as pb
from tests.support.system.processes import RunningStore

INVOKED = 100
ROWS = 100_000
# Calls of one kind in a row: early figures of latency depended on it.
BLOCKS = (1, 5, 25)
AIMS = {"HTTP Arrow": 1.1, "HTTP JSON": 2.0}

Call = Callable[[int], Any]


def run(folder: Path, quick: bool) -> Report:
    calls = 500 if quick else 5_000
    report = Report("http", f"{ROWS:,} rows, answers of about 100, {calls:,} calls of each kind")
    with RunningStore(folder) as store:
        target = store.start_server("--web", "127.0.0.1:0", module="psoup.web")
        web = store.servers[0].wait_for(r"web ready on http://(\S+)")[1]
        store.start_engine()
        with store.client() as client, grpc.insecure_channel(target) as channel:
            handles = workload.fill(store, client, workload.rows(ROWS), INVOKED, INVOKED)
            _answers(report, store.servers[0].pid, Stub(channel), web, handles, calls)
    return report


def processor_seconds(pid: int) -> float:
    """Processor time of all threads of a process, which all must still run."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def _answers(
    report: Report, pid: int, stub: Stub, web: str, handles: list[bytes], calls: int
) -> None:
    connection = http.client.HTTPConnection(web)
    paths = [f"/v1/answers/{handle.hex()}" for handle in handles]
    typed = pb.ENCODING_UNSPECIFIED
    kinds: dict[str, Call] = {
        "gRPC Arrow": lambda number: stub.invoke(handles[number % INVOKED]),
        "HTTP Arrow": partial(_get, connection, [f"{path}?format=arrow" for path in paths]),
        "gRPC typed": lambda number: stub.invoke(handles[number % INVOKED], typed),
        "HTTP JSON": partial(_get, connection, paths),
    }
    for call in kinds.values():
        for number in range(INVOKED):
            call(number)
    for block in BLOCKS:
        seconds, used = _in_turns(pid, kinds, block, calls)
        for name in kinds:
            beside = "HTTP Arrow" if name == "HTTP JSON" else "gRPC Arrow"
            ratio = used[name] / used[beside]
            details: dict[str, Any] = {"ratio": ratio, "beside": beside}
            if aim := AIMS.get(name):
                details |= {"aim": f"≤ {aim:g} ×", "met": ratio <= aim}
            what = f"{name}, blocks of {block}: server's processor time"
            report.add(what, used[name] * 1e3, "ms", **details)
        for name in kinds:
            beside = "gRPC Arrow" if "Arrow" in name else "gRPC typed"
            p50 = seconds[name].p50
            report.add(f"{name}, blocks of {block}: latency p50", p50 * 1e3, "ms",
                       ratio=p50 / seconds[beside].p50, beside=beside)  # fmt: skip


def _in_turns(
    pid: int, kinds: Mapping[str, Call], block: int, calls: int
) -> tuple[dict[str, Times], dict[str, float]]:
    """Return the seconds of all calls, and the server's processor time of one."""
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    used = dict.fromkeys(kinds, 0.0)
    for first in range(0, calls, block):
        for name, call in kinds.items():
            before = processor_seconds(pid)
            for number in range(first, first + block):
                started = time.perf_counter()
                call(number)
                seconds[name].append(time.perf_counter() - started)
            used[name] += processor_seconds(pid) - before
    return (
        {name: Times(samples) for name, samples in seconds.items()},
        {name: used[name] / len(seconds[name]) for name in kinds},
    )


def _get(connection: http.client.HTTPConnection, paths: list[str], number: int) -> bytes:
    connection.request("GET", paths[number % len(paths)])
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, content
    return content
