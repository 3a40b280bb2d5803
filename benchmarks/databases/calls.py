"""The calls that are compared: one kind of question, put to each system in its own words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from benchmarks import baseline, workload
from benchmarks.databases.load import Requests
from benchmarks.databases.sqlite_file import METHOD
from benchmarks.sync.calls import INVOKE, SYNC, sync_request
from psoup.v1 import psoup_pb2 as pb

PSOUP, BARE, POSTGRES, SQLITE = "PSoup", "bare gRPC", "PostgreSQL", "SQLite"
ARROW, TYPED = "invoke, Arrow", "invoke, typed values"
_COLUMNS = "lane, station, speed, at"
# A copy has one row in 82 of these: 10,000.
SYNC_WINDOW = 10_000 * workload.STATIONS
SYNC_QUERY = f"SELECT {_COLUMNS} FROM traffic WHERE station = {{}} RANGE {SYNC_WINDOW} MILLISECONDS"
_MAX_CALLS = 200_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The sizes of a small answer's header and rows, about.
_HEADER_BYTES, _ROWS_BYTES = 120, 3_600

# A statement with its arguments, as SQLite takes them.
Sql = tuple[str, Sequence[int]]


@dataclass(frozen=True)
class Contents:
    """Handles of the registrations over the rows that all systems have, and tokens of the copies
    before and after the last rows, of which `last` is the newest."""

    pairs: Sequence[bytes]
    answers: Mapping[int, bytes]
    copies: Sequence[bytes]
    before: Sequence[bytes]
    after: Sequence[bytes]
    last: datetime

    def micros(self, milliseconds: int) -> int:
        """Return the instant this long before the newest row."""
        instant = self.last - timedelta(milliseconds=milliseconds)
        return (instant - _EPOCH) // timedelta(microseconds=1)

    def pair_sql(self, number: int) -> Sql:
        lane, station = workload.pair(number)
        sql = (
            f"SELECT {_COLUMNS} FROM traffic WHERE lane = ? AND station = ? AND at > ? ORDER BY at"
        )
        return sql, [lane, station, self.micros(workload.WINDOW_ROWS)]

    def answer_sql(self, rows: int) -> Sql:
        sql = f"SELECT {_COLUMNS} FROM traffic WHERE at > ? ORDER BY at"
        return sql, [self.micros(rows)]

    def newer_sql(self, station: int, milliseconds: int) -> Sql:
        sql = f"SELECT {_COLUMNS} FROM traffic WHERE station = ? AND at > ? ORDER BY at"
        return sql, [station, self.micros(milliseconds)]


@dataclass(frozen=True)
class Case:
    """A kind of call: what is sent to which system, by a name for it. Processor times stand beside
    that of `beside`; `aims` are the greatest ratios, by name and what it stands beside."""

    name: str
    calls: Mapping[str, tuple[str, Requests]]
    beside: str
    aims: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    max_calls: int = _MAX_CALLS


def pair_case(contents: Contents) -> Case:
    two = baseline.request(_HEADER_BYTES + _ROWS_BYTES, _ROWS_BYTES)
    return Case(
        "100 rows",
        {
            BARE: (BARE, Requests(baseline.METHOD, [two])),
            **_databases([contents.pair_sql(number) for number in range(len(contents.pairs))]),
            ARROW: (PSOUP, _invokes(contents.pairs, pb.ENCODING_ARROW)),
            TYPED: (PSOUP, _invokes(contents.pairs, pb.ENCODING_UNSPECIFIED)),
        },
        POSTGRES,
        {ARROW: {POSTGRES: 4.5, BARE: 2.0}, TYPED: {ARROW: 1.2}},
    )


def answer_case(contents: Contents, rows: int) -> Case:
    handles = [contents.answers[rows]]
    # Some hundred megabytes at most, of either encoding.
    max_calls = max(3, min(_MAX_CALLS, 1_000_000 // rows))
    return Case(
        f"{rows:,} row{'s' if rows > 1 else ''}",
        {
            **_databases([contents.answer_sql(rows)]),
            ARROW: (PSOUP, _invokes(handles, pb.ENCODING_ARROW)),
            TYPED: (PSOUP, _invokes(handles, pb.ENCODING_UNSPECIFIED)),
        },
        POSTGRES,
        {TYPED: {ARROW: 3.0}} if rows == 10_000 else {},
        max_calls,
    )


def sync_case(contents: Contents, changed: bool) -> Case:
    """A copy of 10,000 rows with nothing new, or with 100 new rows; in a database, a look-up of the
    rows that are newer than what the client has."""
    tokens = contents.before if changed else contents.after
    items = zip(contents.copies, tokens, strict=True)
    requests = [sync_request(handle, token) for handle, token in items]
    since = 100 * workload.STATIONS if changed else 0
    look_ups = [contents.newer_sql(station + 1, since) for station in range(len(contents.copies))]
    bare = baseline.request(2 * _HEADER_BYTES, _HEADER_BYTES)
    return Case(
        f"sync, {'100 of 10,000 rows are' if changed else 'nothing is'} new",
        {
            BARE: (BARE, Requests(baseline.METHOD, [bare])),
            **_databases(look_ups),
            "sync": (PSOUP, Requests(SYNC, requests)),
        },
        POSTGRES,
        {} if changed else {"sync": {BARE: 2.5}},
    )


def _invokes(handles: Sequence[bytes], encoding: pb.Encoding) -> Requests:
    requests = [
        pb.InvokeRequest(handle=handle, encoding=encoding, one_message=True) for handle in handles
    ]
    return Requests(INVOKE, [request.SerializeToString() for request in requests])


def _databases(calls: Sequence[Sql]) -> dict[str, tuple[str, Requests]]:
    sql = calls[0][0]
    statement, count = sql, 0
    while "?" in statement:
        count += 1
        statement = statement.replace("?", f"${count}", 1)
    # The last argument is an instant, which PostgreSQL takes as a text.
    arguments = [
        [*map(str, values[:-1]), (_EPOCH + timedelta(microseconds=values[-1])).isoformat()]
        for _, values in calls
    ]
    requests = [json.dumps([text, *values]).encode() for text, values in calls]
    return {
        POSTGRES: (POSTGRES, Requests(sql=statement, arguments=arguments)),
        SQLITE: (SQLITE, Requests(METHOD, requests)),
    }
