"""Ids and sort keys of an answer's rows: sorted by them, the rows are the answer."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, TEXT
from querystem.base_rows import base_query
from querystem.evaluate import arrange, matching_rows, rows_in_window, rows_or_groups
from querystem.expressions import TRUE
from querystem.identity import identified, slides
from querystem.legs import Leg
from querystem.patterns import Pattern, pattern_of
from querystem.query import Query
from results.window import UNBOUNDED, Bound, CountWindow, RowWindow, TimeWindow
from tests.oracle.queries import queries, timelines
from tests.oracle.strategies import schemas, to_batch


@given(st.data())
def test_sorted_by_their_keys_the_rows_are_the_answer(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    batch = to_batch(schema, data.draw(timelines(schema)))
    query = data.draw(queries(schema))
    chosen = rows_in_window(query.leg.window, [batch], 30, None, batch.num_rows)
    rows = rows_or_groups(query, matching_rows(query.leg.where, chosen))
    answer = identified(query, rows)
    assert answer.unique and (answer.ids >= 0).all()
    keys = answer.sort_keys.to_pylist()
    order = pa.array(sorted(range(len(keys)), key=keys.__getitem__), pa.int64())
    assert len(set(keys)) == len(keys)
    assert repr(answer.outputs.take(order).to_pylist()) == repr(arrange(query, rows).to_pylist())


@given(st.data())
def test_base_rows_have_what_the_query_reads(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    query = data.draw(queries(schema))
    base = base_query(query, [schema])
    assert slides(base) and (base.leg.where, base.leg.window) == (query.leg.where, query.leg.window)
    assert base.outputs[0].name == "ts"


SCHEMA = StreamSchema("s", (Column("a", BIGINT), Column("b", TEXT)))
KEPT = StreamSchema("s", SCHEMA.columns, retain=100)
KEYED = StreamSchema("s", SCHEMA.columns, key=("b",))
ROWS = Query(Leg("s", TRUE, UNBOUNDED), ())
SLIDING = TimeWindow(Bound(-9, True))


def _pattern(query: Query, schema: StreamSchema) -> Pattern:
    return pattern_of(query, lambda _: schema)


def test_patterns_of_section_5_2() -> None:
    assert _pattern(ROWS, SCHEMA) is Pattern.MON
    assert _pattern(ROWS, KEPT) is Pattern.WKS
    assert _pattern(ROWS.with_window(TimeWindow(Bound(5, False))), SCHEMA) is Pattern.MON
    assert _pattern(ROWS.with_window(SLIDING), SCHEMA) is Pattern.WKS
    assert _pattern(ROWS.with_window(CountWindow(5)), SCHEMA) is Pattern.STR
    assert (
        _pattern(ROWS.with_window(RowWindow(Bound(-5, True), Bound(1, True))), SCHEMA)
        is Pattern.STR
    )
    assert _pattern(ROWS.with_window(SLIDING), KEYED) is Pattern.STR
    distinct = replace(ROWS, distinct=True)
    assert _pattern(distinct, SCHEMA) is Pattern.MON
    assert _pattern(distinct.with_window(SLIDING), SCHEMA) is Pattern.WK
    assert _pattern(distinct.with_window(CountWindow(5)), SCHEMA) is Pattern.STR
    assert _pattern(replace(ROWS, limit=3), SCHEMA) is Pattern.STR
