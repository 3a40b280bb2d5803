"""Windows, aggregates, DISTINCT, ORDER BY and LIMIT equal the oracle, for random queries."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from querystem.aggregate import finish, merge, partial
from querystem.evaluate import answer_of, matching_rows, rows_in_window
from querystem.query import Query
from results.window import CountWindow, Window
from tests.oracle import naive_answer
from tests.oracle.comparing import Values, difference
from tests.oracle.keyed import Keyed
from tests.oracle.queries import LAST_TS, WINDOW_KINDS, groupings, queries, timelines, windows_of
from tests.oracle.strategies import schemas, to_batch
from tests.support.keyed import current_rows_in_window

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def _without_row_slide(window: Window) -> Window:
    return replace(window, slide=None) if isinstance(window, CountWindow) else window


class Answers:
    """What a query answers over each choice of rows, computed once."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], list[Values]] = {}

    def of(self, query: Query, chosen: list[pa.RecordBatch]) -> list[Values]:
        place = tuple(part.column("row_id").to_numpy().tobytes() for part in chosen)
        if place not in self._known:
            got = answer_of(query, matching_rows(query.leg.where, chosen))
            got.validate(full=True)
            self._known[place] = [tuple(row.values()) for row in got.to_pylist()]
        return self._known[place]


@pytest.mark.parametrize("kind", WINDOW_KINDS)
@settings(max_examples=settings().max_examples // 2, suppress_health_check=_SLOW)
@given(data=st.data())
def test_oracle_answers(kind: str, data: DataObject) -> None:
    """Each query through several windows and instants: 105 cases an example."""
    schema = data.draw(schemas())
    drawn_rows = data.draw(timelines(schema))
    batch = to_batch(schema, drawn_rows)
    cut = data.draw(st.integers(0, len(drawn_rows)))
    parts = [batch.slice(0, cut), batch.slice(cut)]
    retain = data.draw(st.one_of(st.none(), st.integers(1, LAST_TS)))
    chosen = data.draw(st.lists(windows_of(kind, schema), min_size=7, max_size=7))
    instants = data.draw(st.lists(st.integers(-1, LAST_TS + 2), min_size=5, max_size=5))
    for drawn in data.draw(st.lists(queries(schema), min_size=3, max_size=3)):
        answers = Answers()
        for window, now in itertools.product(chosen, instants):
            query = drawn.with_window(window)
            oldest = None if retain is None else now - retain + 1
            held = rows_in_window(window, parts, now, oldest, len(drawn_rows))
            got = answers.of(query, held)
            assert not difference(naive_answer(query, drawn_rows, now, retain), got), (query, now)


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
    drawn_rows = [{**row, "row_id": n, "_op": ops[n]} for n, row in enumerate(made)]
    batch = to_batch(schema, drawn_rows).append_column("_op", pa.array(ops, pa.string()))
    cut = data.draw(st.integers(0, len(drawn_rows)))
    parts = [batch.slice(0, cut), batch.slice(cut)]
    retain = data.draw(st.one_of(st.none(), st.integers(1, LAST_TS)))
    kinds = windows_of(kind, schema).map(_without_row_slide)
    chosen = data.draw(st.lists(kinds, min_size=5, max_size=5))
    instants = data.draw(st.lists(st.integers(-1, LAST_TS + 2), min_size=4, max_size=4))
    highs = data.draw(st.lists(st.none() | st.integers(0, len(drawn_rows)), min_size=3, max_size=3))
    drawn, answers = data.draw(queries(schema)), Answers()
    for window, now, high in itertools.product(chosen, instants, highs):
        keyed = Keyed(key, high, None if high is None else LAST_TS)
        query = drawn.with_window(window)
        got = answers.of(query, current_rows_in_window(window, parts, now, retain, keyed))
        assert not difference(naive_answer(query, drawn_rows, now, retain, keyed), got), (
            query,
            now,
        )


@settings(max_examples=3 * settings().max_examples, suppress_health_check=_SLOW)
@given(st.data())
def test_oracle_merging_is_associative(data: DataObject) -> None:
    """However rows are batched and partials nested, the finished groups have the same bytes."""
    schema = data.draw(schemas())
    drawn_rows = data.draw(timelines(schema, 40))
    grouping = data.draw(groupings(schema))
    batch = to_batch(schema, drawn_rows)
    whole = finish(grouping, partial(grouping, batch))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(drawn_rows)), min_size=1, max_size=5)))
    edges = [0, *cuts, len(drawn_rows)]
    pieces = [
        partial(grouping, batch.slice(a, b - a)) for a, b in zip(edges, edges[1:], strict=False)
    ]
    pieces = data.draw(st.permutations(pieces))
    nested = pieces[0]
    for piece in pieces[1:]:
        nested = merge([piece, nested])
    for merged in (merge(pieces), nested):
        assert repr(finish(grouping, merged).to_pylist()) == repr(whole.to_pylist())
