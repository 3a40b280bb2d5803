"""Groups, aggregates and order: what a clause may see, and the form it is bound to."""

from __future__ import annotations

import json
from decimal import Decimal

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.types import BIGINT, DOUBLE, Type
from querystem.expressions import TRUE, ColumnRef, Expression, columns_of
from querystem.grouping import Aggregate, Function, aggregate_name, key_name
from querystem.language import QueryError, UnknownStream, bind_query, prepare
from querystem.language.functions.aggregates import AGGREGATES
from querystem.query import Query, SortKey
from querystem.query_json import query_from_json, query_to_json
from tests.querystem.language.support import TRADES, bind, lookup, show_query

DUCKDB = """
    CREATE TABLE trades (symbol TEXT, venue TEXT, price DOUBLE, size BIGINT, "at" TIMESTAMPTZ,
        day DATE, ok BOOLEAN, amount DECIMAL(10,2), fee DECIMAL(38,10), ts TIMESTAMPTZ,
        row_id BIGINT)
"""

ROW_VALUES = [
    "symbol", "price", "size", "trades.size", "(price)", "size + 1", "price * size",
    "upper(symbol)", "size % 3 = 1", "NOT ok", "coalesce(price, size)", "amount",
    "date_trunc('hour', ts)",
    "CASE WHEN ok THEN symbol ELSE venue END", "extract(hour FROM ts)", "amount BETWEEN 1 AND 2",
]  # fmt: skip
AGGREGATED = [
    "count(*)", "count(symbol)", "count(DISTINCT symbol)", "sum(size)", "sum(DISTINCT amount)",
    "avg(price)", "min(symbol)", "max(DISTINCT ts)", "stddev(price)", "stddev_samp(size)",
    "first(ok)", "last(price * size)", "sum(price) / count(*)", "coalesce(max(size + 1), 0)",
    "sum(amount) + size", "CASE WHEN count(*) > 3 THEN symbol END", "min(price) > max(size)",
    "round(avg(amount), 2)", "sum(CASE WHEN ok THEN 1 ELSE 0 END)",
]  # fmt: skip
CONDITIONS = [
    "count(*) > 3", "sum(size) > 5 AND symbol <> 'x'", "NOT (size % 3 = 1)", "max(ok)", "ok",
    "avg(price) IS NOT NULL OR size + 1 IN (1, 2)", "min(amount) < 5",
]  # fmt: skip
WINDOWS = ["", "RANGE 1 HOUR", "ROWS 5 PARTITION BY symbol", "BEGIN ROW LAST - 9 END ROW LAST"]

maybe = st.booleans()
values = st.sampled_from(ROW_VALUES) | st.sampled_from(AGGREGATED)


@st.composite
def selects(draw: st.DrawFn) -> str:
    """Well formed, but often refused: what it selects may be neither grouped nor aggregated."""
    outputs = draw(st.lists(values, min_size=1, max_size=4))
    aliases = [f"o{n}" if draw(maybe) else "" for n in range(len(outputs))]
    named = [f"{o} AS {a}" if a else o for o, a in zip(outputs, aliases, strict=True)]
    handles = [a for a in aliases if a] + [str(n + 1) for n in range(len(outputs))]
    text = f"SELECT {'DISTINCT ' if draw(maybe) else ''}{', '.join(named)} FROM trades"
    if draw(maybe):
        text += " WHERE ok OR size > 5"
    if draw(maybe):
        usual = [output for output in outputs if output in ROW_VALUES]
        key = st.sampled_from([*usual, *handles, *ROW_VALUES])
        text += f" GROUP BY {', '.join(draw(st.lists(key, min_size=1, max_size=4)))}"
    if draw(maybe):
        text += f" HAVING {draw(st.sampled_from(CONDITIONS))}"
    if draw(maybe):
        key = st.sampled_from([*handles, *outputs]) | values
        ways = st.sampled_from(["", " ASC", " DESC", " NULLS FIRST", " DESC NULLS LAST"])
        keys = [draw(key) + draw(ways) for _ in range(draw(st.integers(1, 3)))]
        text += f" ORDER BY {', '.join(keys)}"
    if draw(maybe):
        text += f" LIMIT {draw(st.integers(0, 9))}"
    return text + (f" OFFSET {draw(st.integers(0, 9))}" if draw(maybe) else "")


def aggregates_of(query: Query) -> set[Aggregate]:
    """Without their numbers, which follow their places in the text."""
    return set(query.grouping.aggregates) if query.grouping else set()


def attempt(text: str) -> Query | None:
    try:
        return bind(text)
    except QueryError:
        return None


