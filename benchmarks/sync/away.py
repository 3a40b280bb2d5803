"""A week away: what a client receives that comes back after one day, two, and about a week."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import workload
from benchmarks.figures import Figure, Panel, Series
from benchmarks.report import Report
from benchmarks.sync.calls import FRAME, OPTIONS, Caller, Received
from benchmarks.sync.clientlog import encoded, sent
from benchmarks.sync.replay import DAY, Replay, available, parking, ticks
from client_sdk import Client
from datastem.schema import Column
from datastem.types import BIGINT, DOUBLE, TEXT, TIMESTAMP, Type
from psoup.v1 import psoup_pb2 as pb
from tests.support.system.processes import RunningStore

BATCH = 20_000
WAYS = ("Sync", "the whole answer (Invoke)", "log per client", "log, compacted", "Sync every day")
TRADES = "(ts TIMESTAMP, symbol TEXT, price DOUBLE, size BIGINT)"
CHANGES = "(ts TIMESTAMP, place_id TEXT, free_places BIGINT)"
TYPES: dict[str, Type] = {
    "ts": TIMESTAMP, "symbol": TEXT, "price": DOUBLE, "size": BIGINT,
    "place_id": TEXT, "free_places": BIGINT,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A query over one of the streams, and what a log for its client would hold.

    `keeps` names the rows that match; `key` the column of which a later row replaces an earlier
    one; `window` the days after which a row has left; `every` minutes at which groups are written,
    for those that had rows since.
    """

    title: str
    stream: str
    sql: str
    where: tuple[str, str, object] | None = None
    key: str = ""
    window: bool = False
    groups: str = ""
    every: int = 15


CASES = (
    Case(
        "ticks: IBM's trades of a day",
        "trades",
        "SELECT ts, symbol, price, size FROM trades WHERE symbol = 'IBM' RANGE 1 DAY",
        ("symbol", "=", "IBM"),
        window=True,
    ),
    Case(
        "ticks: volume by share, of a day",
        "trades",
        "SELECT symbol, count(*) AS n, sum(size) AS volume, avg(price) AS mean FROM trades "
        "GROUP BY symbol RANGE 1 DAY",
        groups="symbol",
        every=1,
    ),
    Case(
        "parking: what is nearly full, in a day",
        "changes",
        "SELECT ts, place_id, free_places FROM changes WHERE free_places < 10 RANGE 1 DAY",
        ("free_places", "<", 10),
        window=True,
    ),
    Case(
        "parking: free places now, by key",
        "places",
        "SELECT ts, place_id, free_places FROM places",
        key="place_id",
    ),
    Case(
        "parking: mean and least of a day, by place",
        "changes",
        "SELECT place_id, avg(free_places) AS mean, min(free_places) AS least FROM changes "
        "GROUP BY place_id RANGE 1 DAY",
        groups="place_id",
    ),
)


@dataclass(frozen=True)
class Return:
    """Bytes by way, after `days` days, and the seconds of the sync and of the whole answer."""

    days: float
    nbytes: dict[str, int]
    seconds: float
    whole_seconds: float


def measure(report: Report, folder: Path, quick: bool) -> bool:
    """Return False if the rows are missing."""
    if not available():
        return False
    folder.mkdir()
    every = 16 if quick else 1
    replays = {"trades": ticks(3 if quick else 6, every), "changes": parking(every)}
    replays["places"] = replays["changes"]
    with RunningStore(folder) as store:
        target = store.start_server()
        with store.client() as client, grpc.insecure_channel(target, OPTIONS) as channel:
            _define(client)
            returns: dict[str, list[Return]] = {}
            for stream, replay in replays.items():
                cases = [case for case in CASES if case.stream == stream]
                returns |= _Visits(client, Caller(channel), replay, cases).run()
    for case in CASES:
        _report(report, case, returns[case.title])
    report.figures.append(_figure(returns))
    return True


def _define(client: Client) -> None:
    client.define(f"CREATE STREAM trades {TRADES} ORDERED BY ts")
    client.define(f"CREATE STREAM changes {CHANGES} ORDERED BY ts")
    client.define(f"CREATE STREAM places {CHANGES} KEY (place_id) ORDERED BY ts")


class _Visits:
    """One stream's rows day by day; at the end of each, every case's client may come back."""

    def __init__(
        self, client: Client, caller: Caller, replay: Replay, cases: Sequence[Case]
    ) -> None:
        self._caller, self._replay = caller, replay
        self._cases = cases
        self._handles = {case.title: client.register(case.sql).handle for case in cases}
        self._found: dict[str, list[Return]] = {case.title: [] for case in cases}
        self._publisher = client.publisher(cases[0].stream)
        self._published = 0

    def run(self) -> dict[str, list[Return]]:
        replay = self._replay
        self._publish(replay.until(replay.first))
        start, offset = self._tokens(), self._published
        daily, total = dict(start), dict.fromkeys(start, 0)
        last = replay.rows["ts"][-1].as_py()
        days = round((last - replay.first) / DAY)
        for day in range(1, days + 1):
            end = last if day == days else replay.first + day * DAY
            self._publish(replay.until(end))
            for case in self._cases:
                synced = self._caller.sync(self._handles[case.title], daily[case.title])
                daily[case.title], total[case.title] = (
                    synced.token,
                    total[case.title] + synced.nbytes,
                )
                if day in (1, 2, days):
                    self._return(case, start[case.title], offset, total[case.title], end)
        return self._found

    def _tokens(self) -> dict[str, bytes]:
        return {title: self._caller.sync(handle).token for title, handle in self._handles.items()}

    def _publish(self, until: int) -> None:
        rows = self._replay.rows.slice(self._published, until - self._published)
        self._publisher.publish_many(self._cases[0].stream, workload.batches(rows, BATCH))
        self._published = until

    def _return(self, case: Case, token: bytes, offset: int, daily: int, now: datetime) -> None:
        handle = self._handles[case.title]
        calls = [self._caller.sync(handle, token) for _ in range(5)]
        whole = [self._caller.invoke(handle) for _ in range(5)]
        missed = self._replay.rows.slice(offset, self._published - offset)
        full, compacted = _log(case, missed, now, whole[0])
        medians = [
            float(np.median([call.seconds for call in samples])) for samples in (calls, whole)
        ]
        nbytes = dict(
            zip(WAYS, (calls[0].nbytes, whole[0].nbytes, full, compacted, daily), strict=True)
        )
        days = (now - self._replay.first) / DAY
        self._found[case.title].append(Return(days, nbytes, *medians))


