"""What joins share: the composite of a query means what the query does, however it is written."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations, product

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.instants import DAY, HOUR, MINUTE, SECOND
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, TEXT, TIMESTAMP
from querystem.composites import ComposedStream, Composition, NotComposed, Shape, compose
from querystem.expressions import Op, predicate_key
from querystem.join.factors import items_of
from querystem.kernel import matches
from querystem.language import bind_query
from querystem.language.normal_form.rewrite import all_of, as_item, conjuncts, moved
from querystem.legs import Leg
from querystem.query import Query
from querystem.reach import reach_of
from querystem.sources import From, item_column
from results.window import UNBOUNDED, Bound, CountWindow, RowWindow, TimeWindow, Window
from tests.oracle.several.chance import Seeded
from tests.oracle.several.linked_joins import written_linked_join
from tests.oracle.several.worlds import world
from tests.oracle.strategies import to_batch
from tests.support.several_cases import Case

SCHEMAS = {
    "s": StreamSchema("s", (Column("a", BIGINT), Column("b", BIGINT), Column("t", TEXT))),
    "r": StreamSchema("r", (Column("a", BIGINT), Column("b", BIGINT))),
    "k": StreamSchema("k", (Column("a", BIGINT), Column("name", TEXT)), key=("a",)),
    "e": StreamSchema("e", (Column("a", BIGINT), Column("at", TIMESTAMP)), ordered_by="at"),
}
Joins = list[tuple[Case, Query, Composition]]
IDS = {"s": 7, "r": 3, "k": 5, "e": 9}


def streams(query: Query) -> list[ComposedStream]:
    return [ComposedStream(IDS[leg.stream], SCHEMAS[leg.stream]) for leg in query.legs]


def composed(text: str) -> Composition | NotComposed:
    query = bind_query(text, SCHEMAS.get)
    return compose(query, streams(query))


def composition(text: str) -> Composition:
    result = composed(text)
    assert isinstance(result, Composition), result
    return result


# ---- random joins


def random_case(number: int) -> Case:
    chance = Seeded(random.Random(f"composites/{number}"))
    drawn = world(chance)
    schemas = [stream.schema for stream in drawn.streams.values()]
    return Case(drawn, written_linked_join(chance, schemas), 0)


def case_streams(case: Case, query: Query) -> list[ComposedStream]:
    return [
        ComposedStream(10 + int(leg.stream[1:]), case.schemas[leg.stream]) for leg in query.legs
    ]


@pytest.fixture(scope="module")
def joins() -> Joins:
    """Random joins with their composites, which nearly all of them have."""
    composed_cases, count = [], 200
    for case in map(random_case, range(count)):
        query = bind_query(case.sql, case.schemas.get)
        composition_ = compose(query, case_streams(case, query))
        if isinstance(composition_, Composition):
            composed_cases.append((case, query, composition_))
    legs = [len(composition_.places) for _, _, composition_ in composed_cases]
    assert len(legs) > count // 2 and {*legs} == {2, 3, 4}
    spans = {composition_.shape.span for _, _, composition_ in composed_cases}
    assert spans == {None, HOUR, MINUTE}
    edges = [edge for _, _, composition_ in composed_cases for edge in composition_.shape.edges]
    kinds = {(len(edge.links) > 1, edge.is_range) for edge in edges}
    assert kinds == set(product([False, True], repeat=2))
    return composed_cases


def test_a_composite_and_its_predicate_mean_what_the_query_does(joins: Joins) -> None:
    for case, query, composite in joins:
        assert isinstance(query.source, From)
        items = query.source.items
        local = [as_item(item.where, n) for n, item in enumerate(items) if isinstance(item, Leg)]
        prefixes = {str(k): item_column(place, "") for k, place in enumerate(composite.places)}
        back = moved(all_of([*composite.shape.factors, composite.where]), prefixes)
        rows = beside(case, query.legs[: len(items)])
        expected = all_of([query.source.on, *local])
        assert (matches(back, rows) == matches(expected, rows)).all(), case.sql


def beside(case: Case, legs: Sequence[Leg]) -> pa.RecordBatch:
    """Some rows of each leg's stream, all with all."""
    streams_ = [case.world.streams[leg.stream] for leg in legs]
    batches = [
        to_batch(stream.schema, [row for row in stream.rows if row.get("_op") != "delete"][:5])
        for stream in streams_
    ]
    places = list(product(*(range(batch.num_rows) for batch in batches)))
    columns, names = [], []
    for number, batch in enumerate(batches):
        chosen = pa.array([place[number] for place in places], pa.int64())
        columns += batch.take(chosen).columns
        names += [item_column(number, name) for name in batch.schema.names]
    return pa.RecordBatch.from_arrays(columns, names=names)


