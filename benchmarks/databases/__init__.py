"""Invoke and Sync beside PostgreSQL and SQLite with the right index, over the loopback, from a load
generator in Go: calls a second and processor time of the server for each call.

Every system holds the same rows, and every kind of call is checked to give as many of them. SQLite
is a library: it answers behind a bare gRPC server in Python. No engine runs: the server evaluates
each query at its first call, before anything is measured, and caches which rows match.
"""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import postgres, workload
from benchmarks.baseline import served_process
from benchmarks.databases.calls import (
    BARE,
    POSTGRES,
    PSOUP,
    SQLITE,
    SYNC_QUERY,
    Case,
    Contents,
    answer_case,
    pair_case,
    sync_case,
)
from benchmarks.databases.load import Generator, Load, Opponent, build
from benchmarks.databases.sqlite_file import fill
from benchmarks.memory import thread_seconds
from benchmarks.report import Report
from benchmarks.sync.calls import Caller
from client_sdk import Client
from tests.support.generators import START
from tests.support.system.processes import RunningStore

INDEXES = ("lane, station, at", "station, at", "at")
PAIRS = 100
# New rows after the copies were made: 100 of each station.
CHANGED_ROWS = 100 * workload.STATIONS


@dataclass(frozen=True)
class Sizes:
    rows: int
    seconds: float
    rounds: int
    clients: tuple[int, ...]
    answers: tuple[int, ...]


FULL = Sizes(1_000_000, 2.0, 3, (1, 64, 1_000), (1, 10_000, 1_000_000))
QUICK = Sizes(200_000, 0.5, 1, (1, 64), (1, 10_000))


def run(folder: Path, quick: bool) -> Report:
    sizes = QUICK if quick else FULL
    setting = (
        f"{sizes.rows:,} rows, {sizes.rounds} rounds of {sizes.seconds:g} s each, load generator "
        "in Go"
    )
    report = Report("databases", setting)
    program = build(folder)
    if program is None:
        report.add("nothing: Go is missing, or its modules can't be had", 0, "calls")
        return report
    rows = workload.rows(sizes.rows)
    changes = workload.rows(CHANGED_ROWS, START + (sizes.rows + CHANGED_ROWS - 1) * workload.EVERY)
    with RunningStore(folder) as store, ExitStack() as stack:
        target = store.start_server()
        client = stack.enter_context(store.client())
        contents = _fill(client, target, rows, changes, sizes)
        table = pa.concat_tables([rows, changes])
        opponents = {
            PSOUP: Opponent("grpc", target, lambda: thread_seconds([store.servers[0].pid]))
        }
        opponents |= stack.enter_context(_opponents(folder, table))
        _check(client, folder / "rows.db", contents)
        measure = _Measure(report, Generator(program, folder), opponents, sizes)
        for clients in sizes.clients:
            measure.case(pair_case(contents), clients)
        for count in sizes.answers:
            measure.case(answer_case(contents, count), 1)
        for is_changed in (False, True):
            for clients in sizes.clients:
                measure.case(sync_case(contents, is_changed), clients)
    return report


# ---- the systems


def _fill(client: Client, target: str, rows: pa.Table, changes: pa.Table, sizes: Sizes) -> Contents:
    """Fill the store, with copies made before the last rows came."""
    client.define(workload.STREAM)
    pairs = workload.register(client, [workload.pair_query(number) for number in range(PAIRS)])
    texts = [SYNC_QUERY.format(station + 1) for station in range(workload.STATIONS)]
    copies = workload.register(client, texts)
    publisher = client.publisher("benchmark")
    publisher.publish_many("traffic", workload.batches(rows, 20_000))
    with grpc.insecure_channel(target) as channel:
        caller = Caller(channel)
        before = [caller.sync(handle).token for handle in copies]
        publisher.publish_many("traffic", [changes])
        after = [caller.sync(handle).token for handle in copies]
    answers = {
        count: client.register(
            f"SELECT lane, station, speed, at FROM traffic RANGE {count} MILLISECONDS"
        ).handle
        for count in sizes.answers
    }
    last = pc.max(changes.column("at")).as_py()
    return Contents(pairs, answers, copies, before, after, last)


