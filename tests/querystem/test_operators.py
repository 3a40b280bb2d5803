"""The operators of queries over several streams, as a person is shown them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from datastem.instants import HOUR
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN, DOUBLE, TEXT, TIMESTAMP
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Literal, Op
from querystem.grouping import Aggregate, Function, Grouping, aggregate_name, key_name
from querystem.legs import AsOf, Leg
from querystem.operators import Operator, operators_of
from querystem.query import Output, Query, SortKey
from querystem.sources import (
    From,
    LeftJoin,
    SetOperation,
    SetOperator,
    SubQuery,
    SubQueryKind,
    subquery_column,
)
from results.window import UNBOUNDED, Bound, TimeWindow

RECENT = TimeWindow(Bound(1 - HOUR, True), None)
SCHEMAS = {
    "trades": StreamSchema("trades", (Column("symbol", TEXT), Column("price", DOUBLE))),
    "names": StreamSchema(
        "names", (Column("symbol", TEXT), Column("order", TEXT)), key=("symbol",)
    ),
}
DEAR = Call(Op.GT, (ColumnRef("price", DOUBLE), Literal(100.0, DOUBLE)), BOOLEAN)
TRADES = Leg("trades", DEAR, RECENT)
NAMES = Leg("names", TRUE, UNBOUNDED)


def equal(lhs: str, rhs: str) -> Expression:
    return Call(Op.EQ, (ColumnRef(lhs, TEXT), ColumnRef(rhs, TEXT)), BOOLEAN)


def lines(operator: Operator, depth: int = 0) -> Iterator[str]:
    place = "" if operator.leg is None else f"{operator.leg} "
    yield f"{'  ' * depth}{place}{operator.name}|{operator.detail}|{operator.pattern.name}"
    for input_ in operator.inputs:
        yield from lines(input_, depth + 1)


def tree_lines(query: Query) -> list[str]:
    return list(lines(operators_of(query, SCHEMAS.__getitem__)))


def test_a_join_with_a_keyed_stream_is_strict() -> None:
    outputs = (Output("name", ColumnRef("1.order", TEXT)),)
    query = Query(From((TRADES, NAMES), equal("0.symbol", "1.symbol")), outputs)
    assert tree_lines(query) == [
        "select|name|STR",
        "  join|trades.symbol = names.symbol|STR",
        "    0 stream|trades WINDOW(RANGE 1 HOUR) WHERE price > 100.0|WKS",
        "    1 stream|names WINDOW(UNBOUNDED)|STR",
    ]


def test_every_clause_is_an_operator() -> None:
    grouping = Grouping(
        (ColumnRef("0.symbol", TEXT),),
        (
            Aggregate(Function.COUNT_ROWS, None, False, BIGINT),
            Aggregate(Function.SUM, ColumnRef("1.price", DOUBLE), True, DOUBLE),
        ),
    )
    many = Call(Op.GE, (ColumnRef(aggregate_name(0), BIGINT), Literal(2, BIGINT)), BOOLEAN)
    key = ColumnRef(key_name(0), TEXT)
    query = Query(
        From((TRADES, replace(TRADES, where=TRUE)), equal("0.symbol", "1.symbol")),
        (Output("symbol", key), Output("n", ColumnRef(aggregate_name(0), BIGINT))),
        grouping,
        many,
        distinct=True,
        order_by=(
            SortKey(ColumnRef(aggregate_name(1), DOUBLE), True, False),
            SortKey(key, False, False),
        ),
        limit=3,
        offset=1,
    )
    assert tree_lines(query) == [
        "limit|3 OFFSET 1|STR",
        "  sort|sum(DISTINCT trades#2.price) DESC, trades#1.symbol|WK",
        "    distinct||WK",
        "      select|symbol, n|WK",
        "        having|count(*) >= 2|WK",
        "          group|trades#1.symbol: count(*), sum(DISTINCT trades#2.price)|WK",
        "            join|trades#1.symbol = trades#2.symbol|WK",
        "              0 stream|trades WINDOW(RANGE 1 HOUR) WHERE price > 100.0|WKS",
        "              1 stream|trades WINDOW(RANGE 1 HOUR)|WKS",
    ]


def test_union_all_and_a_window_over_a_query() -> None:
    symbol = (Output("symbol", ColumnRef("symbol", TEXT)),)
    branches = tuple(Query(leg, symbol) for leg in (TRADES, replace(TRADES, where=TRUE)))
    union = SetOperation(SetOperator.UNION_ALL, branches)
    windowed = Query(NAMES, (Output("order", ColumnRef("order", TEXT)),), over=RECENT)
    outputs = (Output("symbol", ColumnRef("0.symbol", TEXT)),)
    assert tree_lines(Query(From((union, windowed)), outputs)) == [
        "select|symbol|STR",
        "  join||STR",
        "    union all||WKS",
        "      select|symbol|WKS",
        "        0 stream|trades WINDOW(RANGE 1 HOUR) WHERE price > 100.0|WKS",
        "      select|symbol|WKS",
        "        1 stream|trades WINDOW(RANGE 1 HOUR)|WKS",
        "    window|RANGE 1 HOUR|STR",
        "      select|order|STR",
        "        2 stream|names WINDOW(UNBOUNDED)|STR",
    ]
    assert tree_lines(Query(From((union,), equal("0.symbol", "0.symbol")), outputs))[1] == (
        "  where|query.symbol = query.symbol|WKS"
    )


def test_a_left_join_and_queries_inside_expressions() -> None:
    left_join = LeftJoin(From((TRADES,)), NAMES, equal("0.0.symbol", "1.symbol"))
    inner = Query(TRADES, (Output("symbol", ColumnRef("symbol", TEXT)),))
    exists = SubQuery(SubQueryKind.EXISTS, inner, equal("0.0.0.0.symbol", "1.symbol"))
    any_ = SubQuery(SubQueryKind.ANY, inner, TRUE, ColumnRef("0.0.1.order", TEXT), Op.EQ)
    both = [ColumnRef(subquery_column(number), BOOLEAN) for number in range(2)]
    outputs = (Output("order", ColumnRef("0.1.order", TEXT)),)
    source = From((left_join,), TRUE, (exists, any_), Call(Op.OR, tuple(both), BOOLEAN))
    assert tree_lines(Query(source, outputs)) == [
        "select|order|STR",
        "  where|query 1 OR query 2|STR",
        '    any|query 2: names."order" = symbol|STR',
        "      exists|query 1: trades#1.symbol = query.symbol|STR",
        "        left join|trades#1.symbol = names.symbol|STR",
        "          0 stream|trades WINDOW(RANGE 1 HOUR) WHERE price > 100.0|WKS",
        "          1 stream|names WINDOW(UNBOUNDED)|STR",
        "        select|symbol|WKS",
        "          2 stream|trades WINDOW(RANGE 1 HOUR) WHERE price > 100.0|WKS",
        "      select|symbol|WKS",
        "        3 stream|trades WINDOW(RANGE 1 HOUR) WHERE price > 100.0|WKS",
    ]


def test_rows_that_are_looked_up() -> None:
    as_of = AsOf(ColumnRef("0.ts", TIMESTAMP), (ColumnRef("0.symbol", TEXT),))
    as_known = replace(as_of, row=ColumnRef("0.row_id", BIGINT), stream="trades")
    outputs = (Output("order", ColumnRef("1.order", TEXT)),)
    for lookup, text in [(as_of, "AS OF trades.ts"), (as_known, "AS KNOWN AT trades.row_id")]:
        source = From((TRADES, replace(NAMES, as_of=lookup)))
        assert tree_lines(Query(source, outputs))[3].startswith(f"    1 look up|names {text}|")
