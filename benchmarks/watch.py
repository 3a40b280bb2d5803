"""Watch: what rows cost a server with ten thousand watches of which they concern ten; and how
blocks that overlap in time are found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import grpc
import numpy as np
import pyarrow as pa
from google.protobuf.duration_pb2 import Duration

from benchmarks.memory import processor, resident
from benchmarks.report import Report
from benchmarks.timing import timed
from client_sdk import Client
from datastem.block_times import BlockTimes
from datastem.blocks import BLOCK_ROWS
from datastem.segments import RowSegment, SegmentIndex
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from tests.support.system.processes import Process

T = TypeVar("T")

STREAM = "CREATE STREAM readings (device BIGINT, level BIGINT)"
CONCERNED = 10
# Calls, and so connections' worth of state; the others are items of the same calls.
PER_CALL = 10
BEAT = Duration(seconds=600)
_WHERES = {
    "a device each": "device = :n",
    "a range each": "level BETWEEN :low AND :high",
}


def run(folder: Path, quick: bool) -> Report:
    watches, batches = (1_000, 50) if quick else (10_000, 200)
    rows = f"batches of {CONCERNED} rows, each for one of them"
    report = Report("watch", f"{watches:,} watches in {watches // PER_CALL:,} calls; {rows}")
    for kind, where in _WHERES.items():
        before = _measure(folder / kind / "before", where, watches, 2, "benchmarks.watch_before")
        after = _measure(folder / kind / "after", where, watches, batches, "psoup.server")
        what = f"{watches:,} watches of {kind}: processor time of the server"
        report.add(f"{what} a row, waking all", before.row * 1e3, "ms")
        ratio = {"ratio": before.row / after.row, "beside": "less than waking all"}
        report.add(f"{what} a row", after.row * 1e3, "ms", **ratio)
        ratio = {"ratio": after.nobody / after.alone, "beside": "without watches"}
        report.add(f"{what} a row that concerns nobody", after.nobody * 1e3, "ms", **ratio)
        report.add(f"{kind}, without watches: that of a row", after.alone * 1e3, "ms")
        report.add(f"{what} a second without rows", after.idle * 1e3, "ms")
        report.add(
            f"{watches:,} watches of {kind}: until all ten are told",
            after.notified_seconds * 1e3,
            "ms",
        )
        report.add(f"{watches:,} watches of {kind}: memory of one", after.nbytes, "bytes")
    for blocks in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
        _blocks(report, blocks)
    return report


# ---- watches


@dataclass(frozen=True)
class _Cost:
    """Processor seconds of a server for a row that concerns one watch, for one that concerns none,
    for one while nobody watches, and for a second without rows; seconds until the watches
    that a batch concerns are notified; bytes of a watch."""

    row: float
    nobody: float
    alone: float
    idle: float
    notified_seconds: float
    nbytes: float


def _measure(folder: Path, where: str, watches: int, batches: int, module: str) -> _Cost:
    folder.mkdir(parents=True)
    arguments = ["-m", module, "--store", str(folder / "store"), "--port", "0"]
    server = Process([*arguments, "--watches", "20000"], folder / "server.log")
    try:
        target = server.wait_for(r"server ready on (\S+)")[1]
        with Client(target) as client, grpc.insecure_channel(target) as channel:
            client.define(STREAM)
            sql = f"SELECT device, level FROM readings WHERE {where}"
            registered = client.register_many(sql, _parameters(where, watches))
            alone, _ = _Publishing(client, server, [], watches, 0).cost(batches, nobody=True)
            empty = resident([server.pid])
            calls = _watch(PsoupStub(channel), registered.handles)
            _until_idle(server)
            nbytes = (resident([server.pid]) - empty) / watches
            idle = _busy(server, 5.0)
            publishing = _Publishing(client, server, calls, watches, idle)
            row, notified_seconds = publishing.cost(batches, nobody=False)
            nobody, _ = publishing.cost(batches, nobody=True)
            return _Cost(row, nobody, alone, idle, notified_seconds, nbytes)
    finally:
        server.kill()


def _parameters(where: str, watches: int) -> pa.Table:
    numbers = np.arange(watches)
    every = {"n": numbers, "low": 10 * numbers, "high": 10 * numbers + 9}
    return pa.table({name: every[name] for name in every if f":{name}" in where})


def _watch(stub: PsoupStub, handles: Sequence[bytes]) -> list[Iterator[Any]]:
    """The calls, after the first round of each."""
    calls = []
    for first in range(0, len(handles), PER_CALL):
        items = [pb.SyncItem(handle=handle) for handle in handles[first : first + PER_CALL]]
        calls.append(stub.Watch(pb.WatchRequest(sync=pb.SyncRequest(items=items), beat=BEAT)))
    for call in calls:
        for _ in range(PER_CALL):
            _next_end(call)
    return calls


@dataclass(frozen=True)
class _Publishing:
    """Publishes batches to a server that takes `idle` of a core, with calls that watch, or none."""

    client: Client
    server: Process
    calls: Sequence[Iterator[Any]]
    watches: int
    idle: float

    def cost(self, batches: int, nobody: bool) -> tuple[float, float]:
        """Return the processor seconds of a row, and the seconds until the watches that a batch
        concerns are notified: ten of them, or with `nobody` none."""
        random, notified_seconds = np.random.default_rng(1), []
        busy, began = processor([self.server.pid]), time.monotonic()
        for _ in range(batches):
            chosen = random.choice(self.watches // PER_CALL, CONCERNED, replace=False)
            numbers = chosen * PER_CALL + random.integers(0, PER_CALL, CONCERNED)
            numbers = -1 - numbers if nobody else numbers
            rows = pa.table({"device": numbers, "level": numbers * 10 + 5})
            seconds, _ = timed(partial(self._tell, rows, [] if nobody else chosen.tolist()))
            notified_seconds.append(seconds)
        _until_idle(self.server)
        busy = processor([self.server.pid]) - busy - self.idle * (time.monotonic() - began)
        return busy / batches / CONCERNED, float(np.median(notified_seconds))

    def _tell(self, rows: pa.Table, chosen: Sequence[int]) -> None:
        self.client.publish("readings", rows)
        for place in chosen:
            _next_end(self.calls[place])


def _next_end(call: Iterator[Any]) -> None:
    while not next(call).HasField("end"):
        pass


def _until_idle(server: Process) -> None:
    """Until nothing is left to do: a second in which the server does next to nothing."""
    while _busy(server, 1.0) > 0.1:
        pass


def _busy(server: Process, seconds: float) -> float:
    """The share of a core that the server takes."""
    before = processor([server.pid])
    time.sleep(seconds)
    return (processor([server.pid]) - before) / seconds


# ---- blocks


def _blocks(report: Report, count: int) -> None:
    """Blocks of a stream whose rows come up to a day late: each of a minute, and in some a row of
    hours ago."""
    random = np.random.default_rng(2)
    late = np.where(random.random(count) < 0.005, random.integers(0, 24 * 60, count), 0)
    segments = [_segment(number, int(late[number])) for number in range(count)]
    high = count * BLOCK_ROWS
    anew, index = _least(lambda: SegmentIndex.of(segments[:-1], high - BLOCK_ROWS))
    while index.times.tree.probe(index.times, 0, 1) is None and count >= 1 << 15:
        index.times.follow()
    kept_seconds, newer = _least(lambda: SegmentIndex.of(segments, high, index))
    followed, _ = _spent(newer.times.follow)
    what = f"{count:,} blocks, one in 200 with late rows"
    report.add(f"{what}: a new block, all made anew", anew * 1e3, "ms")
    ratio = {"ratio": anew / (kept_seconds + followed), "beside": "less than anew"}
    report.add(f"{what}: a new block", (kept_seconds + followed) * 1e3, "ms", **ratio)
    report.add(f"{what}: — of that the tree", followed * 1e3, "ms")
    middle = count // 2 * 60
    for name, begin, end in (
        ("the last minutes", (count - 3) * 60, count * 60),
        ("an instant in the midst", middle + 1, middle + 2),
        ("an hour in the midst", middle, middle + 3600),
        ("all", 0, count * 60),
    ):
        _look_up(report, f"{what}: {name}", newer.times, begin, end)


def _segment(number: int, late: int) -> RowSegment:
    low = number * BLOCK_ROWS
    return RowSegment(low, low + BLOCK_ROWS, (number - late) * 60, number * 60 + 59, number)


def _look_up(report: Report, what: str, times: BlockTimes, begin: int, end: int) -> None:
    overlapping = times.overlapping(begin, end)
    assert overlapping == _scanned(times, begin, end)
    scan = _often(lambda: _scanned(times, begin, end))
    ours = _often(lambda: times.overlapping(begin, end))
    found_text = f"{what}, {len(overlapping):,} found"
    report.add(f"{found_text}: looking at all", scan * 1e6, "µs")
    report.add(found_text, ours * 1e6, "µs", ratio=scan / ours, beside="less than looking at all")
    if len(overlapping) <= 100 and times.tree.probe(times, begin, end) is not None:
        tree = _often(lambda: times.tree.probe(times, begin, end))
        report.add(f"{found_text}: by the tree alone", tree * 1e6, "µs")


def _scanned(times: BlockTimes, begin: int, end: int) -> list[int]:
    chosen = (times.low < end) & (times.high >= begin)
    numbers: list[int] = times.numbers[chosen].tolist()
    return numbers


def _least(work: Callable[[], T]) -> tuple[float, T]:
    """The least processor seconds of five times the same work, and what it gave."""
    return min((_spent(work) for _ in range(5)), key=lambda run: run[0])


def _spent(work: Callable[[], T]) -> tuple[float, T]:
    began = time.process_time()
    outcome = work()
    return time.process_time() - began, outcome


def _often(work: Callable[[], object]) -> float:
    """The least processor seconds of several rounds of the same work."""
    work()
    return min(_spent(lambda: [work() for _ in range(20)])[0] / 20 for _ in range(5))