def test_parts_of_an_answer_are_within_the_span(joins: Joins) -> None:
    near = 0
    for case, query, composite in joins:
        for combination in case.world.combinations(query):
            times = [combination.columns[item_column(place, "ts")] for place in composite.places]
            reach = reach_of([leg.window for leg in query.legs[: len(composite.places)]])
            assert reach is None or max(times) - min(times) <= reach
            assert (reach is None) == (composite.shape.span is None)
            near += reach is not None
    assert near


def test_a_text_with_its_legs_in_another_order_has_the_same_composite(joins: Joins) -> None:
    for case, query, composite in joins:
        for order in list(permutations(range(len(composite.places))))[:24]:
            again = compose(*reordered(case, query, order))
            assert isinstance(again, Composition)
            assert (again.shape, again.key) == (composite.shape, composite.key), case.sql
            assert Shape.read(again.shape.legs, again.shape.factors_key, composite.shape.span) == (
                composite.shape
            )


def reordered(case: Case, query: Query, order: Sequence[int]) -> tuple[Query, list[ComposedStream]]:
    """Return the query with item `order[n]` of its FROM at place n."""
    assert isinstance(query.source, From)
    prefixes = {str(old): item_column(new, "") for new, old in enumerate(order)}
    items = tuple(query.source.items[place] for place in order)
    changed = replace(query, source=From(items, moved(query.source.on, prefixes)))
    return changed, case_streams(case, changed)


def test_edges_are_the_factors_by_pairs_of_legs(joins: Joins) -> None:
    for _, _, composite in joins:
        edges = composite.shape.edges
        pairs = [edge.legs for edge in edges]
        assert len(pairs) == len(set(pairs)) and {*map(items_of, composite.shape.factors)} == {
            frozenset(pair) for pair in pairs
        }
        factors = [factor for edge in edges for factor in conjuncts(edge.condition)]
        assert Counter(map(predicate_key, factors)) == Counter(
            map(predicate_key, composite.shape.factors)
        )
        for edge in edges:
            for comparison in (part for link in edge.links for part in link.comparisons):
                assert items_of(comparison.left) == {edge.legs[0]}
                assert items_of(comparison.right) == {edge.legs[1]}
                assert edge.is_range or comparison.op is Op.EQ


# ---- sharing


def test_what_is_shared() -> None:
    first = composition(
        "SELECT s.a FROM s, r WHERE s.a = r.a AND s.b > 5 AND r.b < s.b RANGE 5 MINUTES"
    )
    second = composition("SELECT y.b FROM r x JOIN s y ON y.a = x.a WHERE y.t = 'x' RANGE 1 MINUTE")
    assert first.shape == second.shape and first.key != second.key
    assert first.shape.legs == (3, 7) and first.places == (1, 0) and second.places == (0, 1)
    assert first.shape.span == HOUR
    more = composition("SELECT s.a FROM s, r WHERE s.a = r.a AND s.b = r.b RANGE 5 MINUTES")
    assert more.shape != first.shape
    (edge,) = more.shape.edges
    assert edge.legs == (0, 1) and len(edge.links[0].comparisons) == 2


def test_queries_that_fix_a_column_of_both_legs_share_its_equality() -> None:
    text = "SELECT s.a FROM s, r WHERE s.a = r.a AND {} RANGE 1 MINUTE"
    plain = composition(text.format("s.b > 1"))
    first, second = (composition(text.format(f"s.b = {n} AND r.b = {n}")) for n in (1, 2))
    assert first.shape == second.shape != plain.shape and first.key != second.key
    both = composition("SELECT s.a FROM s, r WHERE s.a = r.a AND s.b = r.b RANGE 1 MINUTE")
    assert first.shape == both.shape
    for other in ("s.b = 1 AND r.b = 2", "s.b = 1", "s.b = 1 AND r.b > 0"):
        assert composition(text.format(other)).shape == plain.shape
    # An inequality stays what connects legs without an equality.
    assert edges_of("s.a > r.a AND s.b = 1 AND r.b = 1") == [((0, 1), 1, True)]


