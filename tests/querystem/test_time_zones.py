"""Time zones in expressions, compared with `zoneinfo` from 1900 to 2100."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastem.calendar import Unit, unit_begin
from datastem.instants import DAY, MINUTE, from_micros, to_micros
from datastem.types import TEXT, TIMESTAMP
from datastem.zones import ZoneRules, machine_rules, unpacked
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op, Zone
from querystem.kernel import evaluate
from querystem.language import CreateStream, bind_query, expression_text, parse_statement
from querystem.query import Query
from querystem.query_json import query_form, read_form
from querystem.zones import renewed_all, rules_of, with_zones, zones_of
from tests.oracle import zoned
from tests.oracle.expressions import EXTRACT_UNITS, TRUNC_UNITS
from tests.oracle.zoned import ZONES, machine_zones_of
from tests.support.lengths import scaled

FIRST, LAST = (to_micros(datetime(year, 1, 1, tzinfo=UTC)) for year in (1900, 2101))
_STATEMENT = parse_statement(
    "CREATE STREAM sales (id BIGINT, due DATE, at TIMESTAMP) ORDERED BY at"
)
assert isinstance(_STATEMENT, CreateStream)
SCHEMA = _STATEMENT.schema
AT = ColumnRef("at", TIMESTAMP)
zones = st.sampled_from(ZONES)


@st.composite
def instants(draw: Callable[[st.SearchStrategy[Any]], Any], zone: str) -> int:
    """An instant, often on one of the days of a clock change."""
    changes = zoned.rules_of(zone).starts[1:].tolist()
    if changes and draw(st.booleans()):
        near = st.integers(-2 * DAY, 2 * DAY) | st.integers(-2, 2)
        half_hours = st.integers(-4, 4).map(lambda count: count * 30 * MINUTE)
        return int(draw(st.sampled_from(changes)) + draw(near | half_hours))
    return int(draw(st.integers(FIRST, LAST)))


def column(micros: list[int | None]) -> pa.RecordBatch:
    return pa.record_batch({"at": pa.array(micros, pa.timestamp("us", "UTC"))})


def zone(name: str) -> Zone:
    return Zone(name, zoned.rules_of(name).packed)


def bound(sql: str) -> Query:
    return bind_query(sql, {"sales": SCHEMA}.get)


def value(expression: str, micros: int) -> Any:
    """Return the value of an expression over a row of that instant."""
    query = with_zones(bound(f"SELECT {expression} AS x FROM sales"), machine_zones_of())
    return evaluate(query.outputs[0].expression, column([micros]))[0].as_py()


@given(st.data(), zones)
def test_every_unit_begins_where_zoneinfo_says(data: st.DataObject, name: str) -> None:
    micros = data.draw(st.lists(instants(name) | st.none(), min_size=1, max_size=3))
    for unit in TRUNC_UNITS:
        call = Call(Op.DATE_TRUNC, (Literal(unit, TEXT), AT, zone(name)), TIMESTAMP)
        expected = [
            None if at is None else zoned.date_trunc(unit, from_micros(at), name) for at in micros
        ]
        assert evaluate(call, column(micros)).to_pylist() == expected


@given(st.data(), zones)
def test_the_clock_shows_what_zoneinfo_says(data: st.DataObject, name: str) -> None:
    micros = data.draw(st.lists(instants(name) | st.none(), min_size=1, max_size=5))
    call = Call(Op.AT_TIME_ZONE, (AT, zone(name)), TIMESTAMP)
    expected = [None if at is None else zoned.at_time_zone(from_micros(at), name) for at in micros]
    assert evaluate(call, column(micros)).to_pylist() == expected


@given(st.data(), zones, st.sampled_from([unit for unit in Unit if unit is not Unit.WEEK_SUNDAY]))
def test_a_unit_is_that_of_the_window(data: st.DataObject, name: str, unit: Unit) -> None:
    """The rows of a calendar window are those of one date_trunc."""
    at = data.draw(instants(name))
    begin = int(unit_begin(unit, zoned.rules_of(name), np.array([at]))[0])
    call = Call(Op.DATE_TRUNC, (Literal(unit.value.lower(), TEXT), AT, zone(name)), TIMESTAMP)
    assert evaluate(call, column([at])).to_pylist() == [from_micros(begin)]


CASES = {
    "date_trunc('day', at, 'Europe/Madrid')": datetime(2026, 3, 28, 23, tzinfo=UTC),
    "date_trunc('month', at, 'Europe/Madrid')": datetime(2026, 2, 28, 23, tzinfo=UTC),
    "date_trunc('DAY', at, 'UTC')": datetime(2026, 3, 29, tzinfo=UTC),
    "extract(hour FROM at AT TIME ZONE 'Europe/Madrid')": 3,
    "extract(dow FROM (at AT TIME ZONE 'Pacific/Apia'))": 0,
    "CAST(at AT TIME ZONE 'America/New_York' AS DATE)": datetime(2026, 3, 28).date(),
    "CAST(at AT TIME ZONE 'Asia/Kathmandu' AS TEXT)": "2026-03-29 06:45:00",
    "extract(minute FROM at AT TIME ZONE 'Z')": 0,
}


@pytest.mark.parametrize("expression", CASES)
def test_on_the_day_of_a_clock_change(expression: str) -> None:
    change = to_micros(datetime(2026, 3, 29, 1, tzinfo=UTC))
    assert value(expression, change) == CASES[expression]
    written = bound(f"SELECT {expression} AS x FROM sales").outputs[0].expression
    again = bound(f"SELECT {expression_text(written)} AS x FROM sales").outputs[0].expression
    assert again == written


def test_out_of_the_years_of_instants_there_is_no_value() -> None:
    first, last = (
        to_micros(datetime.min.replace(tzinfo=UTC)),
        to_micros(datetime.max.replace(tzinfo=UTC)),
    )
    assert value("date_trunc('day', at, 'Asia/Kolkata')", first) is None
    assert value("CAST(at AT TIME ZONE 'America/New_York' AS DATE)", first) is None
    assert value("extract(hour FROM at AT TIME ZONE 'Asia/Kolkata')", last) is None


# ---- rules


@given(zones)
def test_packed_rules_are_read_again(name: str) -> None:
    rules = zoned.rules_of(name).of_version(3)
    again = unpacked(name, rules.packed)
    assert again == rules and again.has_rules_of(rules) and again.packed == rules.packed
    assert zoned.rules_of(name).packed != rules.packed and '"' not in rules.packed


def test_rules_with_many_kinds_of_changes_are_read_again() -> None:
    starts = np.cumsum(np.arange(1, 200)) * DAY
    rules = ZoneRules("X", 1, starts, np.arange(200) * MINUTE)
    assert unpacked("X", rules.packed).has_rules_of(rules)


QUERIES = (
    "SELECT id FROM sales WHERE extract(hour FROM at AT TIME ZONE 'Asia/Kolkata') = 3",
    "SELECT date_trunc('day', at, 'Asia/Kolkata') AS d, count(*) AS n FROM sales"
    " GROUP BY date_trunc('day', at, 'Asia/Kolkata')",
    "SELECT id FROM sales WHERE due < CAST(NOW AT TIME ZONE 'Asia/Kolkata' AS DATE)",
    "SELECT a.id FROM sales AS a, sales AS b"
    " WHERE date_trunc('day', a.at, 'Asia/Kolkata') = date_trunc('day', b.at, 'Asia/Kolkata')",
    "SELECT id FROM sales WHERE id IN (SELECT max(id) FROM sales WHERE due ="
    " CAST(at AT TIME ZONE 'Asia/Kolkata' AS DATE))",
    "SELECT id FROM sales REFRESH ON sales WHERE extract(hour FROM at AT TIME ZONE 'Asia/Kolkata')"
    " = 3",
)


@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_gets_the_rules_of_the_zones_that_it_names(sql: str) -> None:
    query = bound(sql)
    assert zones_of(query) == {"Asia/Kolkata"} and not rules_of(query)
    (rules,) = machine_zones_of(("Asia/Kolkata",)).values()
    ruled = with_zones(query, {"Asia/Kolkata": rules})
    assert rules_of(ruled) == (rules,) and zones_of(ruled) == zones_of(query)
    assert read_form(query_form(ruled), ruled.predicate_keys) == ruled
    newer = with_zones(ruled, {"Asia/Kolkata": rules.of_version(2)})
    assert rules_of(newer) == (rules.of_version(2),)
    assert with_zones(newer, {"Asia/Kolkata": rules}) == ruled
    keys = renewed_all(["[]", *query.predicate_keys], {"Asia/Kolkata": rules})
    assert tuple(keys[1:]) == ruled.predicate_keys


def test_texts_that_look_like_zones_stay() -> None:
    text = 'SELECT id FROM sales WHERE \'["zone","Asia/Tokyo",""]\' = CAST(id AS TEXT)'
    query = bound(text)
    assert not zones_of(query) and with_zones(query, {}) is query


def test_a_zone_without_rules_has_no_value() -> None:
    (output,) = bound("SELECT date_trunc('day', at, 'Asia/Tokyo') AS d FROM sales").outputs
    expression: Expression = output.expression
    with pytest.raises(TypeError, match="has no rules"):
        evaluate(expression, column([0]))


def test_rules_are_those_of_the_store_and_not_of_the_machine() -> None:
    tokyo = machine_rules("Asia/Tokyo")
    rules = ZoneRules("Europe/Madrid", 1, tokyo.starts[1:], tokyo.offsets)
    query = bound("SELECT extract(hour FROM at AT TIME ZONE 'Europe/Madrid') AS h FROM sales")
    ruled = with_zones(query, {"Europe/Madrid": rules}).outputs[0].expression
    assert evaluate(ruled, column([0])).to_pylist() == [9]


# ---- DuckDB, whose ICU has rules of its own


@cache
def connected() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


DUCKDB = (
    {f"extract({unit} FROM at AT TIME ZONE 'Z')": "" for unit in EXTRACT_UNITS}
    | {
        f"date_trunc('{unit}', at, 'Z')": f"date_trunc('{unit}', at AT TIME ZONE 'Z')"
        " AT TIME ZONE 'Z'"
        for unit in ("day", "week", "month", "quarter", "year")
    }
    | {"CAST(at AT TIME ZONE 'Z' AS DATE)": ""}
)


@settings(max_examples=scaled(25))
@given(st.data(), zones)
def test_duckdb_agrees(data: st.DataObject, name: str) -> None:
    micros = data.draw(st.lists(instants(name), min_size=1, max_size=20))
    # Until then Madrid's clock was set back to midnight, and shows the begin of a day twice. What
    # clocks will do, other data may say in another way.
    first, last = datetime(1980, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    rows = column([at for at in micros if first < from_micros(at) < last])
    ours = [f"{text} AS x{number}" for number, text in enumerate(DUCKDB)]
    query = bound(f"SELECT {', '.join(ours)} FROM sales".replace("'Z'", f"'{name}'"))
    query = with_zones(query, machine_zones_of())
    answer = [evaluate(output.expression, rows).to_pylist() for output in query.outputs]
    duckdb_texts = ", ".join(written or text for text, written in DUCKDB.items())
    # AT is a word of DuckDB.
    text = re.sub(r"\bat\b", '"at"', duckdb_texts.replace("'Z'", f"'{name}'"))
    connected().register("rows", pa.Table.from_batches([rows]))
    expected = connected().execute(f"SELECT {text} FROM rows").fetchall()
    assert list(zip(*answer, strict=True)) == expected
