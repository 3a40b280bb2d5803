"""Joins: answers over several streams, beside DuckDB that runs the same join over the same rows.

Both are measured by processor time, in turns, in one process; then through a server. DuckDB gives
its rows in any order, an answer is in order.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import grpc
import numpy as np
import pyarrow as pa

from benchmarks import workload
from benchmarks.memory import processor
from benchmarks.report import Report
from benchmarks.stub import Stub
from benchmarks.sync.work import sync_once
from benchmarks.timing import least_cpu
from client_sdk import Client
from psoup.answers import Question
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.support.server.process import ipc
from tests.support.system.processes import RunningStore

EQUALITY_AIM, OTHER_AIM = 2.0, 3.0
SYNC_ROWS = 10_000
BATCH = 200_000


@dataclass(frozen=True)
class Join:
    """A join of streams with columns `k` and `v`. `batch` rows are published at a time."""

    title: str
    streams: Mapping[str, pa.Table]
    sql: str
    aim: float = EQUALITY_AIM
    batch: int = BATCH
    memory: int = 1 << 30


def run(folder: Path, quick: bool) -> Report:
    rounds, scale = (2, 16) if quick else (7, 1)
    size = "a sixteenth of the rows, " if quick else ""
    report = Report("joins", f"{size}least of {rounds} rounds, one thread each")
    for number, join in enumerate(_joins(scale)):
        asyncio.run(_in_process(report, join, folder / f"in-process-{number}", rounds))
    _over_grpc(report, _joins(scale)[:2], folder / "served", rounds)
    asyncio.run(_syncs(report, folder / "sync", SYNC_ROWS // scale, rounds))
    return report


# ---- the joins


def _joins(scale: int) -> list[Join]:
    small, middle, large = 1_000 // scale, 100_000 // scale, 1_000_000 // scale
    block = 65_536 // scale
    random = np.random.default_rng(1)

    def keys(count: int) -> np.ndarray[Any, Any]:
        return _sparse(random.permutation(count))

    two = "SELECT x.v AS v, y.v AS w FROM l x, r y WHERE "
    equal = two + "x.k = y.k"
    three = "SELECT x.v AS v, y.v AS w, z.v AS u FROM l x, r y, n z WHERE x.k = y.k AND y.v = z.k"
    hot = _sparse(np.where(np.arange(large) % 2, 7, np.arange(large)))
    dense = {name: _rows(random.permutation(block)) for name in "lr"}
    text = {name: _rows(keys(block).astype(str)) for name in "lr"}
    permuted = {name: _rows(keys(block)) for name in "lr"}
    return [
        Join(f"{block:,} × {block:,} by equal keys", permuted, equal),
        Join(
            f"{small:,} × {large:,} by equal keys",
            {"l": _rows(_sparse(np.arange(small) * 7)), "r": _rows(keys(large))},
            equal,
        ),
        Join(
            f"{middle:,} × {large:,} by equal keys",
            {"l": _rows(keys(middle)), "r": _rows(_sparse(np.arange(large) % middle))},
            equal,
        ),
        Join(f"{block:,} × {block:,} by dense keys", dense, equal, OTHER_AIM),
        Join(f"{block:,} × {block:,} by texts", text, equal, OTHER_AIM),
        Join(
            f"{small:,} × {large:,}, half of them with one key",
            {"l": _rows(_sparse(np.arange(small))), "r": _rows(hot)},
            equal,
            OTHER_AIM,
        ),
        Join(
            f"{middle:,} × {large:,} without a match",
            {"l": _rows(keys(middle)), "r": _rows(_sparse(np.arange(large)) + 1)},
            equal,
            OTHER_AIM,
        ),
        Join(
            f"{block:,} × {block:,} by equal keys, published in batches of 100",
            permuted,
            equal,
            OTHER_AIM,
            100,
        ),
        Join(
            f"a band over {middle // 10:,} × {middle:,}",
            {"l": _rows(np.arange(middle // 10) * 10), "r": _rows(random.permutation(middle))},
            two + "y.k >= x.k - 2 AND y.k <= x.k + 2",
            OTHER_AIM,
        ),
        Join(
            f"{large:,} × {small:,} × {small // 10:,}",
            {
                "l": _rows(keys(large)),
                "r": _rows(_sparse(np.arange(small)), np.arange(small) % max(1, small // 10)),
                "n": _rows(np.arange(max(1, small // 10))),
            },
            three,
            OTHER_AIM,
        ),
    ]


def _sparse(keys: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Keys that lie far apart: dense ones DuckDB has an array for, in place of a hash table."""
    return keys * 1_000_003 + 17


def _rows(keys: np.ndarray[Any, Any], values: np.ndarray[Any, Any] | None = None) -> pa.Table:
    values = np.arange(len(keys)) if values is None else values
    return pa.table({"k": pa.array(keys.tolist()), "v": pa.array(values)})


def _definition(name: str, rows: pa.Table) -> str:
    kind = "TEXT" if rows.schema.field("k").type == pa.string() else "BIGINT"
    return f"CREATE STREAM {name} (k {kind}, v BIGINT)"


