"""A thousand clients come back at once, to one server.

Each has a registration with a predicate of its own, and is a task of one client process with a
connection of its own, made before. They come twice: for their first copy, a whole answer, and back
for what changed.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pyarrow as pa

from benchmarks import workload
from benchmarks.figures import Figure, Panel, Series
from benchmarks.memory import resident
from benchmarks.report import Report
from benchmarks.sync.calls import FRAME, OPTIONS, SYNC, sync_request
from benchmarks.timing import Times
from client_sdk import Client
from psoup.v1 import psoup_pb2 as pb
from tests.support.generators import START
from tests.support.system.processes import RunningStore

AIM = 10.0
FLAT = 1.25
FIRST, BACK = "first copies", "back for changes"
# Asked one by one, for one client's time.
ALONE = 20


@dataclass(frozen=True)
class Sizes:
    """An answer has a row of each 82 of the window."""

    clients: int
    rows: int
    window: int
    changed: int


FULL = Sizes(1_000, 1_000_000, 820_000, 8_200)
QUICK = Sizes(100, 100_000, 82_000, 8_200)


@dataclass(frozen=True)
class Rush:
    """Seconds since the start at which each client was done; what one takes alone; memory."""

    done: Sequence[float]
    alone: float
    nbytes: float
    before: int
    most: int
    after: int

    @property
    def share(self) -> float:
        """The time of the whole rush, as a share of what the clients would take one by one on all
        cores.
        """
        return max(self.done) / (self.alone * len(self.done) / (os.cpu_count() or 1))


def measure(report: Report, folder: Path, quick: bool) -> None:
    folder.mkdir()
    sizes = QUICK if quick else FULL
    with RunningStore(folder) as store:
        target = store.start_server()
        with store.client() as client:
            handles = _fill(store, client, sizes, engine=not quick)
            rushes = asyncio.run(_rushes(target, client, handles, store.servers[0].pid, sizes))
    for name, rush in rushes.items():
        _report(report, name, rush)
    report.figures.append(_figure(rushes))


def _fill(store: RunningStore, client: Client, sizes: Sizes, engine: bool) -> list[bytes]:
    client.define(workload.STREAM)
    sql = (
        "SELECT lane, station, speed, at FROM traffic WHERE station = :station AND speed > :speed "
        f"RANGE {sizes.window} MILLISECONDS"
    )
    count = sizes.clients + ALONE
    parameters = {
        "station": [number % workload.STATIONS + 1 for number in range(count)],
        "speed": [number / 1e4 for number in range(count)],
    }
    handles = list(client.register_many(sql, pa.table(parameters)).handles)
    rows = workload.rows(sizes.rows)
    client.publisher("fill").publish_many("traffic", workload.batches(rows, 20_000))
    if engine:
        running = store.start_engine()
        store.wait_until_matched(client, 240)
        running.stop()
    return handles


async def _rushes(
    target: str, client: Client, handles: Sequence[bytes], pid: int, sizes: Sizes
) -> dict[str, Rush]:
    rushes = {}
    returning = [Returning(target, handle) for handle in handles]
    await asyncio.gather(*(device.connect() for device in returning))
    for name in (FIRST, BACK):
        alone = [await device.recharge() for device in returning[:ALONE]]
        crowd = returning[ALONE:]
        with Resident(pid) as memory:
            began = time.perf_counter()
            done = await asyncio.gather(*(device.recharge(began) for device in crowd))
        await asyncio.sleep(0.5)
        nbytes = sum(device.nbytes for device in crowd) / len(crowd)
        measured = memory.before, memory.most, resident([pid])
        rushes[name] = Rush(sorted(done), Times(alone).p50, nbytes, *measured)
        last = START + (sizes.rows + sizes.changed - 1) * workload.EVERY
        client.publish("traffic", workload.rows(sizes.changed, last))
    for device in returning:
        await device.close()
    return rushes


class Returning:
    """One client: a connection, a handle and a token."""

    def __init__(self, target: str, handle: bytes) -> None:
        options = (*OPTIONS, ("grpc.use_local_subchannel_pool", 1))
        self._channel = grpc.aio.insecure_channel(target, options)
        self._call = self._channel.unary_stream(SYNC, None, None)
        self._handle = handle
        self._token = b""
        self.nbytes = 0

    async def connect(self) -> None:
        await self._channel.channel_ready()

    async def recharge(self, began: float | None = None) -> float:
        """Seconds since `began`, or since it asked."""
        since = time.perf_counter() if began is None else began
        size, last = 0, b""
        async for message in self._call(sync_request(self._handle, self._token), timeout=120):
            size += len(message) + FRAME
            last = message
        done = time.perf_counter() - since
        self.nbytes = size
        self._token = pb.SyncPart.FromString(last).end.token
        assert self._token, "the sync did not come to its end"
        return done

    async def close(self) -> None:
        await self._channel.close(None)


class Resident:
    """A process's resident memory: before, and the most while it is looked at."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.before = self.most = 0

    def __enter__(self) -> Resident:
        self.before = self.most = resident([self._pid])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ending.wait(0.02):
            self.most = max(self.most, resident([self._pid]))


# ---- what came out


def _report(report: Report, name: str, rush: Rush) -> None:
    title = f"{len(rush.done):,} clients at once, {name}"
    times = Times(rush.done)
    report.add(f"{title}: one alone p50", rush.alone * 1e3, "ms")
    report.add(f"{title}: bytes each", rush.nbytes, "bytes")
    report.add(f"{title}: p50", times.p50 * 1e3, "ms")
    report.add(f"{title}: p99", times.p99 * 1e3, "ms")
    report.add(
        f"{title}: all",
        max(rush.done) * 1e3,
        "ms",
        ratio=rush.share,
        beside="one's time × clients / cores",
        aim=f"≤ {AIM:.0f} ×",
        met=rush.share <= AIM,
    )
    report.add(f"{title}: memory before", rush.before / 1e6, "MB")
    growth = rush.most / rush.before
    flat = {"aim": f"≤ {FLAT} ×", "met": growth <= FLAT}
    report.add(
        f"{title}: memory, most", rush.most / 1e6, "MB", ratio=growth, beside="before", **flat
    )
    report.add(f"{title}: memory after", rush.after / 1e6, "MB")


def _figure(rushes: dict[str, Rush]) -> Figure:
    panels = []
    for name, rush in rushes.items():
        count = len(rush.done)
        places = list(range(0, count, max(1, count // 200)))
        shares = [100 * (place + 1) / count for place in places]
        perfect = rush.alone * count / (os.cpu_count() or 1)
        series = [
            Series(f"{count:,} at once", [rush.done[place] for place in places], shares, 0),
            Series("one's time × clients / cores", [0, perfect], [0, 100], 5, "dashed"),
        ]
        panels.append(Panel(name, "seconds since all asked", "% of the clients done", series))
    return Figure("sync-clients", "Many clients come back at once", panels, 2)
