"""Every kind of window, aggregates, order and limits through a running server: the oracle's."""

from __future__ import annotations

import math
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from datastem.instants import to_micros
from psoup.server.wire.values import from_instant
from psoup.v1 import psoup_pb2 as pb
from querystem.language import CreateStream, bind_query, parse_statement
from tests.oracle import naive_answer
from tests.support.generators import TRAFFIC_SQL, traffic
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

SQL = f"{TRAFFIC_SQL} ORDERED BY at"
SELECTS = [
    "SELECT row_id, speed FROM traffic WHERE speed > 60",
    "SELECT DISTINCT lane FROM traffic ORDER BY lane DESC NULLS FIRST",
    "SELECT row_id FROM traffic ORDER BY speed DESC NULLS LAST, lane LIMIT 9 OFFSET 2",
    "SELECT count(*) AS n, sum(speed) AS s, avg(speed) AS a, stddev(speed) AS d FROM traffic",
    "SELECT lane, count(*) AS n, max(speed) AS most, last(speed) AS newest FROM traffic "
    "WHERE speed > 40 GROUP BY lane HAVING count(*) > 3 ORDER BY avg(speed) DESC",
    "SELECT count(DISTINCT lane) AS lanes, min(lane) AS least FROM traffic",
    "SELECT DISTINCT 5 AS five FROM traffic HAVING TRUE LIMIT 2",
    "SELECT sum(row_id) AS total, avg(row_id) AS mean, max(ts) AS newest FROM traffic",
]
WINDOWS = [
    "RANGE 20 SECONDS",
    "RANGE 20 SECONDS SLIDE 7 SECONDS",
    "BEGIN NOW - 40 SECONDS END NOW - 10 SECONDS",
    "BEGIN ROW 100 END ROW 300",
    "BEGIN ROW LAST - 99 END ROW LAST",
    "ROWS 150",
    "ROWS 150 SLIDE 40",
    "ROWS 3 PARTITION BY lane",
    "ROWS 3 SLIDE 40 PARTITION BY lane",
    "UNBOUNDED",
]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return traffic(700, late=0.1, nulls=0.05)


def close(actual: Any, expected: Any) -> bool:
    both_nan = isinstance(actual, float) and isinstance(expected, float) and math.isnan(actual)
    return (both_nan and math.isnan(expected)) or actual == expected


def test_oracle_windows_and_queries(server: ServerProcess, table: pa.Table) -> None:
    statement = parse_statement(SQL)
    assert isinstance(statement, CreateStream)
    lookup = {statement.schema.name: statement.schema}.get
    server.define(SQL)
    handles = [server.register(select).handle for select in SELECTS]
    for start in range(0, 700, 175):
        sent = server.publish("traffic", table.slice(start, 175))
    rows = [
        {**row, "ts": to_micros(row["at"]), "row_id": place}
        for place, row in enumerate(table.to_pylist())
    ]
    now = max(row["ts"] for row in rows)
    for select, handle in zip(SELECTS, handles, strict=True):
        for window in WINDOWS:
            expected = naive_answer(bind_query(f"{select} {window}", lookup), rows, now)
            for _ in range(2):
                header, answer = server.invoke(handle, window=window, least_position=sent.position)
                answer_rows = [tuple(row.values()) for row in answer.to_pylist()]
                assert len(answer_rows) == len(expected), (select, window)
                for answer_row, expected_row in zip(answer_rows, expected, strict=True):
                    assert all(map(close, answer_row, expected_row)), (
                        select,
                        window,
                        answer_row,
                        expected_row,
                    )
                assert header.HasField("window_end") == ("ROW" not in window)


def test_a_registered_window_over_rows(server: ServerProcess, table: pa.Table) -> None:
    server.define(SQL)
    handle = server.register("SELECT row_id FROM traffic ROWS 5").handle
    server.publish("traffic", table)
    header, answer = server.invoke(handle)
    newest = sorted((at, place) for place, at in enumerate(table["at"].to_pylist()))[-5:]
    assert answer["row_id"].to_pylist() == [place for _, place in newest]
    assert not header.HasField("window_begin") and not header.HasField("window_end")


def test_oracle_as_of_in_both_senses(server: ServerProcess, table: pa.Table) -> None:
    """What was known then, and what is known today with NOW set back; half came later."""
    statement = parse_statement(SQL)
    assert isinstance(statement, CreateStream)
    lookup = {statement.schema.name: statement.schema}.get
    server.define(SQL)
    table = _ending_now(table)
    server.publish("traffic", table.slice(0, 350))
    time.sleep(0.01)
    then = time.time_ns() // 1000
    time.sleep(0.01)
    server.publish("traffic", table.slice(350))
    rows = [
        {**row, "ts": to_micros(row["at"]), "row_id": place}
        for place, row in enumerate(table.to_pylist())
    ]
    middle = sorted(row["ts"] for row in rows)[400]
    cases = [(then, "then", rows[:350]), (then, "today", rows), (middle, "today", rows)]
    cases += [(middle, "then", [])]
    for select in SELECTS:
        handle = server.register(select).handle
        for window in WINDOWS:
            query = bind_query(f"{select} {window}", lookup)
            for instant, sense, visible in cases:
                expected = naive_answer(query, visible, instant)
                knowledge = pb.KNOWLEDGE_TODAY if sense == "today" else pb.KNOWLEDGE_UNSPECIFIED
                moment = {"as_of": from_instant(instant), "knowledge": knowledge}
                answers = (
                    server.invoke(handle, window=window, **moment),
                    server.ask(f"{select} {window}", **moment),
                )
                for _, answer in answers:
                    answer_rows = [tuple(row.values()) for row in answer.to_pylist()]
                    assert len(answer_rows) == len(expected), (select, window, instant, sense)
                    for answer_row, expected_row in zip(answer_rows, expected, strict=True):
                        assert all(map(close, answer_row, expected_row)), (
                            select,
                            window,
                            sense,
                            answer_row,
                            expected_row,
                        )


def _ending_now(table: pa.Table) -> pa.Table:
    """The same rows, the last of them a second ago."""
    at = table["at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    moved = pc.add(at, time.time_ns() // 1000 - 1_000_000 - pc.max(at).as_py())
    place = table.column_names.index("at")
    return table.set_column(place, "at", moved.cast(pa.timestamp("us", "UTC")))
