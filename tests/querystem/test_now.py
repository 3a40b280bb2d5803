"""Queries with NOW over one stream, beside the oracle and DuckDB, which get the instant in its
place; and intervals of visibility, which say when a row is visible."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.instants import HOUR, MINUTE, format_instant
from querystem.evaluate import answer_at
from querystem.expressions import at_instant
from querystem.kernel import matches
from querystem.language import CreateStream, bind_query, parse_statement
from querystem.visibility import visibility_of
from tests.oracle.answers import naive_answer

START = 1_700_000_000_000_000
_STATEMENT = parse_statement("CREATE STREAM tasks (id BIGINT, due TIMESTAMP, until TIMESTAMP)")
assert isinstance(_STATEMENT, CreateStream)
SCHEMA = _STATEMENT.schema
INTERVALS = (
    "due < NOW",
    "due <= NOW AND until > NOW",
    "NOT (due < NOW)",
    "due = NOW",
    "due - NOW < INTERVAL '1' HOUR",
    "NOW - due >= INTERVAL '30' MINUTE AND id > 1",
    "due BETWEEN NOW - INTERVAL '1' HOUR AND NOW + INTERVAL '1' MINUTE",
    "NOW > coalesce(until, due) + INTERVAL '1' MINUTE",
)
COMPUTED = (
    "due < NOW OR id = 1",
    "due <> NOW",
    "(due < NOW) = (until < NOW)",
    "id = 1 OR NOW > due",
)
SELECTS = (
    "SELECT id, due FROM tasks WHERE {} ORDER BY id, due NULLS FIRST",
    "SELECT id, CASE WHEN due < NOW THEN 'late' WHEN due IS NULL THEN 'never' ELSE 'early' END AS s"
    " FROM tasks WHERE {} ORDER BY id, s",
    "SELECT count(*) AS n, min(due) AS first FROM tasks WHERE {}",
    "SELECT id, count(*) AS n FROM tasks WHERE {} GROUP BY id HAVING max(until) > NOW ORDER BY id",
    "SELECT due < NOW AS late, count(*) AS n FROM tasks WHERE {} GROUP BY due < NOW"
    " ORDER BY 1 NULLS FIRST",
)

instants = st.one_of(
    st.none(),
    st.sampled_from([START, START + 1, START - 1, START + HOUR, START - HOUR, START + MINUTE]),
    st.integers(START - 2 * HOUR, START + 2 * HOUR),
)
rows = st.lists(st.tuples(st.integers(0, 3), instants, instants), max_size=12)


def batch_of(drawn: list[tuple[int, int | None, int | None]]) -> pa.RecordBatch:
    stamp = pa.timestamp("us", "UTC")
    columns = [
        pa.array([row[0] for row in drawn], pa.int64()),
        pa.array([row[1] for row in drawn], stamp),
        pa.array([row[2] for row in drawn], stamp),
        pa.array([START - 3 * HOUR + number for number in range(len(drawn))], stamp),
        pa.array(range(len(drawn)), pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["id", "due", "until", "ts", "row_id"])


def constant(sql: str, now: int) -> str:
    return re.sub(r"\bNOW\b", f"TIMESTAMP '{format_instant(now)}'", sql)


@given(
    drawn=rows,
    where=st.sampled_from(INTERVALS + COMPUTED),
    select=st.sampled_from(SELECTS),
    later=st.sampled_from([0, 1, -1, MINUTE, HOUR, -HOUR]),
)
def test_three_ways_agree(
    drawn: list[tuple[int, int | None, int | None]], where: str, select: str, later: int
) -> None:
    sql, now, batch = select.format(where), START + later, batch_of(drawn)
    query = bind_query(sql, {"tasks": SCHEMA}.get)
    answer = [tuple(row.values()) for row in answer_at(query, [batch], now).to_pylist()]
    named = [
        {"id": id_, "due": due, "until": until, "ts": START - 3 * HOUR + number, "row_id": number}
        for number, (id_, due, until) in enumerate(drawn)
    ]
    with_cast = re.sub(r"\bNOW\b", f"CAST('{format_instant(now)}' AS TIMESTAMP)", sql)
    assert answer == naive_answer(bind_query(with_cast, {"tasks": SCHEMA}.get), named, now)
    assert answer == asked_of_duckdb(constant(sql, now), batch)


def asked_of_duckdb(sql: str, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    tasks = pa.Table.from_batches([batch])
    connection = connected()
    connection.register("zoned", tasks)
    connection.execute(
        "CREATE OR REPLACE TABLE tasks AS SELECT id, CAST(due AS TIMESTAMP) AS due,"
        " CAST(until AS TIMESTAMP) AS until FROM zoned"
    )
    answer = connection.execute(sql).fetchall()
    return [tuple(map(_in_utc, row)) for row in answer]


@cache
def connected() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _in_utc(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return value.replace(tzinfo=UTC)


@given(drawn=rows, where=st.sampled_from(INTERVALS))
def test_an_interval_says_when_the_condition_is_true(
    drawn: list[tuple[int, int | None, int | None]], where: str
) -> None:
    leg = bind_query(f"SELECT id FROM tasks WHERE {where}", {"tasks": SCHEMA}.get).leg
    visibility = visibility_of(leg.when)
    assert visibility is not None
    batch = batch_of(drawn)
    batch = batch.filter(pa.array(matches(leg.where, batch)))
    begin, end = visibility.interval(batch)
    edges = {int(edge) for edge in (*begin, *end) if abs(int(edge) - START) < 5 * HOUR}
    for now in {START, *(edge + step for edge in edges for step in (-1, 0, 1))}:
        expected = matches(at_instant(leg.when, now), batch)
        assert np.array_equal((begin <= now) & (now < end), expected), now
        assert np.array_equal(visibility.remaining(batch, now), end > now)


@pytest.mark.parametrize("where", COMPUTED)
def test_what_is_no_interval(where: str) -> None:
    leg = bind_query(f"SELECT id FROM tasks WHERE {where}", {"tasks": SCHEMA}.get).leg
    assert visibility_of(leg.when) is None
