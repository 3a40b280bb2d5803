"""Joins: answers over several streams, beside DuckDB that runs the same over the same rows.

Both are measured by processor time, in turns, in one process; then through a server. DuckDB gives
its rows in any order unless it is told, an answer is in order. The join alone is `joins_alone`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa

from benchmarks import joins_alone, workload
from benchmarks.duck import Duck
from benchmarks.join_cases import Join, joins, rows_of
from benchmarks.memory import processor
from benchmarks.report import Report
from benchmarks.stub import Stub
from benchmarks.sync.work import sync_once
from benchmarks.timing import least_cpu
from benchmarks.tree_cases import trees
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
from tests.support.server.callers import new_call
from tests.support.server.process import ipc
from tests.support.system.processes import RunningStore

SYNC_ROWS = 10_000


def run(folder: Path, quick: bool) -> Report:
    rounds, scale = (2, 16) if quick else (7, 1)
    size = "a sixteenth of the rows, " if quick else ""
    report = Report("joins", f"{size}least of {rounds} rounds, one thread each")
    for number, join in enumerate([*joins(scale), *trees(scale)]):
        asyncio.run(_in_process(report, join, folder / f"in-process-{number}", rounds))
    joins_alone.measure(report, scale, rounds)
    _over_grpc(report, joins(scale)[:2], folder / "served", rounds)
    asyncio.run(_syncs(report, folder / "sync", SYNC_ROWS // scale, rounds))
    return report


# ---- in one process


async def _in_process(report: Report, join: Join, folder: Path, rounds: int) -> None:
    core = await _filled(join, folder)
    again = _duck(join)
    view = core.follower.view
    question = Question.of_text(join.sql, view.state)

    def answer() -> int:
        return core.maker.answer(view, question).row_count

    assert answer() == again(), join.title
    seconds = least_cpu({"ours": answer, "DuckDB": again}, rounds)
    await core.stop()
    _report(report, join, answer_rows=again(), ours=seconds["ours"], duckdb=seconds["DuckDB"])


async def _filled(join: Join, folder: Path) -> Core:
    """A running server without a wire, over a store with the streams of a join."""
    settings = Settings(store=folder, durability="none", memory=join.memory)
    core = Core(Store.open(folder, create=True, sync=False), settings)
    await core.start()
    for name, rows in join.streams.items():
        statement = parse_statement(join.definition(name))
        assert isinstance(statement, CreateStream)
        await core.appender.submit(Define("main", "main", statement.schema))
        for batch in workload.batches(rows, join.batch):
            await publish(core, new_call(), pb.PublishRequest(stream=name, arrow=ipc(batch)))
    return core


def _duck(join: Join) -> Duck:
    return Duck(join.streams, join.duckdb_sql or join.sql)


def _report(report: Report, join: Join, answer_rows: int, ours: float, duckdb: float) -> None:
    ratio = ours / duckdb
    report.add(f"DuckDB: {join.title}, {answer_rows:,} rows", duckdb * 1e3, "ms")
    aims = {}
    if join.most is not None:
        aims = {"aim": f"≤ {join.most:.0f} ms", "met": ours * 1e3 <= join.most}
    elif join.aim is not None:
        aims = {"aim": f"≤ {join.aim:.0f} ×", "met": ratio <= join.aim}
    title = f"answer: {join.title}"
    report.add(title, ours * 1e3, "ms", ratio=ratio, beside="DuckDB", **aims)


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
                duckdb, stub = _duck(join), Stub(channel)
                rows = stub.invoke(handle).row_count
                assert rows == duckdb(), join.title
                duckdb_seconds = least_cpu({"DuckDB": duckdb}, rounds)["DuckDB"]
                ours = _server_seconds(store.servers[0].pid, partial(stub.invoke, handle), rounds)
        ratio = ours / duckdb_seconds
        title = f"invoke over gRPC, the server's processor: {join.title}"
        report.add(title, ours * 1e3, "ms", ratio=ratio, beside="DuckDB")


def _published(client: Client, join: Join) -> bytes:
    for name, rows in join.streams.items():
        client.define(join.definition(name))
        client.publisher(name).publish_many(name, workload.batches(rows, join.batch))
    return client.register(join.sql).handle


def _server_seconds(pid: int, call: Callable[[], Any], rounds: int) -> float:
    """The processor time of a process for one call; the kernel counts it in hundredths of a
    second."""
    before, calls = processor([pid]), rounds * 10
    for _ in range(calls):
        call()
    return (processor([pid]) - before) / calls


# ---- copies


async def _syncs(report: Report, folder: Path, count: int, rounds: int) -> None:
    """Copies of a join: nothing new, and one new row, beside the join run again."""
    streams = {"l": rows_of(np.arange(count)), "r": rows_of(np.arange(count))}
    join = Join("", streams, "SELECT x.v AS v, y.v AS w FROM l x, r y WHERE x.k = y.k")
    core = await _filled(join, folder)
    registered, *_ = await register(core, new_call(), pb.RegisterRequest(sql=join.sql))
    (handle,) = registered.handles
    token, _ = await sync_once(core, handle, b"")
    duckdb_seconds = least_cpu({"DuckDB": _duck(join)}, rounds)["DuckDB"]
    for changed in (0, 1):
        sync_seconds = []
        for number in range(rounds):
            if changed:
                row = pa.table({"k": [number], "v": [-1]})
                await publish(core, new_call(), pb.PublishRequest(stream="r", arrow=ipc(row)))
            token, seconds = await sync_once(core, handle, token)
            sync_seconds.append(seconds)
        what = f"sync of {count:,} combinations, {changed} new rows"
        ratio = min(sync_seconds) / duckdb_seconds
        report.add(what, min(sync_seconds) * 1e3, "ms", ratio=ratio, beside="DuckDB again, whole")
    await core.stop()