# ---- in one process


async def _in_process(report: Report, join: Join, folder: Path, rounds: int) -> None:
    core = await _filled(join.streams, folder, join.batch, join.memory)
    again = _Duck(join)
    view = core.follower.view
    question = Question.of_text(join.sql, view.state)

    def answer() -> int:
        return core.maker.answer(view, question).row_count

    assert answer() == again(), join.title
    taken = least_cpu({"ours": answer, "DuckDB": again}, rounds)
    await core.stop()
    _report(report, join, answer_rows=again(), ours=taken["ours"], theirs=taken["DuckDB"])


async def _filled(streams: Mapping[str, pa.Table], folder: Path, batch: int, memory: int) -> Core:
    """A running server without a wire, over a store with these streams."""
    settings = Settings(store=folder, durability="none", memory=memory)
    core = Core(Store.open(folder, create=True, sync=False), settings)
    await core.start()
    for name, rows in streams.items():
        statement = parse_statement(_definition(name, rows))
        assert isinstance(statement, CreateStream)
        await core.appender.submit(Define("main", "main", statement.schema))
        for some in workload.batches(rows, batch):
            await publish(core, pb.PublishRequest(stream=name, arrow=ipc(some)))
    return core


class _Duck:
    """DuckDB that runs a join again over the same rows; gives how many rows it found."""

    def __init__(self, join: Join) -> None:
        self._database = duckdb.connect()
        self._database.execute("SET threads = 1")
        for name, rows in join.streams.items():
            self._database.register("given", rows)
            self._database.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            self._database.unregister("given")
        self._sql = join.sql

    def __call__(self) -> int:
        with warnings.catch_warnings():
            # That this copies the rows once more; the other way takes longer.
            warnings.simplefilter("ignore")
            found = self._database.execute(self._sql).to_arrow_table()
        return 0 if found is None else len(found)


def _report(report: Report, join: Join, answer_rows: int, ours: float, theirs: float) -> None:
    ratio = ours / theirs
    report.add(f"DuckDB: {join.title}, {answer_rows:,} pairs", theirs * 1e3, "ms")
    report.add(
        f"answer: {join.title}",
        ours * 1e3,
        "ms",
        ratio=ratio,
        beside="DuckDB",
        aim=f"≤ {join.aim:.0f} ×",
        met=ratio <= join.aim,
    )


# ---- through a server


def _over_grpc(report: Report, joins: Sequence[Join], folder: Path, rounds: int) -> None:
    """The processor time of the server process for one invoke, answer encoded and sent."""
    for number, join in enumerate(joins):
        place = folder / str(number)
        place.mkdir(parents=True)
        with RunningStore(place) as store:
            target = store.start_server("--memory", "1GB")
            with store.client() as client, grpc.insecure_channel(target) as channel:
                handle = _published(client, join)
                again, stub = _Duck(join), Stub(channel)
                rows = stub.invoke(handle).row_count
                assert rows == again(), join.title
                theirs = least_cpu({"DuckDB": again}, rounds)["DuckDB"]
                ours = _server_seconds(store.servers[0].pid, partial(stub.invoke, handle), rounds)
        ratio = ours / theirs
        title = f"invoke over gRPC, the server's processor: {join.title}"
        report.add(title, ours * 1e3, "ms", ratio=ratio, beside="DuckDB")


def _published(client: Client, join: Join) -> bytes:
    for name, rows in join.streams.items():
        client.define(_definition(name, rows))
        client.publisher(name).publish_many(name, workload.batches(rows, join.batch))
    return client.register(join.sql).handle


def _server_seconds(pid: int, call: Callable[[], Any], rounds: int) -> float:
    """The processor time of a process for one call; the kernel tells it in hundredths of a
    second."""
    before, calls = processor([pid]), rounds * 10
    for _ in range(calls):
        call()
    return (processor([pid]) - before) / calls


# ---- copies


async def _syncs(report: Report, folder: Path, count: int, rounds: int) -> None:
    """Copies of a join: nothing new, and one new row, beside the join run again."""
    streams = {"l": _rows(np.arange(count)), "r": _rows(np.arange(count))}
    join = Join("", streams, "SELECT x.v AS v, y.v AS w FROM l x, r y WHERE x.k = y.k")
    core = await _filled(streams, folder, BATCH, join.memory)
    registered, *_ = await register(core, pb.RegisterRequest(sql=join.sql))
    (handle,) = registered.handles
    token, _ = await sync_once(core, handle, b"")
    theirs = least_cpu({"DuckDB": _Duck(join)}, rounds)["DuckDB"]
    for changed in (0, 1):
        taken = []
        for number in range(rounds):
            if changed:
                row = pa.table({"k": [number], "v": [-1]})
                await publish(core, pb.PublishRequest(stream="r", arrow=ipc(row)))
            token, seconds = await sync_once(core, handle, token)
            taken.append(seconds)
        what = f"sync of {count:,} combinations, {changed} new rows"
        ratio = min(taken) / theirs
        report.add(what, min(taken) * 1e3, "ms", ratio=ratio, beside="DuckDB again, whole")
    await core.stop()
