"""DuckDB as a second opinion on groups, order and limits, where it means the same.

Where it does not, and what is done about it here:
- sums and averages of DOUBLE depend on the order of rows, and STDDEV is not exact: left out here,
  STDDEV of whole numbers compared to nine digits;
- SUM of BIGINT is a HUGEINT, ours NULL if it overflows: cast with TRY_CAST;
- AVG of DECIMAL is a DOUBLE, and SUM of DECIMAL past 38 digits an error: left out;
- windows are ours alone: only the unbounded one is asked, and ROWS, which row_number() can say;
- without ORDER BY it promises no order: every query is ordered to the last tie, groups by keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, TEXT, Kind
from querystem.evaluate import answer_at
from querystem.expressions import TRUE, ColumnRef, Expression
from querystem.grouping import Aggregate, Function
from querystem.language import bind_query
from querystem.legs import Leg
from querystem.query import Output, Query
from results.window import UNBOUNDED, CountWindow
from tests.oracle.comparing import difference
from tests.oracle.queries import LAST_TS, queries, timelines, windows_of
from tests.oracle.strategies import schemas, to_batch

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
_NAIVE = pa.timestamp("us")
_EXACT = {Function.COUNT: "count", Function.MIN: "min", Function.MAX: "max", Function.SUM: "sum"}
_ENDS = {Function.FIRST: "first", Function.LAST: "last"}


class MeansSomethingElse(Exception):
    """The query is one of the differences above."""


def column(expression: Expression) -> str:
    if not isinstance(expression, ColumnRef):
        raise TypeError(expression)
    return f'"{expression.name}"'


def aggregate(aggregate_: Aggregate) -> str:
    if aggregate_.argument is None:
        return "count(*)"
    name = column(aggregate_.argument)
    if aggregate_.function in _ENDS:
        within = f"{_ENDS[aggregate_.function]}({name} ORDER BY ts, row_id)"
        return f"{within} FILTER (WHERE {name} IS NOT NULL)"
    if aggregate_.function not in _EXACT or (
        aggregate_.function is Function.SUM and aggregate_.type != BIGINT
    ):
        raise MeansSomethingElse(aggregate_.function.value)
    inner = f"{_EXACT[aggregate_.function]}({'DISTINCT ' if aggregate_.distinct else ''}{name})"
    return f"TRY_CAST({inner} AS BIGINT)" if aggregate_.function is Function.SUM else inner


def translate(query: Query) -> str:
    """Return a query over `s` without WHERE and HAVING, in DuckDB's SQL."""
    source, ties = "s", ["ts", "row_id"]
    if query.grouping is not None:
        keys = [f'{column(key)} AS "$key{n}"' for n, key in enumerate(query.grouping.keys)]
        values = [
            f'{aggregate(aggregate_)} AS "$aggregate{n}"'
            for n, aggregate_ in enumerate(query.grouping.aggregates)
        ]
        grouped = ", ".join(column(key) for key in query.grouping.keys)
        by = f"GROUP BY {grouped}" if keys else ""
        source = f"(SELECT {', '.join([*keys, *values])} FROM s {by})"
        ties = [f'"$key{n}" ASC NULLS LAST' for n in range(len(keys))]
    order = [
        f"{column(key.expression)} {'DESC' if key.descending else 'ASC'} "
        f"NULLS {'FIRST' if key.nulls_first else 'LAST'}"
        for key in query.order_by
    ]
    outputs = ", ".join(column(output.expression) for output in query.outputs)
    clause = f"ORDER BY {', '.join([*order, *ties])}" if order or ties else ""
    limit = "" if query.limit is None else f"LIMIT {query.limit}"
    return f"SELECT {outputs} FROM {source} {clause} {limit} OFFSET {query.offset}"


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        yield connection


def answer(
    duck: duckdb.DuckDBPyConnection, sql: str, batch: pa.RecordBatch
) -> list[tuple[Any, ...]]:
    columns = [
        array.cast(_NAIVE) if pa.types.is_timestamp(array.type) else array for array in batch
    ]
    duck.register("s", pa.table(columns, names=batch.schema.names))
    return [
        tuple(value.replace(tzinfo=UTC) if isinstance(value, datetime) else value for value in row)
        for row in duck.execute(sql).fetchall()
    ]