# ---- the log of a case's client


def _log(case: Case, missed: pa.Table, now: datetime, whole: Received) -> tuple[int, int]:
    """Return the bytes of reading the log since the client left, in full and compacted.

    Days are packed one by one, so that a day that was replayed does not pack as the same again.
    """
    if case.groups:
        return _log_of_groups(case, missed, whole)
    rows = missed.filter(_matches(missed, case.where)) if case.where else missed
    compacted = rows
    if case.window:
        since = pa.scalar(now - DAY, rows["ts"].type)
        compacted = rows.filter(pc.greater(rows["ts"], since))
    if case.key:
        compacted = rows.take(pa.array(_last_of_each(rows[case.key])))
    columns = [Column(name, TYPES[name]) for name in rows.column_names]
    days = pc.unique(rows["ts"].cast(pa.date32()))
    full = sum(
        _size(encoded(rows.filter(pc.equal(rows["ts"].cast(pa.date32()), day)), columns))
        for day in days
    )
    return full, _size(encoded(compacted, columns))


def _log_of_groups(case: Case, missed: pa.Table, whole: Received) -> tuple[int, int]:
    """A result row for each group with new rows, at every `every` minutes.

    Those that change because rows leave the window are left out, in favour of the log. An entry
    is a row of the answer, and takes what one takes on average if all are packed together.
    """
    minutes = missed["ts"].cast(pa.int64()).to_numpy() // (case.every * 60_000_000)
    names = missed[case.groups].dictionary_encode().combine_chunks()
    codes = names.indices.to_numpy()
    changed = np.unique(np.stack([minutes, codes]), axis=1).shape[1]
    entries = _result_entries(whole)
    entry_bytes = _size(entries) / len(entries)
    return round(changed * entry_bytes), round(len(np.unique(codes)) * entry_bytes)


def _result_entries(whole: Received) -> list[bytes]:
    messages = [pb.InvokeResponse.FromString(message) for message in whole.messages]
    table = pa.ipc.open_stream(b"".join(message.arrow for message in messages)).read_all()
    columns = [Column(field.name, _type(field.type)) for field in table.schema]
    return encoded(table, columns)


def _type(kind: pa.DataType) -> Type:
    if pa.types.is_string(kind):
        return TEXT
    return DOUBLE if pa.types.is_floating(kind) else BIGINT


def _matches(rows: pa.Table, where: tuple[str, str, object]) -> pa.ChunkedArray:
    name, operator, value = where
    compare = pc.equal if operator == "=" else pc.less
    return compare(rows[name], value)


def _last_of_each(column: pa.ChunkedArray) -> np.ndarray:
    codes = column.dictionary_encode().combine_chunks().indices.to_numpy()
    _, first = np.unique(codes[::-1], return_index=True)
    return np.sort(len(codes) - 1 - first)


def _size(entries: Sequence[bytes]) -> int:
    return len(sent(entries)) + FRAME


# ---- what came out


def _report(report: Report, case: Case, returns: Sequence[Return]) -> None:
    """After the longest absence; the figure has the others."""
    longest = returns[-1]
    name = f"{case.title}; {longest.days:.0f} days away"
    for way in WAYS:
        ratio = {"ratio": longest.nbytes[way] / longest.nbytes["Sync"], "beside": "Sync"}
        report.add(
            f"{name}: {way}", longest.nbytes[way], "bytes", **({} if way == "Sync" else ratio)
        )
    report.add(f"{name}: Sync p50", longest.seconds * 1e3, "ms")
    ratio = {"ratio": longest.whole_seconds / longest.seconds, "beside": "Sync"}
    report.add(f"{name}: {WAYS[1]} p50", longest.whole_seconds * 1e3, "ms", **ratio)


def _figure(returns_by_case: dict[str, list[Return]]) -> Figure:
    panels = []
    for title, returns in returns_by_case.items():
        days = [visit.days for visit in returns]
        series = [
            Series(way, days, [visit.nbytes[way] for visit in returns], place)
            for place, way in enumerate(WAYS)
        ]
        labels = [f"{day:.0f}" for day in days]
        panels.append(Panel(title, "days away", "bytes received", series, True, True, days, labels))
    return Figure("sync-away", "Back after days away, on real rows", panels)
