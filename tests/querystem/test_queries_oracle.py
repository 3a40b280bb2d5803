"""Windows, aggregates, DISTINCT, ORDER BY and LIMIT equal the oracle, for random queries."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from querystem.aggregate import finish, merge, partial
from querystem.query import Query
from results.window import CountWindow, Window
from tests.evaluation import evaluate_parts
from tests.oracle import naive_answer
from tests.oracle.comparing import difference
from tests.oracle.keyed import Keyed
from tests.oracle.queries import LAST_TS, WINDOW_KINDS, groupings, queries, timelines, windows_of
from tests.oracle.strategies import Row, schemas, to_batch

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def _without_row_slide(window: Window) -> Window:
    return replace(window, slide=None) if isinstance(window, CountWindow) else window


def check(
    query: Query,
    parts: list[Any],
    found: list[Row],
    now: int,
    retain: Any,
    keyed: Keyed | None = None,
) -> None:
    got = evaluate_parts(query, parts, now, retain, keyed)
    got.validate(full=True)
    rows = [tuple(row.values()) for row in got.to_pylist()]
    expected = naive_answer(query, found, now, retain, keyed)
    assert not difference(expected, rows), (query, now)


@pytest.mark.parametrize("kind", WINDOW_KINDS)
@settings(max_examples=settings().max_examples // 2, suppress_health_check=_SLOW)
@given(data=st.data())
def test_oracle_answers(kind: str, data: DataObject) -> None:
    """Each query through several windows and instants: 105 cases an example."""
    schema = data.draw(schemas())
    found = data.draw(timelines(schema))
    batch = to_batch(schema, found)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(found)), max_size=3)))
    edges = [0, *cuts, len(found)]
    parts = [batch.slice(a, b - a) for a, b in zip(edges, edges[1:], strict=False)]
    retain = data.draw(st.one_of(st.none(), st.integers(1, LAST_TS)))
    chosen = data.draw(st.lists(windows_of(kind, schema), min_size=7, max_size=7))
    instants = data.draw(st.lists(st.integers(-1, LAST_TS + 2), min_size=5, max_size=5))
    for query in data.draw(st.lists(queries(schema), min_size=3, max_size=3)):
        for window, now in itertools.product(chosen, instants):
            check(replace(query, window=window), parts, found, now, retain)


@pytest.mark.parametrize("kind", WINDOW_KINDS)
@settings(max_examples=settings().max_examples // 8, suppress_health_check=_SLOW)
@given(data=st.data())
def test_oracle_answers_over_keyed_streams(kind: str, data: DataObject) -> None:
    """Each query through several windows, instants and positions: 60 cases an example."""
    schema = data.draw(schemas())
    names = [column.name for column in schema.columns]
    key = tuple(data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)))
    made = [row for row in data.draw(timelines(schema)) if all(row[n] is not None for n in key)]
    ops = [data.draw(st.sampled_from(("row", "row", "delete"))) for _ in made]
    found = [{**row, "row_id": n, "_op": ops[n]} for n, row in enumerate(made)]
    batch = to_batch(schema, found).append_column("_op", pa.array(ops, pa.string()))
    cut = data.draw(st.integers(0, len(found)))
    parts = [batch.slice(0, cut), batch.slice(cut)]
    retain = data.draw(st.one_of(st.none(), st.integers(1, LAST_TS)))
    kinds = windows_of(kind, schema).map(_without_row_slide)
    chosen = data.draw(st.lists(kinds, min_size=5, max_size=5))
    instants = data.draw(st.lists(st.integers(-1, LAST_TS + 2), min_size=4, max_size=4))
    highs = data.draw(st.lists(st.none() | st.integers(0, len(found)), min_size=3, max_size=3))
    query = data.draw(queries(schema))
    for window, now, high in itertools.product(chosen, instants, highs):
        keyed = Keyed(key, high, None if high is None else LAST_TS)
        check(replace(query, window=window), parts, found, now, retain, keyed)


@settings(max_examples=3 * settings().max_examples, suppress_health_check=_SLOW)
@given(st.data())
def test_oracle_merging_is_associative(data: DataObject) -> None:
    """However rows are batched and partials nested, the finished groups have the same bytes."""
    schema = data.draw(schemas())
    found = data.draw(timelines(schema, 40))
    grouping = data.draw(groupings(schema))
    batch = to_batch(schema, found)
    whole = finish(grouping, partial(grouping, batch))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(found)), min_size=1, max_size=5)))
    edges = [0, *cuts, len(found)]
    pieces = [
        partial(grouping, batch.slice(a, b - a)) for a, b in zip(edges, edges[1:], strict=False)
    ]
    pieces = data.draw(st.permutations(pieces))
    nested = pieces[0]
    for piece in pieces[1:]:
        nested = merge([piece, nested])
    for other in (merge(pieces), nested):
        assert repr(finish(grouping, other).to_pylist()) == repr(whole.to_pylist())
