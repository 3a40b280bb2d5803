"""Registrations: how fast they are made, what one costs while it sleeps, and how soon a server
that holds many is back.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import workload
from benchmarks.memory import processor, resident
from benchmarks.report import Report
from benchmarks.timing import timed
from client_sdk import Client
from psoup.engine.repair.recover import open_ledger
from psoup.engine.settings import EngineSettings
from psoup.engine.steps.grid import StepLimits
from psoup.engine.steps.step import next_stretch, take_step
from psoup.store import Entry, Position, RegisterMany, State, Store
from psoup.store.interest import Interests
from querystem.language import CreateStream, bind_query, parse_statement
from tests.support.system.processes import Process, RunningStore

MANY = (
    "SELECT lane, station, speed, at FROM traffic "
    "WHERE lane = :lane AND station = :station AND speed > :speed RANGE 1 MINUTE"
)
CALLERS = 32
OF_THAT = "— processor time of the server"
TEXTS_AIM, MANY_AIM, BYTES_AIM, RESTART_AIM = 500, 10_000, 800, 5.0
# The number of registrations by which the restart is judged.
RESTART_COUNT = 100_000


def run(folder: Path, quick: bool) -> Report:
    few, many, texts = (10_000, 100_000, 500) if quick else (100_000, 1_000_000, 5_000)
    per_call = few // 5
    report = Report("registrations", f"from {few:,} to {many:,} registrations, {texts:,} texts")
    with RunningStore(folder) as store:
        store.start_server()
        with store.client() as client:
            client.define(workload.STREAM)
            _texts(client, texts, report, store.servers[0])
            _register(client, texts, few, per_call)
            before, busy = resident([store.servers[0].pid]), processor([store.servers[0].pid])
            seconds, _ = timed(lambda: _register(client, few, many, per_call))
            after, busy = resident([store.servers[0].pid]), processor([store.servers[0].pid]) - busy
            _rate(report, per_call, (many - few) / seconds, _log_rate(folder, store.store))
            report.add(OF_THAT, busy / (many - few) * 1e6, "µs each")
            _bytes(report, "registered", after - before, many - few, _sent(store.store))
            page, _ = timed(lambda: next(client.registrations()))
            report.add(f"the first 1,000 of {many:,}, listed", page * 1e3, "ms")
            _restart(store, report, folder, many)
    return report


# ---- making them


def _text(number: int) -> str:
    lane, station = number % 8 + 1, number // 8
    return (
        f"SELECT lane, station, speed, at FROM traffic WHERE lane = {lane} "
        f"AND station = {station} AND speed > {number % 100} RANGE 1 MINUTE"
    )


def _texts(client: Client, number: int, report: Report, server: Process) -> None:
    texts = [_text(n) for n in range(number)]
    statement = parse_statement(workload.STREAM)
    assert isinstance(statement, CreateStream)
    binding, _ = timed(lambda: [bind_query(text, lambda _: statement.schema) for text in texts])
    busy = processor([server.pid])
    with ThreadPoolExecutor(CALLERS) as callers:
        seconds, _ = timed(lambda: list(callers.map(client.register, texts)))
    rate = number / seconds
    report.add(
        f"Register of different texts, {CALLERS} callers", rate, "/s",
        ratio=rate * binding / number, beside="binding them",
        aim=f"≥ {TEXTS_AIM}/s", met=rate >= TEXTS_AIM,
    )  # fmt: skip
    report.add(OF_THAT, (processor([server.pid]) - busy) / number * 1e6, "µs each")


def _register(client: Client, begin: int, end: int, per_call: int) -> None:
    """Up to `end`, no two with the same predicate."""
    for lo in range(begin, end, per_call):
        numbers = np.arange(lo, min(lo + per_call, end))
        columns = {
            "lane": numbers % 8 + 1,
            "station": numbers // 8,
            "speed": (numbers % 100).astype(np.float64),
            "client_key": [f"device-{n}" for n in numbers.tolist()],
        }
        client.register_many(MANY, pa.table(columns))


def _rate(report: Report, per_call: int, rate: float, alone: float) -> None:
    report.add(
        f"RegisterMany, {per_call:,} a call, one caller", rate, "/s", ratio=rate / alone,
        beside="the log alone", aim=f"≥ {MANY_AIM:,}/s", met=rate >= MANY_AIM,
    )  # fmt: skip


def _log_rate(folder: Path, root: Path) -> float:
    """Return the registrations per second if the same events are appended, synced, to a log."""
    log, copy = Store.open(root).log, Store.open(folder / "copy", create=True).log
    versions = range(log.latest_version(), 0, -1)
    events = (entry.event for version in versions for entry in log.read(version))
    many = islice((event for event in events if isinstance(event, RegisterMany)), 10)
    seconds, rows = 0.0, 0
    for version, event in enumerate(many, 1):
        moved = [Entry(Position(version, 0), 0, "main", "main", event)]
        seconds += timed(partial(copy.append, version, moved))[0]
        rows += event.rows.num_rows
    return rows / seconds


# ---- keeping them


def _sent(root: Path) -> float:
    """Bytes of a registration as its event holds it."""
    log = Store.open(root).log
    for version in range(log.latest_version(), 0, -1):
        for entry in log.read(version):
            if isinstance(entry.event, RegisterMany):
                return float(entry.event.rows.nbytes / entry.event.rows.num_rows)
    raise AssertionError("nothing was registered")


def _bytes(report: Report, how: str, memory: int, number: int, sent: float) -> None:
    """Add the memory of each; few would weigh less than what the process needs to make any."""
    bytes_each = memory / number
    judged = {"met": bytes_each <= BYTES_AIM} if number > 500_000 else {}
    report.add(
        f"memory of a server for each, {how}", bytes_each, "bytes", ratio=bytes_each / sent,
        beside="its event", aim=f"≤ {BYTES_AIM} bytes, by the million", **judged,
    )  # fmt: skip


# ---- coming back


def _restart(store: RunningStore, report: Report, folder: Path, many: int) -> None:
    (folder / "empty").mkdir()
    with RunningStore(folder / "empty") as empty_store:
        nothing, _ = timed(empty_store.start_server)
        empty = resident([empty_store.servers[0].pid])
    step, _ = timed(lambda: _consume(store.store))
    store.servers[0].stop()
    ready, _ = timed(store.start_server)
    busy = processor([store.servers[1].pid])
    read, _ = timed(lambda: _read(store.store))
    goal: dict[str, Any] = {}
    if many == RESTART_COUNT:
        goal = {"aim": f"≤ {RESTART_AIM:.0f} s", "met": ready <= RESTART_AIM}
    report.add(
        f"restart with {many:,}, until ready", ready * 1e3, "ms", ratio=ready / (nothing + read),
        beside=f"an empty one's and reading the files ({(nothing + read) * 1e3:,.0f} ms)",
        **goal,
    )  # fmt: skip
    report.add(OF_THAT, busy * 1e3, "ms")
    report.add("— an empty server, until ready", nothing * 1e3, "ms")
    report.add("— reading the same files", read * 1e3, "ms")
    _bytes(report, "restarted", resident([store.servers[1].pid]) - empty, many, _sent(store.store))
    report.add("the engine takes them into its tables", many / step, "/s")
    (recover, ledger), _ = sorted(
        (timed(lambda: open_ledger(Store.open(store.store))) for _ in range(2)),
        key=lambda entry: entry[0],
    )
    report.add("the engine's tables opened", recover * 1e3, "ms", ratio=recover / read,
               beside="reading the files")  # fmt: skip
    _interests(report, ledger.state, recover)


def _interests(report: Report, state: State, recover: float) -> None:
    """How far back each predicate is needed: from all registrations, then after one has changed."""
    interests = Interests()
    whole, _ = timed(lambda: interests.load(state))
    (stream_id,) = (changed_ids.id for changed_ids in state.streams.values())
    interest = interests.of_stream(stream_id)
    least, greatest = int(interest.ids[0]), int(interest.ids[-1])
    changed_ids = interest.ids[len(interest.ids) // 2 :][:1]
    update_seconds, _ = timed(lambda: interests.update(state, changed_ids))
    first, _ = timed(lambda: interest.widest(least, greatest))
    again, _ = timed(lambda: interest.widest(least, greatest))
    report.add("their widest windows derived", whole * 1e3, "ms", ratio=whole / recover,
               beside="opening the tables")  # fmt: skip
    report.add("— after one has changed", update_seconds * 1e3, "ms")
    report.add("— the widest window of all predicates", first * 1e3, "ms")
    report.add("— the same again", again * 1e6, "µs")


def _consume(root: Path) -> None:
    """The engine's own steps, one a commit; without rows they need no Spark."""
    ledger, no_rows = open_ledger(Store.open(root)), cast(Any, None)
    one_commit = StepLimits(1, sys.maxsize)
    while (
        news := next_stretch(ledger.store.log.folder, ledger.epoch.log_version, one_commit)
    ).files:
        take_step(ledger, no_rows, news, EngineSettings())


def _read(root: Path) -> None:
    store = Store.open(root)
    _, epoch = store.epochs.latest()
    for name in ("registrations", "predicates"):
        folder = store.table(name)
        for file in store.snapshot(epoch, name).files.values():
            pq.ParquetFile(folder.path_of(file)).read()
