"""What metrics cost: the same invokes to a server with a port for metrics and to one without."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import grpc
import numpy as np

from benchmarks.memory import thread_seconds
from benchmarks.report import Report
from benchmarks.servers import fill
from psoup.answers.stages import timed
from psoup.monitoring.exposition import BoundedNames, new_registry
from psoup.server.metrics.recording import RecordedMetrics
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from tests.support.system.processes import RunningStore

AIM = 1.02
SCRAPES = 50
# How many stages an invoke has at most, and how often they are measured.
STAGES, ROUNDS = 8, 20_000


def run(folder: Path, quick: bool) -> Report:
    turns, calls = (20, 200) if quick else (60, 500)
    report = Report("monitoring", f"{turns} turns of {calls:,} invokes of 100 rows each")
    with RunningStore(folder) as store:
        plain = store.start_server()
        handle = fill(store)
        watched = store.start_server("--metrics", "127.0.0.1:0")
        address = store.servers[1].wait_for(r"metrics ready on (\S+)")[1]
        seconds: dict[str, list[float]] = {plain: [], watched: []}
        pids = dict(zip((plain, watched), (server.pid for server in store.servers), strict=True))
        request = pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW, one_message=True)
        with grpc.insecure_channel(plain) as first, grpc.insecure_channel(watched) as second:
            stubs = {plain: PsoupStub(first), watched: PsoupStub(second)}
            for turn in range(-1, turns):
                order = (plain, watched) if turn % 2 else (watched, plain)
                for target in order:
                    before = _seconds(pids[target])
                    for _ in range(calls):
                        for _ in stubs[target].Invoke(request):
                            pass
                    # The first turn warms up.
                    if turn >= 0:
                        seconds[target].append((_seconds(pids[target]) - before) / calls)
        without, with_metrics = (float(np.median(seconds[target])) for target in (plain, watched))
        # Turns that follow each other are alike in what else the machine does.
        ratio = float(np.median(np.divide(seconds[watched], seconds[plain])))
        report.add("invoke without metrics: processor time", 1e3 * without, "ms")
        report.add(
            "invoke with metrics: processor time",
            1e3 * with_metrics,
            "ms",
            ratio=ratio,
            beside="without",
            aim=f"≤ {AIM} ×",
            met=ratio <= AIM,
        )
        before = _seconds(pids[watched])
        for _ in range(SCRAPES):
            with urllib.request.urlopen(f"http://{address}/metrics") as response:
                size = len(response.read())
        report.add(
            f"{SCRAPES} scrapes at once, for each: processor time",
            1e3 * (_seconds(pids[watched]) - before) / SCRAPES,
            "ms",
        )
        report.add("a page", size, "bytes")
        recorded = _recorded_seconds()
        report.add(
            "what is recorded of an invoke: processor time",
            1e6 * recorded,
            "µs",
            ratio=recorded / without,
            beside="an invoke",
            aim=f"≤ {AIM - 1:.2f} ×",
            met=recorded / without <= AIM - 1,
        )
        untraced = _untraced_seconds()
        report.add(
            f"{STAGES} stages of an invoke that is not traced: processor time",
            1e6 * untraced,
            "µs",
            ratio=untraced / without,
            beside="an invoke",
        )
    return report


def _seconds(pid: int) -> float:
    """Return the processor time of a server, exact to the nanosecond: a turn is some ticks only."""
    return thread_seconds([pid])[pid]


def _recorded_seconds() -> float:
    """Return what it costs to record an invoke: in this process, so that no other load is in it."""
    metrics = RecordedMetrics(new_registry(), BoundedNames(1000))
    before = time.process_time()
    for _ in range(ROUNDS):
        metrics.compute("main", 100, 0)
        metrics.end_call("Invoke", "grpc", "OK", "", 0.001, 0.0, "main")
    return (time.process_time() - before) / ROUNDS


def _untraced_seconds() -> float:
    """Return what the checks cost whether stages are timed, if they are not."""
    before = time.process_time()
    for _ in range(ROUNDS * STAGES):
        with timed(None, "plan"):
            pass
    return (time.process_time() - before) / ROUNDS
