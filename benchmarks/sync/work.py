"""The server's own work for a sync, in this process and without gRPC: what does it grow with?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from benchmarks import workload
from benchmarks.report import Report
from benchmarks.sync.calls import sync_request
from benchmarks.sync.changes import KEYED, SLIDING, keyed_rows
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.calls.sync import sync
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.support.server.callers import new_call
from tests.support.server.process import ipc

CHANGED = (0, 1)
BATCH = 100_000


@dataclass(frozen=True)
class Kind:
    """A query over a stream, whose answer has as many rows as the stream is given."""

    title: str
    stream: str
    definition: str
    sql: str
    rows: Callable[[int, int, int], pa.Table]
    most: int = 1_000_000


def _sliding(first: int, count: int, answer: int) -> pa.Table:
    return SLIDING.rows(first, count)


KINDS = (
    Kind(
        "sliding window",
        SLIDING.name,
        SLIDING.stream,
        "SELECT lane, station, speed, at FROM traffic WHERE speed >= 0 RANGE {} MILLISECONDS",
        _sliding,
    ),
    Kind("current rows by key", KEYED.name, KEYED.stream, KEYED.sql, keyed_rows),
    Kind(
        "groups",
        KEYED.name,
        KEYED.stream.replace(" KEY (meter)", ""),
        "SELECT meter, count(*) AS n, avg(reading) AS mean FROM meters GROUP BY meter",
        keyed_rows,
        100_000,
    ),
)


def measure(report: Report, folder: Path, quick: bool) -> None:
    for kind in KINDS:
        for size in (10_000,) if quick else (10_000, kind.most):
            place = folder / f"{kind.title}-{size}"
            least_seconds = asyncio.run(_measured(kind, place, size, 5))
            for changed, seconds in least_seconds.items():
                what = f"server's work, {kind.title}: {changed} of {size:,} rows changed"
                report.add(what, seconds * 1e3, "ms of a processor")


async def _measured(kind: Kind, folder: Path, size: int, rounds: int) -> dict[int, float]:
    """The least processor time, by changed rows."""
    settings = Settings(store=folder, durability="none")
    core = Core(Store.open(folder, create=True, sync=False), settings)
    await core.start()
    statement = parse_statement(kind.definition, max_columns=100, max_text=10_000)
    assert isinstance(statement, CreateStream)
    await core.appender.submit(Define("main", "main", statement.schema))
    registered, *_ = await register(core, new_call(), pb.RegisterRequest(sql=kind.sql.format(size)))
    (handle,) = registered.handles
    for batch in workload.batches(kind.rows(0, size, size), BATCH):
        await publish(core, new_call(), pb.PublishRequest(stream=kind.stream, arrow=ipc(batch)))
    token, _ = await sync_once(core, handle, b"")
    published, least_seconds = size, {}
    for changed in CHANGED:
        sync_seconds = []
        for _ in range(rounds):
            if changed:
                rows = ipc(kind.rows(published, changed, size))
                await publish(core, new_call(), pb.PublishRequest(stream=kind.stream, arrow=rows))
                published += changed
            token, seconds = await sync_once(core, handle, token)
            sync_seconds.append(seconds)
        least_seconds[changed] = min(sync_seconds)
    await core.stop()
    return least_seconds


async def sync_once(core: Core, handle: bytes, token: bytes) -> tuple[bytes, float]:
    """One sync: its new token, and the processor time it took."""
    request = pb.SyncRequest.FromString(sync_request(handle, token))
    began = time.process_time()
    parts = [part async for part in sync(core, new_call(60.0), request)]
    return parts[-1].end.token, time.process_time() - began