@contextmanager
def _opponents(folder: Path, table: pa.Table) -> Iterator[Mapping[str, Opponent]]:
    """Start the opponents; PostgreSQL if it is installed."""
    with ExitStack() as stack:
        bare, bare_pid = stack.enter_context(served_process("benchmarks.baseline"))
        fill(folder / "rows.db", table, INDEXES)
        module = "benchmarks.databases.sqlite_server"
        file = str(folder / "rows.db")
        sqlite, sqlite_pid = stack.enter_context(served_process(module, file))
        opponents = {
            BARE: Opponent("grpc", bare, lambda: thread_seconds([bare_pid])),
            SQLITE: Opponent("grpc", sqlite, lambda: thread_seconds([sqlite_pid])),
        }
        if postgres.installed():
            indexes = [f"traffic ({columns})" for columns in INDEXES]
            tables = {"traffic": table}
            cluster = stack.enter_context(
                postgres.Postgres(folder / "postgres", tables, indexes, _free_port())
            )
            opponents[POSTGRES] = Opponent("postgres", cluster.target, cluster.processor)
        yield opponents


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _check(client: Client, path: Path, contents: Contents) -> None:
    """Compare the numbers of rows that Invoke and SQLite give for some calls."""
    connection = sqlite3.connect(path)
    for number in range(3):
        sql, arguments = contents.pair_sql(number)
        count = len(connection.execute(sql, arguments).fetchall())
        assert count == len(client.invoke(contents.pairs[number])), "other rows of a pair"
    for size, handle in contents.answers.items():
        sql, arguments = contents.answer_sql(size)
        count = len(connection.execute(sql, arguments).fetchall())
        assert count == len(client.invoke(handle)) == size, "other rows of a window"
    connection.close()


# ---- measuring


@dataclass(frozen=True)
class _Measure:
    report: Report
    generator: Generator
    opponents: Mapping[str, Opponent]
    sizes: Sizes

    def case(self, case: Case, clients: int) -> None:
        """Measure a kind of call in all systems, in turns, and report the middle round of each."""
        loads: dict[str, list[Load]] = {}
        for _ in range(self.sizes.rounds):
            for name, (system, work) in case.calls.items():
                if system in self.opponents:
                    most = max(1, case.max_calls // clients)
                    load = self.generator.load(
                        self.opponents[system], work, clients, self.sizes.seconds, most
                    )
                    loads.setdefault(name, []).append(load)
        middle = {name: _middle(measured) for name, measured in loads.items()}
        title = f"{case.name}, {clients:,} client{'s' if clients > 1 else ''}"
        for name, load in middle.items():
            self.report.add(f"{title}: {name}", load.rate, "calls/s")
        for name, load in middle.items():
            used = load.processor_ms
            aims = case.aims.get(name, {}) if clients == 1 else {}
            stands = [name for name in {case.beside: 0, **aims} if name in middle]
            line = f"{title}: {name}, server's processor time a call"
            for beside in stands if stands != [name] else [""]:
                self.report.add(line, used, "ms", **_ratio(used, beside, middle, aims))


def _ratio(
    used: float, beside: str, loads: Mapping[str, Load], aims: Mapping[str, float]
) -> dict[str, Any]:
    if beside not in loads:
        return {}
    ratio = used / loads[beside].processor_ms
    aim = {"aim": f"≤ {aims[beside]:g} ×", "met": ratio <= aims[beside]} if beside in aims else {}
    return {"ratio": ratio, "beside": beside, **aim}


def _middle(loads: list[Load]) -> Load:
    return sorted(loads, key=lambda load: load.processor_ms)[len(loads) // 2]
