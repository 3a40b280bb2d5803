"""Answers computed from base rows: the oracle's, over the rows a store would have sent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from client_sdk import NotComputable, QueryProblem
from client_sdk.copies._query.base_rows import ROW_ID, Computation, prepare
from datastem.instants import SECOND, from_micros
from datastem.schema import StreamSchema
from querystem.base_rows import base_query
from querystem.identity import slides
from querystem.language import CreateStream, QueryError, bind_query, bind_window, parse_statement
from querystem.query import Query
from querystem.refresh import RefreshEvery
from tests.client_sdk.copies.support import wire
from tests.oracle import naive_answer, naive_rows
from tests.oracle.comparing import difference
from tests.oracle.evaluator import evaluate_row
from tests.oracle.keyed import Keyed
from tests.oracle.queries import LAST_TS, timelines
from tests.oracle.refresh import Event, History
from tests.oracle.strategies import Row, schemas
from tests.oracle.written import Scale, written_queries
from tests.support.server.process import ROOT

SCALE = Scale(1_700_000_000 * SECOND, SECOND)


def sent(query: Query, schema: StreamSchema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a copy keeps them."""
    names = slides(query) and query.refresh is None
    outputs = query.outputs if names else base_query(query, [schema]).outputs
    columns = {ROW_ID: pa.array([row["row_id"] for row in rows], pa.int64())}
    for output in outputs:
        values = [evaluate_row(output.expression, row) for row in rows]
        columns[output.name] = pa.array(values, output.expression.type.arrow)
    return pa.table(columns)


def computed(bound: Computation, rows: pa.Table, now: int) -> list[tuple[Any, ...]]:
    answer = bound.answer(rows, from_micros(now))
    assert answer.schema == pa.schema([(column.name, column.arrow) for column in bound.columns])
    return [tuple(row.values()) for row in answer.to_pylist()]


@st.composite
def cases(draw: st.DrawFn) -> tuple[StreamSchema, list[Row], str]:
    retain = draw(st.sampled_from([None, 12 * SECOND, 60 * SECOND]))
    schema = replace(draw(schemas()), retain=retain)
    rows = draw(timelines(schema))
    rows = [{**row, "ts": SCALE.origin + row["ts"] * SCALE.unit} for row in rows]
    return schema, rows, draw(written_queries(schema, SCALE)).sql


@given(cases(), st.integers(0, LAST_TS + 8))
@settings(max_examples=30, deadline=None)
def test_oracle_any_query_over_its_base_rows(case: Any, step: int) -> None:
    schema, rows, sql = case
    now = SCALE.origin + step * SCALE.unit
    query = bind_query(sql, {schema.name: schema}.get)
    answer = prepare(sql, None, [wire(schema)], None)
    assert answer.sync_window == ""
    chosen = naive_rows(query, rows, now, schema.retain)
    got = computed(answer, sent(query, schema, chosen[::-1]), now)
    if slides(query):
        assert len(got) == len(chosen), "the copy is the answer, there is nothing to compute"
    else:
        assert not difference(naive_answer(query, rows, now, schema.retain), got), (sql, now)


@given(cases(), st.integers(1, 9), st.integers(0, LAST_TS), st.integers(0, 20))
@settings(max_examples=30, deadline=None)
def test_oracle_as_of_the_last_refresh_point(case: Any, period: int, step: int, on: int) -> None:
    """Rows that came by the sync; NOW is then, or later. Arrival time: they came in order."""
    schema, rows, sql = case
    rows = [
        {**row, "row_id": n}
        for n, row in enumerate(sorted(rows, key=lambda base_row: base_row["ts"]))
    ]
    sql = f"{sql} REFRESH EVERY {period} SECONDS"
    try:
        query = bind_query(sql, {schema.name: schema}.get)
    except QueryError:
        reject()
    synced_at = SCALE.origin + step * SCALE.unit + on
    now = synced_at + on * SECOND // 2
    arrived = [row for row in rows if row["ts"] <= synced_at]
    try:
        answer = prepare(sql, None, [wire(schema)], None)
    except NotComputable as refused:
        assert "counts rows" in str(refused) and "without base_rows" in refused.hint
        return
    assert isinstance(query.refresh, RefreshEvery)
    wider = replace(query, refresh=None).with_window(bind_window(answer.sync_window, schema))
    base_rows = naive_rows(wider, arrived, synced_at, schema.retain)
    visible = naive_rows(wider, arrived, now, schema.retain)
    assert {row["row_id"] for row in visible} <= {row["row_id"] for row in base_rows} or _waits(
        wider
    )
    events = [Event(schema.name, row["ts"], [row], row["ts"]) for row in arrived]
    expected = History({schema.name: schema}, events, now).ask(query)
    got = computed(answer, sent(query, schema, visible), now)
    assert not difference(expected.answer, got), (sql, now)


def _waits(query: Query) -> bool:
    """Whether rows that were there enter later: a store sends those ahead."""
    end = getattr(query.leg.window, "end", None)
    return end is not None and end.relative


def schema_of(sql: str) -> StreamSchema:
    statement = parse_statement(sql)
    assert isinstance(statement, CreateStream)
    return statement.schema


