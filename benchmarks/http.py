"""HTTP beside gRPC: the server's processor time and the latency of answers, in turns; idle streams
of changes; the window slider of the console."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import numpy as np

from benchmarks import workload
from benchmarks.memory import resident
from benchmarks.report import Report
from benchmarks.stub import Stub
from benchmarks.timing import Times
from client_sdk import Client
from psoup.v1 import psoup_pb2 as pb
from tests.support.system.processes import Process, RunningStore

INVOKED = 100
ROWS, QUICK_ROWS = 1_000_000, 100_000
# Calls of one kind in a row: early figures of latency depended on it.
BLOCKS = (1, 5, 25)
STREAMS = 1_000
SLIDER_AIM_MS, STREAMS_AIM_MB, END_AIM_SECONDS = 15, 60, 12
AIMS = {"HTTP Arrow": 1.1, "HTTP JSON": 2.0}

Call = Callable[[int], Any]


def run(folder: Path, quick: bool) -> Report:
    calls, rows = (500, QUICK_ROWS) if quick else (2_000, ROWS)
    report = Report("http", f"{rows:,} rows, answers of about 100, {calls:,} calls of each kind")
    with RunningStore(folder) as store:
        target = store.start_server("--web", "127.0.0.1:0", module="psoup.web")
        web = store.servers[0].wait_for(r"web ready on http://(\S+)")[1]
        store.start_engine()
        with store.client() as client, grpc.insecure_channel(target) as channel:
            handles = workload.fill(store, client, workload.rows(rows), INVOKED, INVOKED)
            pid = store.servers[0].pid
            _answers(report, pid, Stub(channel), web, handles, calls)
            _slider(report, store, client, pid, web, rows, calls // 5)
            _streams(report, store.servers[0], web, handles[0])
    return report


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Seconds for which the threads of a process ran, and for which they waited for a core."""

    ran: float
    waited: float

    @classmethod
    def of(cls, pid: int) -> ProcessorTime:
        """Threads that have ended count nothing."""
        ran, waited = 0, 0
        for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                fields = file.read_text().split()
                ran, waited = ran + int(fields[0]), waited + int(fields[1])
        return cls(ran / 1e9, waited / 1e9)

    def __sub__(self, earlier: ProcessorTime) -> ProcessorTime:
        return ProcessorTime(self.ran - earlier.ran, self.waited - earlier.waited)

    def per_call(self, calls: int) -> ProcessorTime:
        return ProcessorTime(self.ran / calls, self.waited / calls)

    def __add__(self, more: ProcessorTime) -> ProcessorTime:
        return ProcessorTime(self.ran + more.ran, self.waited + more.waited)


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
            ratio = used[name].ran / used[beside].ran
            details: dict[str, Any] = {"ratio": ratio, "beside": beside}
            if aim := AIMS.get(name):
                details |= {"aim": f"≤ {aim:g} ×", "met": ratio <= aim}
            what = f"{name}, blocks of {block}: server's processor time"
            report.add(what, used[name].ran * 1e3, "ms", **details)
        for name in kinds:
            beside = "gRPC Arrow" if "Arrow" in name else "gRPC typed"
            what, waited = (
                f"{name}, blocks of {block}: the server waited for a core",
                used[name].waited,
            )
            report.add(what, waited * 1e3, "ms")
            p50 = seconds[name].p50
            report.add(f"{name}, blocks of {block}: latency p50", p50 * 1e3, "ms",
                       ratio=p50 / seconds[beside].p50, beside=beside)  # fmt: skip


def _in_turns(
    pid: int, kinds: Mapping[str, Call], block: int, calls: int
) -> tuple[dict[str, Times], dict[str, ProcessorTime]]:
    """Return the seconds of all calls, and the server's processor time of one."""
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    used = dict.fromkeys(kinds, ProcessorTime(0, 0))
    for first in range(0, calls, block):
        for name, call in kinds.items():
            before = ProcessorTime.of(pid)
            for number in range(first, first + block):
                started = time.perf_counter()
                call(number)
                seconds[name].append(time.perf_counter() - started)
            used[name] += ProcessorTime.of(pid) - before
    return (
        {name: Times(samples) for name, samples in seconds.items()},
        {name: used[name].per_call(len(seconds[name])) for name in kinds},
    )


def _get(connection: http.client.HTTPConnection, paths: list[str], number: int) -> bytes:
    connection.request("GET", paths[number % len(paths)])
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, content
    return content


# ---- the sliders of the console


def _slider(
    report: Report, store: RunningStore, client: Client, pid: int, web: str, rows: int, moves: int
) -> None:
    """Report answers with a window that changes from call to call, as a page asks for them."""
    queries = {
        "rows of a lane and a station": "SELECT * FROM traffic WHERE lane = 3 AND station = 7",
        "82 groups": "SELECT station, count(*), avg(speed) FROM traffic GROUP BY station",
        "all rows, of which 1,000 are sent": "SELECT * FROM traffic",
    }
    connection = http.client.HTTPConnection(web)
    for name, sql in queries.items():
        handle = client.register(f"{sql} RANGE {rows} MILLISECONDS").handle
        store.wait_until_matched(client)
        calls = [
            f"/v1/answers/{handle.hex()}?limit=1000&bigint=text"
            # From a second to all rows, evenly on the slider, whose scale is logarithmic.
            f"&window={quote(f'RANGE {round(1000 * (rows / 1000) ** share)} MILLISECONDS')}"
            for share in np.random.default_rng(0).uniform(0, 1, moves)
        ]
        _get(connection, calls, 0)
        seconds, used = _in_turns(pid, {name: partial(_get, connection, calls)}, 1, moves)
        p50 = seconds[name].p50 * 1e3
        report.add(f"slider, {name}: p50", p50, "ms", aim=f"≤ {SLIDER_AIM_MS} ms",
                   met=p50 <= SLIDER_AIM_MS)  # fmt: skip
        report.add(f"slider, {name}: server's processor time", used[name].ran * 1e3, "ms")


# ---- changes


def _streams(report: Report, server: Process, web: str, handle: bytes) -> None:
    """Report what idle streams of changes take, and how long the server takes to end with them."""
    before = resident([server.pid])
    sockets = [_open_stream(web, handle) for _ in range(STREAMS)]
    memory = (resident([server.pid]) - before) / 2**20
    report.add(f"{STREAMS:,} idle streams of changes: memory", memory, "MB",
               aim=f"≤ {STREAMS_AIM_MB} MB", met=memory <= STREAMS_AIM_MB)  # fmt: skip
    before_idle, seconds = ProcessorTime.of(server.pid), 10.0
    time.sleep(seconds)
    used = (ProcessorTime.of(server.pid) - before_idle).ran / seconds
    report.add(f"{STREAMS:,} idle streams: processor time a second", used * 1e3, "ms")
    started = time.monotonic()
    server.stop()
    elapsed = time.monotonic() - started
    report.add(f"SIGTERM with {STREAMS:,} streams until the end", elapsed, "s",
               aim=f"≤ {END_AIM_SECONDS} s", met=elapsed <= END_AIM_SECONDS)  # fmt: skip
    for opened in sockets:
        opened.close()


def _open_stream(web: str, handle: bytes) -> socket.socket:
    host, port = web.split(":")
    opened = socket.create_connection((host, int(port)), timeout=60)
    request = f"GET /v1/answers/{handle.hex()}/changes HTTP/1.1\r\nHost: {web}\r\n\r\n"
    opened.sendall(request.encode())
    content = b""
    while b"event: end" not in content:
        content = content[-20:] + opened.recv(1 << 16)
    return opened
