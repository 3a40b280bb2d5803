"""Fairness: what the calls of a quiet tenant take while another one floods the server.

In the long form (`--minutes`) there are 50 tenants with 100,000 registrations and 1,000 connected
clients that watch; one of them floods, and the calls of the others are measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa

from benchmarks.memory import resident
from benchmarks.report import Report
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub

TENANTS, REGISTRATIONS, CONNECTED = 50, 100_000, 1_000
_ROWS = 20_000
_AIM = 2.0
# Batches that a stream of them has on their way.
_IN_FLIGHT = 8
# Seconds after which a tenant that calls no more is not counted on.
_ALONE = 6.0
# Seconds between the calls of a tenant that does not call without a pause.
_PAUSE = 0.02
# Enough for all rows, which no engine takes away: what is measured is not how often they are read.
_MEMORY = 8 << 30
# What a flood does again and again, and how many do so at once.
_FLOODS = {
    "invoke": 64,
    "ask": 16,
    "register": 32,
    "publish of a row": 64,
    "publish of 5,000 rows": 16,
    "stream of batches of 5,000 rows": 4,
    "HTTP invoke": 64,
    "HTTP publish of 1,000 rows as JSON": 16,
}


@dataclass(frozen=True)
class TenantCaller:
    """A caller of a tenant over a connection of its own."""

    stub: Any
    tenant: str

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        principal = {"tenant": self.tenant, "owner": "one", "roles": ["developer"]}
        return (("x-principal", json.dumps(principal)),)

    async def unary(self, rpc: str, request: Any) -> Any:
        return await getattr(self.stub, rpc)(request, metadata=self.metadata, timeout=60)

    async def stream(self, rpc: str, request: Any) -> list[Any]:
        call = getattr(self.stub, rpc)(request, metadata=self.metadata, timeout=60)
        return [part async for part in call]


@asynccontextmanager
async def connected(target: str, tenant: str) -> AsyncIterator[TenantCaller]:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(target, options) as channel:
        yield TenantCaller(PsoupStub(channel), tenant)


def run(folder: Path, quick: bool, minutes: float | None = None) -> Report:
    if minutes:
        return asyncio.run(_long(folder, minutes * 60))
    return asyncio.run(_short(folder, 4.0 if quick else 20.0))


# ---- two tenants


async def _short(folder: Path, seconds: float) -> Report:
    setting = (
        f"one server with {_MEMORY >> 30} GiB, no engine; a quiet tenant's calls one by one, "
        f"{seconds:.0f} s each"
    )
    report = Report("fairness", setting)
    with _server(folder / "store", "--memory", str(_MEMORY)) as (target, web, _):
        async with connected(target, "quiet") as quiet:
            await _prepare(quiet)
            async with connected(target, "flood") as flood:
                await _prepare(flood)
            await _measure(quiet, 1.0)
            alone = await _measure(quiet, seconds)
            pausing = await _measure(quiet, seconds, _PAUSE)
            for name, p99 in alone.items():
                report.add(f"alone: {name}, p99", p99, "ms")
            for kind, callers in _FLOODS.items():
                address = web if kind.startswith("HTTP") else target
                with _flooding(address, kind, callers) as done:
                    rate = await _rate(done, seconds)
                    begun = done()
                    flooded = await _measure(quiet, seconds)
                    beside, begun = (done() - begun) / seconds, done()
                    found_pausing = await _measure(quiet, seconds, _PAUSE)
                    beside_pausing = (done() - begun) / seconds
                for name, p99 in flooded.items():
                    ratio = p99 / alone[name]
                    report.add(
                        f"{callers} × {kind}: {name}, p99",
                        p99,
                        "ms",
                        ratio=ratio,
                        beside="alone",
                        aim=f"≤ {_AIM:.0f} ×",
                        met=ratio <= _AIM,
                    )
                name = f"{callers} × {kind}: of the flood itself"
                report.add(name, beside, "calls/s", ratio=beside / max(rate, 1e-9), beside="alone")
                worst = max(found_pausing[name] / pausing[name] for name in pausing)
                name = f"{callers} × {kind}, {_PAUSE * 1e3:.0f} ms between calls"
                report.add(f"{name}: the worst p99", worst, "× alone", aim=f"≤ {_AIM:.0f} ×",
                           met=worst <= _AIM)  # fmt: skip
                report.add(f"{name}: of the flood itself", beside_pausing, "calls/s",
                           ratio=beside_pausing / max(rate, 1e-9), beside="alone")  # fmt: skip
    return report


async def _rate(done: Callable[[], int], seconds: float) -> float:
    """Return the calls per second of a flood without other callers, after a pause."""
    await asyncio.sleep(_ALONE)
    before, started = done(), time.monotonic()
    await asyncio.sleep(seconds / 4)
    return (done() - before) / (time.monotonic() - started)


async def _prepare(caller: TenantCaller) -> None:
    await caller.unary("Define", pb.DefineRequest(sql="CREATE STREAM s (a BIGINT, t TEXT)"))
    await caller.unary("Publish", pb.PublishRequest(stream="s", arrow=_rows(_ROWS)))


async def _measure(caller: TenantCaller, seconds: float, pause: float = 0) -> dict[str, float]:
    """The 99th percentile of each kind of call, in milliseconds. The first of each is left out: it
    may find out what later ones know."""
    handle = (await caller.unary("Register", _query("a < 100"))).handle
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "invoke": lambda: caller.stream("Invoke", _invoke(handle)),
        "ask": lambda: caller.stream("Ask", pb.AskRequest(sql="SELECT count(*) FROM s ROWS 100")),
        "publish of a row": lambda: caller.unary("Publish", _batch(1)),
    }
    milliseconds: dict[str, list[float]] = {name: [] for name in calls}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for name, call in calls.items():
            if pause:
                await asyncio.sleep(pause)
            started = time.perf_counter()
            await call()
            milliseconds[name].append((time.perf_counter() - started) * 1e3)
    return {
        name: float(np.percentile(samples[1:] or samples, 99))
        for name, samples in milliseconds.items()
    }


def _query(where: str) -> pb.RegisterRequest:
    return pb.RegisterRequest(sql=f"SELECT a FROM s WHERE {where}")


def _invoke(handle: bytes) -> pb.InvokeRequest:
    return pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW)


def _batch(rows: int) -> pb.PublishRequest:
    return pb.PublishRequest(stream="s", arrow=_rows(rows))


def _rows(count: int) -> bytes:
    table = pa.table({"a": range(count), "t": [f"text {n}" for n in range(count)]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


# ---- the flood, in a process of its own


@contextmanager
def _flooding(target: str, kind: str, callers: int) -> Iterator[Callable[[], int]]:
    """While in the context a flood is under way; gives how many of its calls are done."""
    spawn = multiprocessing.get_context("spawn")
    under_way, done = spawn.Semaphore(0), spawn.Value("q", 0)
    arguments = target, kind, callers, under_way, done
    process = spawn.Process(target=_flood, args=arguments, daemon=True)
    process.start()
    for _ in range(callers):
        under_way.acquire()
    try:
        yield lambda: done.value
    finally:
        process.terminate()
        process.join()


def _flood(target: str, kind: str, callers: int, under_way: Semaphore, done: Any) -> None:
    # Real floods come from other machines: theirs is not the work that the others wait for.
    os.nice(10)
    asyncio.run(_flood_all(target, kind, callers, under_way, done))


async def _flood_all(target: str, kind: str, callers: int, under_way: Semaphore, done: Any) -> None:
    await asyncio.gather(
        *(_flood_one(target, kind, number, under_way, done) for number in range(callers))
    )


async def _flood_one(target: str, kind: str, number: int, under_way: Semaphore, done: Any) -> None:
    """Call again and again; release `under_way` after the first call, and count calls in `done`."""
    if kind.startswith("HTTP"):
        await _flood_http(target, kind, under_way, done)
    async with connected(target, "flood") as caller:
        handle = (await caller.unary("Register", _query("a < 100"))).handle
        batch = _batch(5_000 if "5,000" in kind else 1)
        stream = caller.stub.PublishStream(metadata=caller.metadata)
        for turn in count():
            different = f"a * {number + 2} > {turn} OR t LIKE '%{turn}%'"
            with contextlib.suppress(grpc.aio.AioRpcError):
                if kind == "invoke":
                    await caller.stream("Invoke", _invoke(handle))
                elif kind == "ask":
                    sql = f"SELECT count(*) FROM s WHERE {different}"
                    await caller.stream("Ask", pb.AskRequest(sql=sql))
                elif kind == "register":
                    await caller.unary("Register", _query(different))
                elif kind.startswith("stream"):
                    for _ in range(1 if turn else _IN_FLIGHT):
                        await stream.write(batch)
                    await stream.read()
                else:
                    await caller.unary("Publish", batch)
            done.value += 1
            if not turn:
                under_way.release()


async def _flood_http(address: str, kind: str, under_way: Semaphore, done: Any) -> None:
    async with HttpCaller.connected(address, "flood") as caller:
        sql = b"SELECT a FROM s WHERE a < 100"
        key = f"flood {os.getpid()}".replace(" ", "-")
        await caller.call("PUT", f"/v1/registrations/{key}", "application/sql", sql)
        batch = json.dumps([{"a": n, "t": f"text {n}"} for n in range(1000)]).encode()
        for turn in count():
            if kind == "HTTP invoke":
                await caller.call("GET", f"/v1/answers/{key}?format=arrow")
            else:
                await caller.call("POST", "/v1/streams/s/rows", "application/json", batch)
            done.value += 1
            if not turn:
                under_way.release()


@dataclass(frozen=True)
class HttpCaller:
    """A caller of a tenant over a connection of HTTP that is kept."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: str

    @classmethod
    @asynccontextmanager
    async def connected(cls, address: str, tenant: str) -> AsyncIterator[HttpCaller]:
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        ((name, value),) = TenantCaller(None, tenant).metadata
        try:
            yield cls(reader, writer, f"Host: {address}\r\n{name}: {value}\r\n")
        finally:
            writer.close()

    async def call(self, method: str, path: str, content_type: str = "", body: bytes = b"") -> int:
        """Send a request, read the response, and return its status."""
        lines = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n" if body else ""
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{self.head}{lines}\r\n".encode() + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = head.partition("content-length: ")[2].partition("\r\n")[0]
        if length:
            await self.reader.readexactly(int(length))
        else:
            while size := int(await self.reader.readline(), 16):
                await self.reader.readexactly(size + 2)
            await self.reader.readline()
        return int(head.split()[1])