EVENTS = schema_of("CREATE STREAM s (a BIGINT, b TEXT, at TIMESTAMP) ORDERED BY at")
KEYED = schema_of("CREATE STREAM s (a BIGINT, b TEXT) KEY (b)")
ARRIVALS = schema_of("CREATE STREAM s (a BIGINT, b TEXT) RETAIN 1 HOUR")


def test_current_rows_of_a_keyed_stream() -> None:
    rows: list[Row] = [
        {"a": n, "b": "xyz"[n % 3], "ts": SCALE.origin + n * SECOND, "row_id": n} for n in range(9)
    ]
    sql = "SELECT count(*) AS n, max(a) AS most, first(b) AS b FROM s WHERE a <> 7 RANGE 9 SECONDS"
    query = bind_query(sql, {"s": KEYED}.get)
    for now in (SCALE.origin + 8 * SECOND, SCALE.origin + 16 * SECOND, SCALE.origin + SECOND):
        keyed = Keyed(KEYED.key)
        chosen = naive_rows(query, rows, now, None, keyed)
        got = computed(prepare(sql, {}, [wire(KEYED)], None), sent(query, KEYED, chosen), now)
        assert got == naive_answer(query, rows, now, None, keyed)


def test_parameters_and_another_window() -> None:
    sql = "SELECT b, count(*) AS n FROM s WHERE a > :least GROUP BY b LIMIT :most RANGE 5 SECONDS"
    answer = prepare(sql, {"least": 3, "most": 1}, [wire(ARRIVALS)], "ROWS 7")
    assert answer.sync_window == "ROWS 7"
    columns = {ROW_ID: [1, 2], "ts": pa.array([1, 2], pa.timestamp("us", "UTC")), "b": ["y", "x"]}
    got = answer.answer(pa.table(columns), None)
    assert got.to_pylist() == [{"b": "x", "n": 1}]
    with pytest.raises(QueryProblem, match=":most has no value"):
        prepare(sql, {"least": 3}, [wire(ARRIVALS)], None)
    with pytest.raises(QueryProblem) as past:
        prepare(sql, {"least": 3, "most": 1}, [wire(ARRIVALS)], "RANGE 2 HOURS")
    assert past.value.reason == "WINDOW_PAST_RETENTION"


@pytest.mark.parametrize(
    ("schema", "tail", "why"),
    [
        (EVENTS, "RANGE 5 SECONDS REFRESH EVERY 5 SECONDS", "event time"),
        (KEYED, "RANGE 5 SECONDS REFRESH EVERY 5 SECONDS", "has a key"),
        (ARRIVALS, "ROWS 5 REFRESH EVERY 5 SECONDS", "counts rows"),
        (ARRIVALS, "RANGE 5 SECONDS REFRESH ON other WHERE x > 1", "rows of other refresh"),
        (ARRIVALS, "RANGE 5 SECONDS REFRESH ON s WHERE a > 1", "rows refresh"),
    ],
)
def test_what_base_rows_do_not_tell_is_refused(schema: StreamSchema, tail: str, why: str) -> None:
    with pytest.raises(NotComputable, match=why) as refused:
        prepare(f"SELECT count(*) AS n FROM s {tail}", None, [wire(schema)], None)
    assert refused.value.reason == "NOT_COMPUTABLE"


def test_columns_of_another_query_are_refused() -> None:
    bound = prepare("SELECT sum(a) AS n FROM s", None, [wire(ARRIVALS)], None)
    with pytest.raises(ValueError, match="computed from _row_id BIGINT, ts TIMESTAMP, a BIGINT"):
        bound.answer(pa.table({ROW_ID: [1], "b": ["x"]}), None)


def test_nothing_at_all_is_an_answer_too() -> None:
    answer = prepare("SELECT count(*) AS n, sum(a) AS s FROM s", None, [wire(EVENTS)], None)
    empty = pa.schema([(ROW_ID, pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("a", pa.int64())])
    assert answer.answer(empty.empty_table(), None).to_pylist() == [{"n": 0, "s": None}]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"sqlglot is missing: pip install 'psoup\[offline"
    ):
        prepare("SELECT count(*) AS n FROM s", None, [wire(ARRIVALS)], None)


_FRESH = """
import subprocess
import sys
from datetime import timedelta
import pyarrow as pa
from client_sdk import Column, Stream
from client_sdk.copies._query.base_rows import prepare
sql = "CREATE STREAM s (a BIGINT)"
stream = Stream("s", 1, (Column("a", "BIGINT"),), None, None, timedelta(), 0, None, sql, 0)
bound = prepare("SELECT a, count(*) AS n FROM s GROUP BY a UNBOUNDED", {}, [stream], "")
values = {column.name: pa.array([7, 7], column.arrow) for column in bound.base_columns}
print(bound.answer(pa.table({"_row_id": pa.array([1, 2], pa.int64()), **values}), None).to_pylist())
print([name for name in sys.argv[1].split() if name in sys.modules])
"""


@pytest.mark.process
def test_computing_loads_nothing_of_the_store() -> None:
    foreign = "psoup.store psoup.server psoup.engine deltalake pyspark pyroaring"
    command = [sys.executable, "-c", _FRESH, foreign]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[{'a': 7, 'n': 2}]", "[]"]