def test_a_self_join_is_one_composite_whichever_leg_is_first() -> None:
    first = composition("SELECT x.a FROM s x, s y WHERE x.a = y.b AND x.b > 1 RANGE 1 MINUTE")
    second = composition("SELECT x.a FROM s x, s y WHERE x.b = y.a AND y.b > 1 RANGE 1 MINUTE")
    assert (first.shape, first.key) == (second.shape, second.key)
    assert first.shape.legs == (7, 7) and first.places == second.places[::-1]
    same = composition("SELECT x.a FROM s x, s y WHERE x.a = y.a AND x.b > 1 RANGE 1 MINUTE")
    swap = composition("SELECT x.a FROM s x, s y WHERE x.a = y.a AND y.b > 1 RANGE 1 MINUTE")
    assert (same.shape, same.key) == (swap.shape, swap.key) and same.places != swap.places


def test_differences_of_times_are_equalities_too() -> None:
    text = "SELECT s.a FROM s, r WHERE {} RANGE 1 MINUTE"
    apart = "s.ts - r.ts = INTERVAL '5' SECOND"
    assert len(composition(text.format(apart)).shape.factors) == 1
    plain = composition(text.format("s.ts = r.ts"))
    near = "s.ts - r.ts < INTERVAL '5' SECOND"
    assert composition(text.format(f"s.ts = r.ts AND {near}")).shape == plain.shape


def test_many_legs_of_one_stream_keep_their_order() -> None:
    legs = ", ".join(f"s x{n}" for n in range(7))
    on = " AND ".join(f"x{n}.a = x{n + 1}.b" for n in range(6))
    composite = composition(f"SELECT x0.a FROM {legs} WHERE {on} RANGE 1 MINUTE")
    assert composite.places == tuple(range(7)) and len(composite.shape.edges) == 6


# ---- inequalities, and OR


def edges_of(where: str, source: str = "s, r") -> list[tuple[tuple[int, int], int, bool]]:
    """Return the legs of each edge, the number of its links, and whether it has an inequality."""
    composite = composition(f"SELECT s.a FROM {source} WHERE {where} RANGE 5 MINUTES")
    edges = composite.shape.edges
    spans = {composite.shape.span}
    assert spans == ({8 * MINUTE} if any(edge.is_range for edge in edges) else {HOUR})
    return [(edge.legs, len(edge.links), edge.is_range) for edge in edges]


@pytest.mark.parametrize(
    ("where", "links", "is_range"),
    [
        ("s.a > r.a", 1, True),
        ("s.a BETWEEN r.a AND r.b AND s.b > 1", 1, True),
        ("s.ts >= r.ts AND s.ts < r.ts + INTERVAL '5' SECOND", 1, True),
        ("abs(s.ts - r.ts) < INTERVAL '5' SECOND", 1, True),
        ("s.a = r.a OR s.b = r.b", 2, False),
        ("s.a IN (r.a, r.b)", 2, False),
        ("(s.a = r.a AND s.b > 3) OR (s.b = r.b AND s.a < r.a)", 2, False),
        ("s.a = r.a OR s.b < r.b", 2, True),
        # Equalities come first, then OR of equalities; inequalities beside them are no factors.
        ("s.a = r.a AND s.b < r.b", 1, False),
        ("(s.a = r.a OR s.b = r.b) AND s.b < r.b", 2, False),
    ],
)
def test_what_connects_two_legs(where: str, links: int, is_range: bool) -> None:
    assert edges_of(where) == [((0, 1), links, is_range)]


def test_one_inequality_among_three_legs() -> None:
    # Legs ascend by their stream's id: r, k, s.
    where = "s.a = r.a AND s.b > k.a AND r.b < s.b"
    assert edges_of(where, "s, r, k") == [((0, 2), 1, False), ((1, 2), 1, True)]


