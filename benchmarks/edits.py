"""Edits with `_expected`, patches beside whole rows of stored keys, and batches with the name that
a column had before RENAME, by a server in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from benchmarks.report import Report
from psoup.server.calls.define import define
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.support.server.callers import new_call
from tests.support.server.process import ipc

SQL = "CREATE STREAM orders (id BIGINT, item TEXT, note TEXT) KEY (id)"
FILL_ROWS = 100_000
# Rows of a batch, batches of a round, and callers that publish at once.
SHAPES = ((1, 400, 16), (1_000, 40, 4))
# Of each kind of batch, the kind that it is compared with.
KINDS = {
    "new keys": "",
    "new keys with _expected": "new keys",
    "whole rows of stored keys": "new keys",
    "patches of stored keys": "whole rows of stored keys",
}
RENAME = "ALTER STREAM orders RENAME COLUMN item TO goods"


def run(folder: Path, quick: bool) -> Report:
    stored, rounds = (100_000, 3) if quick else (1_000_000, 15)
    report = Report("edits", f"{rounds} rounds, processor time of a server without a wire")
    asyncio.run(_measure(folder, stored, rounds, report))
    return report


async def _measure(folder: Path, stored: int, rounds: int, report: Report) -> None:
    for keys in (0, stored):
        async with _server(folder / str(keys)) as core:
            for first in range(0, keys, FILL_ROWS):
                await _send(core, _table(first, FILL_ROWS, None))
            for rows, batches, callers in SHAPES:
                await _compare(core, keys, (rows, batches, callers), rounds, report)
            await define(core, new_call(), pb.DefineRequest(sql=RENAME))
            await _compare_names(core, keys, rounds, report)


async def _compare(
    core: Core, keys: int, shape: tuple[int, int, int], rounds: int, report: Report
) -> None:
    """Publish batches by turns: new keys, with and without a condition, then the last ones again as
    whole rows and as patches."""
    rows, batches, callers = shape
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    numbers = count(10**9 * (1 + rows), rows)
    firsts: list[int] = []
    for _ in range(rounds):
        for kind, seconds in times.items():
            if kind.startswith("new"):
                firsts = [next(numbers) for _ in range(batches)]
            expected = -1 if "_expected" in kind else None
            tables = [_table(first, rows, expected, "patch" in kind) for first in firsts]
            seconds.append(await _seconds(core, tables, callers))
    _add(report, f"{keys:,} keys stored, batches of {rows:,}", times, KINDS, batches)


async def _compare_names(core: Core, keys: int, rounds: int, report: Report) -> None:
    """Publish batches by turns under the name that a column has and under the one before."""
    rows, batches, callers = SHAPES[0]
    names = {"the name after RENAME": "", "the name before it": "the name after RENAME"}
    times: dict[str, list[float]] = {name: [] for name in names}
    numbers = count(10**11, rows)
    for _ in range(rounds):
        for name, seconds in times.items():
            item = "goods" if names[name] == "" else "item"
            tables = [_table(next(numbers), rows, None, item=item) for _ in range(batches)]
            seconds.append(await _seconds(core, tables, callers))
    _add(report, f"{keys:,} keys stored, batches of {rows:,}", times, names, batches)


def _add(
    report: Report,
    what: str,
    times: dict[str, list[float]],
    beside: dict[str, str],
    batches: int,
) -> None:
    for name, seconds in times.items():
        ratio = {}
        if beside[name]:
            ratio = {"ratio": median(seconds) / median(times[beside[name]]), "beside": beside[name]}
        report.add(f"{what}: {name}", median(seconds) / batches * 1e3, "ms", **ratio)


async def _seconds(core: Core, tables: list[bytes], callers: int) -> float:
    """Publish tables by several callers at once; return the processor time that it takes."""
    began = time.process_time()
    await asyncio.gather(*(_send_all(core, tables[caller::callers]) for caller in range(callers)))
    return time.process_time() - began


@asynccontextmanager
async def _server(folder: Path) -> AsyncIterator[Core]:
    core = Core(Store.open(folder, create=True, sync=False), Settings(folder))
    await core.start()
    statement = parse_statement(SQL)
    assert isinstance(statement, CreateStream)
    await core.appender.submit(Define("main", "main", statement.schema))
    try:
        yield core
    finally:
        await core.stop()


def _table(
    first: int, rows: int, expected: int | None, is_patch: bool = False, item: str = "item"
) -> bytes:
    columns = {"id": np.arange(first, first + rows), item: ["lamp"] * rows}
    if is_patch:
        columns["_op"] = ["patch"] * rows
    else:
        columns["note"] = ["n"] * rows
    if expected is not None:
        columns["_expected"] = np.full(rows, expected)
    return ipc(pa.table(columns))


async def _send_all(core: Core, tables: list[bytes]) -> None:
    for table in tables:
        await _send(core, table)


async def _send(core: Core, table: bytes) -> None:
    await publish(core, new_call(), pb.PublishRequest(stream="orders", arrow=table))