@given(selects(), st.sampled_from(WINDOWS))
def test_a_bound_query_survives_as_json_and_as_text(text: str, window: str) -> None:
    query = attempt(f"{text} {window}")
    if query is not None:
        assert query_from_json(json.loads(json.dumps(query_to_json(query)))) == query
        again = bind(show_query(query))
        assert show_query(again) == show_query(query)
        assert again == query or aggregates_of(again) == aggregates_of(query) != set()


@given(selects())
def test_clauses_see_what_they_may(text: str) -> None:
    query = attempt(text)
    if query is None:
        return
    visible = set(TRADES.types)
    if query.grouping is not None:
        groups = query.grouping
        assert all(set(columns_of(key)) <= visible for key in groups.keys)
        visible = {key_name(n) for n in range(len(groups.keys))}
        visible |= {aggregate_name(n) for n in range(len(groups.aggregates))}
    selected: list[Expression] = [output.expression for output in query.outputs]
    for expression in [*selected, query.having, *(key.expression for key in query.order_by)]:
        assert set(columns_of(expression)) <= visible
    assert not query.distinct or all(key.expression in selected for key in query.order_by)
    assert query.grouping is not None or query.having == TRUE


@given(selects())
def test_differential_duckdb_binds_what_we_bind(text: str) -> None:
    """We are never more lenient than DuckDB about what is grouped, selected and named."""
    if attempt(text) is not None:
        with duckdb.connect() as connection:
            connection.execute(DUCKDB)
            connection.execute(f"EXPLAIN {text}")


@pytest.mark.parametrize(
    ("aggregate", "type_"),
    [
        ("count(*)", "BIGINT"),
        ("count(symbol)", "BIGINT"),
        ("count(DISTINCT at)", "BIGINT"),
        ("sum(size)", "BIGINT"),
        ("sum(price)", "DOUBLE"),
        ("sum(amount)", "DECIMAL(38,2)"),
        ("sum(fee)", "DECIMAL(38,10)"),
        ("sum(1.5)", "DOUBLE"),
        ("avg(size)", "DOUBLE"),
        ("avg(price)", "DOUBLE"),
        ("avg(amount)", "DECIMAL(38,6)"),
        ("avg(fee)", "DECIMAL(38,10)"),
        ("stddev(size)", "DOUBLE"),
        ("stddev_samp(amount)", "DOUBLE"),
        *((f"{name}({column})", str(TRADES.types[column]))
          for name in ("min", "max", "first", "last")
          for column in ("symbol", "price", "size", "at", "day", "ok", "amount", "fee")),
        ("sum(size) / count(*)", "DOUBLE"),
        ("sum(amount) / count(*)", "DECIMAL(38,6)"),
        ("max(price) - min(price)", "DOUBLE"),
    ],
)  # fmt: skip
def test_the_type_of(aggregate: str, type_: str) -> None:
    assert str(bind(f"SELECT {aggregate} AS x FROM trades").columns[0].type) == type_


def test_every_aggregate_can_be_written() -> None:
    text = ", ".join(
        f"{name}(size{', 0.9' if name == 'percentile' else ''})" for name in AGGREGATES
    )
    grouping = bind(f"SELECT {text}, count(*) FROM trades").grouping
    assert grouping is not None
    assert {aggregate.function for aggregate in grouping.aggregates} == set(Function)


def test_equal_aggregates_are_one() -> None:
    query = bind(
        "SELECT sum(size), sum( trades.size ), 1 + sum(size) FROM trades HAVING sum(size) > 1"
    )
    assert query.grouping is not None and len(query.grouping.aggregates) == 1


def test_nulls_come_last_unless_the_order_is_turned_round() -> None:
    price = ColumnRef("price", DOUBLE)
    text = "SELECT symbol FROM trades ORDER BY price {}"
    for written, descending, nulls_first in (
        ("", False, False),
        ("ASC", False, False),
        ("DESC", True, True),
        ("NULLS FIRST", False, True),
        ("DESC NULLS LAST", True, False),
    ):
        key = SortKey(price, descending, nulls_first)
        assert bind(text.format(written)).order_by == (key,)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("price * :p AS x FROM trades ORDER BY price * :p", ""),
        ("size + :p AS x, count(*) FROM trades GROUP BY size + :p", ""),
        (
            "size + :p AS x, sum(size * :p) FROM trades GROUP BY x",
            "size + 2 AS x, sum(size * 2) FROM trades GROUP BY 1",
        ),
        ("sum(size) + :p AS x FROM trades HAVING count(*) > :p", ""),
        ("symbol FROM trades WHERE size > :p LIMIT :p OFFSET :p RANGE 1 DAY", ""),
        (
            "DISTINCT size % :p AS x FROM trades ORDER BY x DESC LIMIT :p",
            "DISTINCT size % 2 AS x FROM trades ORDER BY size % 2 DESC LIMIT 2",
        ),
        ("first(CASE WHEN size = :p THEN symbol END) FROM trades", ""),
    ],
)
def test_filled_is_the_same_as_written(text: str, written: str) -> None:
    text, written = f"SELECT {text}", f"SELECT {written or text.replace(':p', '2')}"
    template = prepare(text, lookup, {"p": BIGINT})
    assert template.fill({"p": 2}) == bind(written) == bind(text, p=2)
    assert template.fill({"p": 3}) != bind(written)
    assert template.columns == bind(written).columns