def test_queries_share_an_inequality_whichever_way_it_is_written() -> None:
    first = composition("SELECT s.a FROM s, r WHERE s.a > r.a AND s.a < 5 RANGE 5 MINUTES")
    second = composition("SELECT s.a FROM r, s WHERE r.a < s.a RANGE 7 MINUTES")
    assert first.shape == second.shape and first.key != second.key
    longer = composition("SELECT s.a FROM r, s WHERE r.a < s.a RANGE 9 MINUTES")
    assert longer.shape.span == 16 * MINUTE and longer.shape.span in first.shape.wider_spans


# ---- spans

AGO = Bound(1 - HOUR, True)


@pytest.mark.parametrize(
    ("windows", "reach"),
    [
        ((TimeWindow(AGO), TimeWindow(AGO)), HOUR - 1),
        ((TimeWindow(AGO), TimeWindow(Bound(0, True))), HOUR - 1),
        ((TimeWindow(AGO, None, 60 * SECOND), TimeWindow(AGO)), HOUR + 60 * SECOND - 2),
        ((TimeWindow(Bound(-DAY, True), Bound(-HOUR, True)), TimeWindow(AGO)), DAY),
        ((TimeWindow(AGO, Bound(5, False)), TimeWindow(AGO)), HOUR - 1),
        ((TimeWindow(Bound(10, False), Bound(21, False)),) * 2, 10),
        ((TimeWindow(Bound(10, False), Bound(21, False)), TimeWindow(AGO)), None),
        ((TimeWindow(Bound(10, False)), TimeWindow(AGO)), None),
        ((TimeWindow(Bound(10, False)),) * 2, None),
        ((UNBOUNDED, TimeWindow(AGO)), None),
        ((CountWindow(3), TimeWindow(AGO)), None),
        ((RowWindow(Bound(0, False), Bound(9, False)), TimeWindow(AGO)), None),
        ((TimeWindow(Bound(30, False), Bound(40, False)),
          TimeWindow(Bound(0, False), Bound(1, False))), 39),
    ],
)  # fmt: skip
def test_reach(windows: tuple[Window, ...], reach: int | None) -> None:
    assert reach_of(windows) == reach
    assert reach_of(windows[::-1]) == reach


BOUNDS = st.builds(Bound, st.integers(-12, 3), st.booleans())
WINDOWS = st.builds(
    TimeWindow,
    st.none() | BOUNDS,
    st.none() | BOUNDS,
    st.none() | st.integers(1, 4),
)


@given(st.lists(WINDOWS, min_size=2, max_size=3))
def test_no_rows_of_windows_are_further_apart_than_their_reach(windows: list[TimeWindow]) -> None:
    reach, far = reach_of(windows), 0
    for now in range(-15, 40):
        inside = [
            [ts for ts in range(-40, 60) if (low is None or low <= ts) and ts < high]
            for low, high in (window.at(now) for window in windows)
        ]
        if all(inside):
            far = max(far, *(max(a) - min(b) for a, b in permutations(inside, 2)))
    if reach is not None:
        assert far <= reach
    else:
        assert any(one.begin is None or not one.begin.relative for one in windows)


@pytest.mark.parametrize(
    ("window", "span"),
    [
        ("RANGE 1 SECOND", HOUR),
        ("RANGE 1 HOUR", HOUR),
        ("RANGE 61 MINUTES", DAY),
        ("RANGE 24 HOURS", DAY),
        ("RANGE 2 DAYS", 30 * DAY),
        ("RANGE 31 DAYS", 32 * DAY),
        ("RANGE 33 DAYS", None),
        ("DURING TODAY", DAY),
        ("DURING YESTERDAY AT TIME ZONE 'Europe/Madrid'", 27 * HOUR),
        ("DURING LAST 2 WEEKS", 30 * DAY),
        ("DURING LAST MONTH AT TIME ZONE 'Asia/Kolkata'", 32 * DAY),
        ("DURING THIS QUARTER", None),
        ("ROWS 5", None),
        ("UNBOUNDED", None),
    ],
)
def test_the_span_is_the_least_that_holds_the_windows(window: str, span: int | None) -> None:
    assert composition(f"SELECT s.a FROM s, r WHERE s.a = r.a {window}").shape.span == span


