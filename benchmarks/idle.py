"""Idle: the processor time of a server and an engine to which nothing happens, and how long a row
then takes until another server and the engine have it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
from google.protobuf.duration_pb2 import Duration

from benchmarks.freshness import EpochWatch
from benchmarks.memory import processor
from benchmarks.report import Report
from benchmarks.timing import Times
from client_sdk import Client
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from tests.support.system.processes import RunningStore

STREAM = "CREATE STREAM readings (device BIGINT, level BIGINT)"
REGISTRATIONS = 1_000
WATCHES = 100
SERVER_AIM, ENGINE_AIM = 10.0, 20.0
# Longer than a server stays awake after a call, and than an engine takes for a step.
_SETTLE_SECONDS = 2.0
_BEAT = Duration(seconds=600)


def run(folder: Path, quick: bool) -> Report:
    seconds, rounds = (5.0, 5) if quick else (30.0, 30)
    setting = f"{seconds:g} s each; {REGISTRATIONS:,} registrations, {WATCHES} watches"
    report = Report("idle", setting)
    with RunningStore(folder) as store:
        for _ in range(2):
            store.start_server()
        store.start_engine()
        with store.client(0) as near, grpc.insecure_channel(store.targets[1]) as channel:
            near.define(STREAM)
            _measure(report, store, "no registrations", seconds)
            handles = _register(near)
            store.wait_until_matched(near)
            _measure(report, store, f"{REGISTRATIONS:,} registrations", seconds)
            calls = _watch(PsoupStub(channel), handles)
            _measure(report, store, f"these and {WATCHES} watches", seconds)
            _delays(report, store, near, calls[0], rounds)
    return report


def _register(client: Client) -> Sequence[bytes]:
    table = pa.table({"n": range(REGISTRATIONS)})
    return client.register_many("SELECT level FROM readings WHERE device = :n", table).handles


def _watch(stub: PsoupStub, handles: Sequence[bytes]) -> list[Iterator[Any]]:
    """Open a watch of each of the first handles; return the calls, each after its first round."""
    calls: list[Iterator[Any]] = []
    for handle in handles[:WATCHES]:
        sync = pb.SyncRequest(items=[pb.SyncItem(handle=handle)])
        calls.append(stub.Watch(pb.WatchRequest(sync=sync, beat=_BEAT)))
    for call in calls:
        _next_end(call)
    return calls


def _next_end(call: Iterator[Any]) -> None:
    while not next(call).HasField("end"):
        pass


def _measure(report: Report, store: RunningStore, state: str, seconds: float) -> None:
    """Report the processor time of a second of the second server, which gets the watches, and of
    the engine: its Python and all its processes, of which Spark's own are most."""
    engine = store.engine
    assert engine is not None
    parts = {
        "server": [store.servers[1].pid],
        "engine": [engine.pid],
        "engine with Spark's processes": [engine.pid, *engine.children()],
    }
    time.sleep(_SETTLE_SECONDS)
    began = time.monotonic()
    before = {name: processor(pids) for name, pids in parts.items()}
    time.sleep(seconds)
    elapsed = time.monotonic() - began
    for name, pids in parts.items():
        used = (processor(pids) - before[name]) / elapsed * 1e3
        aim = SERVER_AIM if name == "server" else ENGINE_AIM
        judged = {"aim": f"≤ {aim:g} ms", "met": used <= aim}
        report.add(f"{name}, {state}: processor time a second", used, "ms", **judged)


def _delays(
    report: Report, store: RunningStore, client: Client, call: Iterator[Any], rounds: int
) -> None:
    """Publish a row at a time to the idle store; report how long after its acknowledgement the
    watch on the other server has it, and an epoch."""
    watched, consumed = [], []
    with EpochWatch(store.store) as epochs:
        for number in range(rounds):
            time.sleep(_SETTLE_SECONDS / 2)
            published = client.publish("readings", pa.table({"device": [0], "level": [number]}))
            acknowledged = time.perf_counter()
            _next_end(call)
            watched.append(time.perf_counter() - acknowledged)
            epochs.wait_for(published.position)
            at = epochs.when(published.position)
            assert at is not None
            consumed.append(at - acknowledged)
    for name, seconds in (("a watch on another server", watched), ("an epoch", consumed)):
        for quantile in ("p50", "p99"):
            value = getattr(Times(seconds), quantile) * 1e3
            report.add(f"acknowledged → {name} {quantile}", value, "ms")