@settings(max_examples=2 * settings().max_examples, suppress_health_check=_SLOW)
@given(data=st.data())
def test_differential_queries(duck: duckdb.DuckDBPyConnection, data: DataObject) -> None:
    schema = data.draw(schemas().map(_shared))
    batch = to_batch(schema, data.draw(timelines(schema)))
    for drawn in data.draw(st.lists(queries(schema, plain=True), min_size=4, max_size=4)):
        query = replace(drawn.with_where(TRUE), having=TRUE, distinct=False)
        query = query.with_window(UNBOUNDED)
        try:
            sql = translate(query)
        except MeansSomethingElse:
            continue
        ours = answer_at(query, [batch.slice(0, 5), batch.slice(5)], LAST_TS)
        duck_rows = answer(duck, sql, batch)
        rows = [tuple(row.values()) for row in ours.to_pylist()]
        assert not difference(duck_rows, rows), sql


@settings(max_examples=2 * settings().max_examples, suppress_health_check=_SLOW)
@given(data=st.data())
def test_differential_windows_over_counts(
    duck: duckdb.DuckDBPyConnection, data: DataObject
) -> None:
    schema = data.draw(schemas().map(_shared))
    batch = to_batch(schema, data.draw(timelines(schema)))
    chosen = st.sampled_from(["count", "partition"]).flatmap(lambda kind: windows_of(kind, schema))
    for window in data.draw(st.lists(chosen, max_size=8)):
        assert isinstance(window, CountWindow)
        now = data.draw(st.integers(-1, LAST_TS + 2))
        query = Query(Leg("s", TRUE, window), (Output("row_id", ColumnRef("row_id", BIGINT)),))
        ours = answer_at(query, [batch.slice(0, 5), batch.slice(5)], now)
        duck_ids = [row_id for (row_id,) in answer(duck, rows_of(window, now), batch)]
        assert ours["row_id"].to_pylist() == duck_ids, (window, now)


def rows_of(window: CountWindow, now: int) -> str:
    """Return a window over counts in DuckDB's SQL."""
    keys = ", ".join(f'"{name}"' for name in window.partition_by) or "1"
    step = window.slide or 1
    past = (
        "SELECT *, row_number() OVER (ORDER BY ts, row_id) AS place, count(*) OVER () AS every"
        f" FROM s WHERE epoch_us(ts) <= {now}"
    )
    newest = f"row_number() OVER (PARTITION BY {keys} ORDER BY ts DESC, row_id DESC)"
    return (
        f"SELECT row_id FROM (SELECT * FROM ({past}) WHERE place <= every // {step} * {step})"
        f" QUALIFY {newest} <= {window.rows} ORDER BY ts, row_id"
    )


@given(st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(-50, 50)), max_size=30))
def test_differential_stddev_of_distinct_values(
    duck: duckdb.DuckDBPyConnection, pairs: list[tuple[str, int | None]]
) -> None:
    schema = StreamSchema("s", (Column("k", TEXT), Column("v", BIGINT)))
    rows = [{"k": k, "v": v, "ts": n, "row_id": n} for n, (k, v) in enumerate(pairs)]
    sql = "SELECT k, stddev(DISTINCT v) AS d, first(DISTINCT v) AS f FROM s GROUP BY k ORDER BY k"
    batch = to_batch(schema, rows)
    ours = answer_at(bind_query(sql, {"s": schema}.get), [batch], len(rows)).to_pylist()
    duck_rows = answer(
        duck,
        "SELECT k, stddev_samp(DISTINCT v), first(v ORDER BY ts) FILTER (WHERE v IS NOT NULL)"
        " FROM s GROUP BY k ORDER BY k",
        batch,
    )
    assert len(ours) == len(duck_rows)
    for row, (key, deviation, first) in zip(ours, duck_rows, strict=True):
        assert (row["k"], row["f"], row["d"] is None) == (key, first, deviation is None)
        assert row["d"] is None or math.isclose(row["d"], deviation, rel_tol=1e-9)


def _shared(schema: StreamSchema) -> StreamSchema:
    """Python's DuckDB gives no dates or instants outside of its own calendar's comfort."""
    moments = (Kind.DATE, Kind.TIMESTAMP)
    columns = tuple(
        Column(column_.name, BIGINT) if column_.type.kind in moments else column_
        for column_ in schema.columns
    )
    return replace(schema, columns=columns)
