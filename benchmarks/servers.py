"""Servers: calls of one server, and of two on one port, for the processor time of the busiest.

Clients and servers share the cores of one machine, so calls a second would measure the clients. A
server is full when its process is: calls ÷ processor time of the busiest is what it could take.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa

from benchmarks.memory import processor
from benchmarks.report import Report
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from tests.support.system.processes import RunningStore

STREAM = "CREATE STREAM readings (device BIGINT, level BIGINT)"
ROWS = 10_000
CONNECTIONS = 64
THREADS = 8
AIM = 1.8


def run(folder: Path, quick: bool) -> Report:
    calls, rounds = (1_600, 2) if quick else (16_000, 5)
    setting = f"{calls:,} invokes of 100 rows over {CONNECTIONS} connections, {rounds} rounds"
    report = Report("servers", setting)
    rates: dict[int, list[float]] = {1: [], 2: []}
    shares: list[float] = []
    for count in rates:
        (folder / str(count)).mkdir()
        with RunningStore(folder / str(count)) as store:
            target = store.start_server("--servers", str(count))
            handle = fill(store)
            pids = store.servers[0].children() if count > 1 else [store.servers[0].pid]
            invoker = Invoker(target, handle)
            invoker.run(calls // 8)
            for _ in range(rounds):
                before = [processor([pid]) for pid in pids]
                invoker.run(calls)
                used = [processor([pid]) - past for pid, past in zip(pids, before, strict=True)]
                rates[count].append(calls / max(used))
                if count > 1:
                    shares.append(max(used) / sum(used))
            invoker.close()
    best = {count: max(values) for count, values in rates.items()}
    for count, rate in best.items():
        name = "one server" if count == 1 else f"{count} servers"
        report.add(f"{name}: calls for a second of the busiest", rate, "calls")
    ratio = best[2] / best[1]
    report.add("two servers ÷ one", ratio, "×", aim=f"≥ {AIM:g} ×", met=ratio >= AIM)
    report.add("the busier one's share of the work, least", min(shares), "")
    return report


def fill(store: RunningStore) -> bytes:
    with store.client() as client:
        client.define(STREAM)
        numbers = range(ROWS)
        table = pa.table({"device": [number % 100 for number in numbers], "level": list(numbers)})
        client.publish("readings", table)
        return client.register("SELECT level FROM readings WHERE device = 7").handle


class Invoker:
    """Clients with a connection each, which the kernel divides between the servers of a port."""

    def __init__(self, target: str, handle: bytes) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channels = [grpc.insecure_channel(target, options) for _ in range(CONNECTIONS)]
        self._stubs: list[Any] = [PsoupStub(channel) for channel in self._channels]
        self._request = pb.InvokeRequest(
            handle=handle, encoding=pb.ENCODING_ARROW, one_message=True
        )

    def run(self, calls: int) -> None:
        """Make as many calls, from some threads at once."""
        threads = [
            threading.Thread(target=self._invoke, args=(number, calls // THREADS))
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _invoke(self, thread: int, calls: int) -> None:
        stubs = self._stubs[thread::THREADS]
        for number in range(calls):
            for _ in stubs[number % len(stubs)].Invoke(self._request):
                pass

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