# ---- many tenants, for long


async def _long(folder: Path, seconds: float) -> Report:
    setting = (
        f"{TENANTS} tenants, {REGISTRATIONS:,} registrations, {CONNECTED:,} connected clients that "
        f"watch, {seconds / 60:.0f} minutes; one tenant floods in the second half"
    )
    report = Report("fairness-long", setting)
    names = [f"tenant {number}" for number in range(TENANTS - 1)]
    with _server(folder / "store") as (target, _, pid):
        async with contextlib.AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(connected(target, task)) for task in names]
            flood = await stack.enter_async_context(connected(target, "flood"))
            for caller in (*callers, flood):
                await _prepare(caller)
                await _register_many(caller, REGISTRATIONS // TENANTS)
            watches = [
                asyncio.create_task(_watch(target, names[number % len(names)]))
                for number in range(CONNECTED)
            ]
            await asyncio.sleep(5)
            report.add("memory before", resident([pid]) / 2**20, "MB")
            alone = await _measure_all(callers, seconds / 2)
            with _flooding(target, "ask", 64), _flooding(target, "publish of 5,000 rows", 16):
                flooded = await _measure_all(callers, seconds / 2)
                report.add("memory with the flood", resident([pid]) / 2**20, "MB")
            for name, p99 in alone.items():
                report.add(f"alone: {name}, p99", p99, "ms")
                ratio = flooded[name] / p99
                more = {"ratio": ratio, "beside": "alone", "met": ratio <= _AIM}
                report.add(
                    f"flood: {name}, p99", flooded[name], "ms", aim=f"≤ {_AIM:.0f} ×", **more
                )
            report.add("watches that ended early", sum(task.done() for task in watches), "watches")
            for task in watches:
                task.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
    return report


async def _register_many(caller: TenantCaller, count: int) -> None:
    table = pa.table({"least": range(count)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    sql = "SELECT a FROM s WHERE a > :least ROWS 10"
    request = pb.RegisterManyRequest(sql=sql, arrow=bytes(sink.getvalue()))
    await caller.unary("RegisterMany", request)


async def _watch(target: str, tenant: str) -> None:
    async with connected(target, tenant) as caller:
        handle = (await caller.unary("Register", _query("a = 3"))).handle
        sync = pb.SyncRequest(items=[pb.SyncItem(handle=handle)])
        call = caller.stub.Watch(pb.WatchRequest(sync=sync), metadata=caller.metadata)
        async for _ in call:
            pass


async def _measure_all(callers: list[TenantCaller], seconds: float) -> dict[str, float]:
    """The worst 99th percentile of some of the tenants, which call one by one."""
    percentiles = await asyncio.gather(*(_measure(caller, seconds) for caller in callers[:4]))
    return {name: max(caller[name] for caller in percentiles) for name in percentiles[0]}


# ---- the server


@contextmanager
def _server(folder: Path, *options: str) -> Iterator[tuple[str, str, int]]:
    """Yield the addresses of a server's two doors, and its process."""
    command = [sys.executable, "-m", "benchmarks.tenants_server", str(folder), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    try:
        lines = process.stdout.readline(), process.stdout.readline()
        target = lines[0].removeprefix("server ready on ").strip()
        web = lines[1].removeprefix("web ready on http://").strip()
        yield target, web, process.pid
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()