def test_a_keyed_leg_without_a_window_has_no_span() -> None:
    assert (
        composition("SELECT s.a FROM s WINDOW(RANGE 1 MINUTE), k WHERE s.a = k.a").shape.span
        is None
    )
    assert composition("SELECT s.a FROM s, k WHERE s.a = k.a RANGE 1 MINUTE").shape.span == HOUR


# ---- joins that have none


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT s.a FROM s RANGE 1 MINUTE", "it joins no streams"),
        ("SELECT s.a FROM s, r RANGE 1 MINUTE", "no comparison joins s and r"),
        ("SELECT s.a FROM s, r WHERE s.a <> r.a RANGE 1 MINUTE", "no comparison joins s and r"),
        ("SELECT s.a FROM s, k WHERE s.t < k.name RANGE 1 MINUTE", "no comparison joins s and k"),
        ("SELECT s.a FROM s, r WHERE s.a < r.a OR s.b > 3 RANGE 1 MINUTE",
         "no comparison joins s and r"),
        ("SELECT s.a FROM s, r WHERE s.a < r.a ROWS 5",
         "an inequality joins rows, and windows are long or not bounded in time"),
        ("SELECT s.a FROM s, r WHERE s.a < r.a",
         "an inequality joins rows, and windows are long or not bounded in time"),
        ("SELECT s.a FROM s, r WHERE s.a < r.a RANGE 50 DAYS",
         "an inequality joins rows, and windows are long or not bounded in time"),
        ("SELECT s.a FROM s, r WHERE s.a + r.a = 5 RANGE 1 MINUTE", "no comparison joins s and r"),
        ("SELECT x.a FROM s x, r, s y WHERE x.a = r.a RANGE 1 MINUTE",
         "no comparison joins s#1 and s#2"),
        ("SELECT x.a FROM s x, r, s y WHERE x.a = r.a AND x.a + r.a = y.a RANGE 1 MINUTE",
         "no comparison joins s#1 and s#2"),
        ("SELECT s.a FROM s LEFT JOIN r ON s.a = r.a RANGE 1 MINUTE",
         "a LEFT JOIN also has rows without a partner"),
        ("SELECT s.a FROM s, (SELECT DISTINCT a FROM r) AS q WHERE s.a = q.a RANGE 1 MINUTE",
         "it joins rows of a query, not of a stream"),
        ("SELECT s.a FROM s, r WHERE s.a = r.a UNION SELECT r.a FROM r RANGE 1 MINUTE",
         "joins of queries inside the query are not found ahead of time"),
        ("SELECT s.a FROM s WINDOW(RANGE 1 MINUTE), k AS OF s.ts WHERE s.a = k.a",
         "rows of k are looked up as of others"),
        ("SELECT s.a FROM s WINDOW(RANGE 1 MINUTE REFRESH EVERY 5 SECONDS), r WINDOW(RANGE 1 HOUR)"
         " WHERE s.a = r.a",
         "rows of s change at refresh points of its own"),
        ("SELECT s.a FROM s WINDOW(RANGE 1 MINUTE), e WINDOW(UNBOUNDED) WHERE s.a = e.a",
         "e has event time and s arrival time"),
    ],
)  # fmt: skip
def test_why_a_join_has_no_composite(text: str, reason: str) -> None:
    assert composed(text) == NotComposed(reason)


def test_queries_inside_expressions_apply_to_the_combinations() -> None:
    text = "SELECT s.a FROM s, r WHERE s.a = r.a AND s.b > (SELECT max(k.a) FROM k) RANGE 1 MINUTE"
    plain = "SELECT s.a FROM s, r WHERE s.a = r.a RANGE 1 MINUTE"
    assert composition(text).shape == composition(plain).shape
    assert composition(text).key == composition(plain).key


@pytest.mark.parametrize("tail", ["REFRESH EVERY 5 SECONDS", "REFRESH ON r WHERE b = 1"])
def test_a_query_that_is_refreshed_as_a_whole_has_a_composite(tail: str) -> None:
    composition(f"SELECT s.a FROM s, r WHERE s.a = r.a RANGE 1 MINUTE {tail}")
