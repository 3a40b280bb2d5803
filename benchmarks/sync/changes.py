"""How a sync grows with what changed: 0 to 10,000 of the rows of a 10,000-row answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import grpc
import numpy as np
import pyarrow as pa

from benchmarks import workload
from benchmarks.figures import Figure, Panel, Series
from benchmarks.report import Report
from benchmarks.sync.calls import OPTIONS, Caller, Received
from benchmarks.sync.clientlog import ClientLogs, LogReader, encoded, log_server
from benchmarks.timing import Times
from client_sdk import Client
from datastem.schema import Column
from datastem.types import BIGINT, DOUBLE, TIMESTAMP
from psoup.v1 import psoup_pb2 as pb
from tests.support.generators import START
from tests.support.system.processes import RunningStore

ROWS = 10_000
CHANGED = (0, 1, 100, ROWS)
WAYS = ("Sync", "Invoke", "whole by Sync", "log per client")
NOTHING_AIM = 200


@dataclass(frozen=True)
class Subject:
    """A stream, a query whose answer has 10,000 rows, and the rows that change `count` of them."""

    name: str
    stream: str
    sql: str
    columns: tuple[Column, ...]
    rows: Callable[[int, int], pa.Table]


@dataclass
class Measured:
    """By way and number of changed rows."""

    calls: dict[tuple[str, int], list[Received]] = field(default_factory=dict)
    removals: int = 0

    def nbytes(self, way: str, changed: int) -> float:
        return float(np.median([call.nbytes for call in self.calls[way, changed]]))

    def seconds(self, way: str, changed: int) -> float:
        return Times([call.seconds for call in self.calls[way, changed]]).p50


def measure(report: Report, folder: Path, quick: bool) -> None:
    measured = {}
    folder.mkdir()
    logs = ClientLogs(folder / "logs")
    with RunningStore(folder) as store, log_server(folder / "logs") as reader:
        target = store.start_server()
        with store.client() as client, grpc.insecure_channel(target, OPTIONS) as channel:
            for subject in (SLIDING, KEYED):
                run = _Run(subject, client, Caller(channel), logs, reader)
                measured[subject.name] = run.measured(4 if quick else 25)
    for subject in (SLIDING, KEYED):
        _report(report, subject, measured[subject.name])
    report.figures.append(_figure(measured))


class _Run:
    """One subject, its client and its client's log."""

    def __init__(
        self, subject: Subject, client: Client, caller: Caller, logs: ClientLogs, reader: LogReader
    ) -> None:
        self._subject, self._client, self._caller = subject, client, caller
        self._logs, self._reader = logs, reader
        self._published = 0
        client.define(subject.stream)
        self._handle = client.register(subject.sql).handle
        self._publish(ROWS)
        self._token = caller.sync(self._handle).token

    def measured(self, rounds: int) -> Measured:
        measured = Measured()
        for changed in CHANGED:
            for turn in range(rounds if changed < ROWS else max(4, rounds // 5)):
                calls = self._once(changed, turn)
                if turn:
                    measured.removals += calls["Sync"].removals
                    for way, call in calls.items():
                        measured.calls.setdefault((way, changed), []).append(call)
        return measured

    def _once(self, changed: int, turn: int) -> dict[str, Received]:
        """In another order each time: who comes first evaluates the new rows for the others."""
        offset = self._logs.size(self._subject.name)
        if changed:
            self._publish(changed)
        calls: dict[str, Callable[[], Received]] = {
            "Sync": lambda: self._caller.sync(self._handle, self._token),
            "Invoke": lambda: self._caller.invoke(self._handle),
            "whole by Sync": lambda: self._caller.sync(self._handle, whole=True),
            "log per client": lambda: self._reader.read(self._subject.name, offset),
        }
        order = [WAYS[(place + turn) % len(WAYS)] for place in range(len(WAYS))]
        results = {way: calls[way]() for way in order}
        assert results["Sync"].rows == ROWS, "the answer has another size"
        self._token = results["Sync"].token
        return results

    def _publish(self, count: int) -> None:
        rows = self._subject.rows(self._published, count)
        self._client.publish(self._subject.name, rows)
        self._logs.append(self._subject.name, encoded(rows, self._subject.columns))
        self._published += count


# ---- the two subjects


def _sliding(first: int, count: int) -> pa.Table:
    last: datetime = START + (first + count - 1) * workload.EVERY
    return workload.rows(count, last)


def keyed_rows(first: int, count: int, keys: int = ROWS) -> pa.Table:
    """One row for each of some keys, in turn."""
    random = np.random.default_rng(first)
    numbers = np.arange(first, first + count)
    at = workload.rows(count, START + (first + count - 1) * workload.EVERY)["at"]
    values = random.integers(0, 10_000, count) / 100
    return pa.table({"meter": numbers * 7919 % keys, "reading": values, "at": at})


SLIDING = Subject(
    "traffic",
    workload.STREAM,
    f"SELECT lane, station, speed, at FROM traffic WHERE speed >= 0 RANGE {ROWS} MILLISECONDS",
    tuple(
        Column(name, type_)
        for name, type_ in zip(
            ("lane", "station", "speed", "at"), (BIGINT, BIGINT, DOUBLE, TIMESTAMP), strict=True
        )
    ),
    _sliding,
)
KEYED = Subject(
    "meters",
    "CREATE STREAM meters (meter BIGINT, reading DOUBLE, at TIMESTAMP) KEY (meter) ORDERED BY at",
    "SELECT meter, reading, at FROM meters WHERE reading >= 0",
    (Column("meter", BIGINT), Column("reading", DOUBLE), Column("at", TIMESTAMP)),
    keyed_rows,
)
TITLES = {"traffic": "sliding window", "meters": "current rows of 10,000 keys"}


# ---- what came out


def _report(report: Report, subject: Subject, measured: Measured) -> None:
    title = TITLES[subject.name]
    for changed in CHANGED:
        ours = measured.nbytes("Sync", changed)
        for way in WAYS:
            value = measured.nbytes(way, changed)
            comparison = _aim(subject, changed, value) if way == "Sync" else {}
            if way != "Sync":
                comparison = {"ratio": value / ours, "beside": "Sync"}
            report.add(f"{title}, {changed:,} changed: {way}", value, "bytes", **comparison)
        sync = measured.seconds("Sync", changed)
        for way in ("Sync", "Invoke", "log per client"):
            value = measured.seconds(way, changed)
            comparison = {} if way == "Sync" else {"ratio": value / sync, "beside": "Sync"}
            report.add(f"{title}, {changed:,} changed: {way} p50", value * 1e3, "ms", **comparison)
    request_bytes = measured.calls["Sync", 0][0].sent
    report.add(f"{title}: the request of a Sync", request_bytes, "bytes")
    if subject is SLIDING:
        met = measured.removals == 0
        report.add(f"{title}: removals sent", measured.removals, "", aim="none", met=met)


def _aim(subject: Subject, changed: int, value: float) -> dict[str, object]:
    if changed == 0:
        return {"aim": f"≤ {NOTHING_AIM} bytes", "met": value <= NOTHING_AIM}
    if changed == 1:
        row_bytes = _row_bytes(subject)
        limit = 3 * row_bytes + NOTHING_AIM
        return {"aim": f"≤ 3 × {row_bytes} + 200 bytes", "met": value <= limit}
    return {}


def _row_bytes(subject: Subject) -> int:
    """A row's own encoding: its typed values."""
    (message,) = encoded(subject.rows(12_345, 1), subject.columns)
    return pb.Rows.FromString(message).rows[0].ByteSize()


def _figure(measured_by_subject: dict[str, Measured]) -> Figure:
    # A logarithm has no place for nothing.
    places = [max(changed, 0.1) for changed in CHANGED]
    panels = []
    for what, unit in (("nbytes", "bytes received"), ("seconds", "ms, as the client sees it")):
        for name, measured in measured_by_subject.items():
            scale = 1e3 if what == "seconds" else 1
            series = [
                Series(way, places, [scale * getattr(measured, what)(way, n) for n in CHANGED], at)
                for at, way in enumerate(WAYS)
            ]
            labels = [f"{changed:,}" for changed in CHANGED]
            axis = "rows changed, of 10,000"
            panels.append(Panel(TITLES[name], axis, unit, series, True, True, places, labels))
    return Figure("sync-changes", "A sync by what changed in an answer of 10,000 rows", panels, 2)