@pytest.mark.parametrize("word", ["LIMIT", "OFFSET"])
def test_a_limit_takes_whole_numbers_only(word: str) -> None:
    text = f"SELECT symbol FROM trades {word} :n"
    for value in (-1, None, 1.5, "5", True, Decimal(5)):
        with pytest.raises(QueryError) as caught:
            bind(text, n=value)
        assert caught.value.reason in ("BAD_VALUE", "TYPE_MISMATCH") and caught.value.line == 1
    types: dict[str, Type | None] = {"n": BIGINT}
    template = prepare(text, lookup, types)
    with pytest.raises(QueryError, match=f"{word} takes a whole number from 0, not -1"):
        template.fill({"n": -1})
    assert template.fill({"n": 0}) == bind(f"SELECT symbol FROM trades {word} 0")


def test_a_parameter_is_no_position() -> None:
    for clause in ("GROUP BY :p", "ORDER BY :p"):
        with pytest.raises(QueryError, match="not a constant"):
            bind(f"SELECT symbol FROM trades {clause}", p=1)


def test_a_misspelled_stream_is_met_with_the_nearest() -> None:
    def names() -> list[str]:
        return ["quotes", "trades"]

    with pytest.raises(UnknownStream) as caught:
        bind_query("SELECT * FROM traids", lookup, names=names)
    assert caught.value.hint == "did you mean trades?"
    with pytest.raises(UnknownStream, match="there is no stream") as caught:
        bind_query("SELECT * FROM weather", lookup, names=names)
    assert "CREATE STREAM" in caught.value.hint


def test_grouping_and_order_are_not_part_of_the_predicate() -> None:
    grouped = bind(
        "SELECT symbol, count(*) FROM trades WHERE ok GROUP BY symbol ORDER BY 2 LIMIT 3"
    )
    assert grouped.leg.predicate_key == bind("SELECT * FROM trades WHERE ok").leg.predicate_key


def test_deep_groups_are_bound_in_time() -> None:
    deep = "size" + " + 1" * 90
    query = bind(f"SELECT {deep} AS x, count(*) FROM trades GROUP BY {deep} ORDER BY {deep}")
    assert query.outputs[0].expression == ColumnRef(key_name(0), BIGINT)


SIMPLIFIED = [
    "SELECT count(*) AS n FROM trades GROUP BY {}",
    "SELECT {} AS x, count(*) AS n FROM trades GROUP BY {}",
    "SELECT {} AS x, count(*) AS n FROM trades GROUP BY x HAVING NOT ({}) ORDER BY {}",
    "SELECT symbol FROM trades ORDER BY {}, NOT ({})",
    "SELECT DISTINCT {} AS x FROM trades ORDER BY {}",
    "SELECT symbol, {} AS x FROM trades GROUP BY symbol",
    "SELECT symbol, count(*) AS n FROM trades GROUP BY symbol ORDER BY count(*) > 3 AND {}",
    "SELECT sum(size) AS n FROM trades HAVING max(size) > 3 AND {}",
]


@pytest.mark.parametrize("text", SIMPLIFIED)
@pytest.mark.parametrize("inner", ["size > 3", "NOT ok", "symbol IS NULL", "size + 1 IN (1, 2)"])
def test_a_text_is_taken_whatever_of_it_can_be_simplified(text: str, inner: str) -> None:
    """`size > 3 AND FALSE` is no constant, though it is bound to one."""
    accepted = {
        word: attempt(text.replace("{}", f"({inner} {word})")) is not None
        for word in ("AND TRUE", "AND FALSE", "OR TRUE", "OR FALSE", "AND NOT TRUE")
    }
    assert len(set(accepted.values())) == 1, accepted


def test_an_aggregate_is_no_constant_either() -> None:
    assert attempt("SELECT symbol FROM trades GROUP BY symbol ORDER BY count(*) > 3 AND FALSE")
    for constant in ("TRUE", "NOT TRUE", "('x')", "-1.5", "1 > 2 AND FALSE", "DATE '2026-11-16'"):
        assert attempt(f"SELECT symbol FROM trades ORDER BY {constant}") is None
        assert attempt(f"SELECT count(*) AS n FROM trades GROUP BY {constant}") is None
