"""The oracle itself, by cases worked by hand: NOW over several streams, windows of each, order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, TIMESTAMP
from querystem.expressions import TRUE, ColumnRef
from querystem.legs import Leg
from querystem.query import Item, Output, Query
from querystem.sources import From, SetOperation, SetOperator, item_column
from results.window import UNBOUNDED, Bound, CountWindow, RowWindow, TimeWindow, Window
from tests.oracle.clocks import Known, MixedClocks
from tests.oracle.trees import World

LAST_FIVE = TimeWindow(Bound(-4, True))
# BEGIN at a fixed instant END NOW: rows come and never leave, as with UNBOUNDED.
SINCE = TimeWindow(Bound(0, False))
FIXED = TimeWindow(Bound(0, False), Bound(100, False))


def stream_of(
    name: str, moments: list[int], reached: int | None, key: bool = False, **more: Any
) -> Known:
    """An event-time stream whose rows have the numbers 0, 1, … in `n`, and `k` 0."""
    columns = (Column("n", BIGINT), Column("k", BIGINT), Column("at", TIMESTAMP))
    schema = StreamSchema(name, columns, "at", key=("k",) if key else (), **more)
    rows = [
        {"n": place, "k": 0, "at": ts, "ts": ts, "row_id": place, "_op": "row"}
        for place, ts in enumerate(moments)
    ]
    return Known(schema, rows, reached)


def by_clock(name: str, moments: list[int], clock: int) -> Known:
    stream = stream_of(name, moments, clock)
    return replace(stream, schema=replace(stream.schema, ordered_by=None))


def leg(name: str, window: Window = UNBOUNDED) -> Leg:
    return Leg(name, TRUE, window)


def numbers(*items: Item) -> Query:
    """The `n` of each item of a FROM."""
    columns = [ColumnRef(item_column(place, "n"), BIGINT) for place in range(len(items))]
    outputs = tuple(Output(f"n{place}", column) for place, column in enumerate(columns))
    return Query(From(items), outputs)


def inner(name: str, window: Window = UNBOUNDED, over: Window | None = None) -> Query:
    return Query(leg(name, window), (Output("n", ColumnRef("n", BIGINT)),), over=over)


def world(*streams: Known, clock: int = 0) -> World:
    return World({stream.schema.name: stream for stream in streams}, clock)


A, B = stream_of("a", [0, 3, 9], 9), stream_of("b", [2, 4], 5)


@pytest.mark.parametrize(
    ("windows", "now"),
    [
        ((LAST_FIVE, LAST_FIVE), 5),
        ((LAST_FIVE, UNBOUNDED), 9),
        ((UNBOUNDED, LAST_FIVE), 5),
        ((UNBOUNDED, UNBOUNDED), 9),
        ((FIXED, RowWindow(Bound(0, False), Bound(1, True))), 9),
        ((FIXED, CountWindow(2)), 5),
        ((FIXED, SINCE), 9),
    ],
)
def test_now_is_the_least_of_those_that_depend_on_it(
    windows: tuple[Window, Window], now: int
) -> None:
    query = numbers(leg("a", windows[0]), leg("b", windows[1]))
    assert world(A, B).now(query) == now


def test_rows_after_now_wait() -> None:
    query = numbers(leg("a"), leg("b", LAST_FIVE))
    assert world(A, B).answer(query) == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_a_window_over_a_query_waits_for_the_streams_below() -> None:
    query = numbers(leg("a"), inner("b", over=LAST_FIVE))
    assert world(A, B).now(query) == 5
    assert world(A, B).now(numbers(leg("a"), inner("b"))) == 9


def test_a_stream_without_now_empties_what_waits_for_it() -> None:
    silent = stream_of("b", [], None)
    waiting = numbers(leg("a"), leg("b", LAST_FIVE))
    assert world(A, silent).now(waiting) is None
    union = SetOperation(SetOperator.UNION_ALL, (inner("a"), inner("b", LAST_FIVE)))
    assert world(A, silent).answer(numbers(union)) == []
    relaxed = SetOperation(SetOperator.UNION_ALL, (inner("a"), inner("b")))
    assert world(A, silent).answer(numbers(relaxed)) == [(0,), (1,), (2,)]
    assert replace(world(A, silent), as_of=4).answer(numbers(union)) == [(0,), (1,)]


def test_two_kinds_of_time() -> None:
    """Streams of one kind may depend on NOW, and the others are taken at their own."""
    streams = world(A, by_clock("c", [1, 50, 70], 80), clock=80)
    assert streams.now(numbers(leg("a", LAST_FIVE), leg("c"))) == 9
    assert streams.answer(numbers(leg("a", LAST_FIVE), leg("c"))) == [(2, 0), (2, 1), (2, 2)]
    assert streams.now(numbers(leg("a"), leg("c", TimeWindow(Bound(-20, True))))) == 80
    with pytest.raises(MixedClocks):
        streams.now(numbers(leg("a", LAST_FIVE), leg("c", LAST_FIVE)))


def test_order_is_by_the_greatest_ts_then_by_row_ids_in_the_order_of_from() -> None:
    first, second = stream_of("a", [1, 1, 0], 9), stream_of("b", [1, 0], 9)
    answer = world(first, second).answer(numbers(leg("a"), leg("b")))
    assert answer == [(2, 1), (0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]


def test_order_of_union_all_is_by_ts_then_branch() -> None:
    union = SetOperation(SetOperator.UNION_ALL, (inner("b"), inner("a")))
    first, second = stream_of("a", [1, 0], 9), stream_of("b", [1, 1], 9)
    combined = world(first, second).combinations(numbers(union))
    assert [combination.parts for combination in combined] == [(1, 1), (0, 0), (0, 1), (1, 0)]


def test_retention_counts_from_the_stream_s_own_now() -> None:
    first, second = stream_of("a", [0, 3, 9], 9, retain=7), stream_of("b", [2, 4], 4)
    query = numbers(leg("a"), leg("b", LAST_FIVE))
    assert {row[0] for row in world(first, second).answer(query)} == {1}


def test_a_keyed_stream_shows_what_is_current() -> None:
    names = stream_of("b", [0, 4], 4, key=True)
    query = numbers(leg("a", LAST_FIVE), leg("b"))
    assert world(A, names).answer(query) == [(2, 1)]
    assert replace(world(A, names), as_of=3).answer(query) == [(0, 0), (1, 0)]


def test_a_window_over_a_join_goes_by_the_greatest_ts() -> None:
    pairs = Query(
        From((leg("a"), leg("b"))),
        (Output("n", ColumnRef(item_column(1, "n"), BIGINT)),),
        over=TimeWindow(Bound(-6, True)),
    )
    assert world(A, B).now(numbers(pairs)) == 5
    late = replace(pairs, over=TimeWindow(Bound(-1, True)))
    assert world(A, B).answer(numbers(pairs)) == [(0,), (0,), (1,), (1,)]
    assert world(A, B).answer(numbers(late)) == [(1,), (1,)]
