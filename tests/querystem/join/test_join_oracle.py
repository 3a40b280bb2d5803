"""The join equals nested loops, for random conditions over random items."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from querystem.expressions import Expression
from querystem.join import equality, join, methods, ranges, semi_join, sides
from tests.querystem.join.support import (
    Columns,
    Rows,
    batch,
    item_columns,
    item_rows,
    join_conditions,
    nested_loops,
    places_of,
)

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@contextmanager
def small_pieces(max_pairs_per_row: int) -> Iterator[None]:
    """Work in pieces of a few rows; an equality is used alone up to this many pairs per row."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in (("PAIRS_AT_ONCE", ranges), ("PAIRS_AT_ONCE", methods)):
            patch.setattr(module, name, 3)
        patch.setattr(sides, "_ROWS_AT_ONCE", 4)
        patch.setattr(equality, "_LEAST_CHUNK_ROWS", 2)
        patch.setattr(equality, "_CHUNK_TABLES", 1)
        patch.setattr(methods, "_MAX_PAIRS_PER_ROW", max_pairs_per_row)
        yield


def check(columns: Columns, rows: list[Rows], on: Expression) -> None:
    items = [batch(item_rows, kinds) for item_rows, kinds in zip(rows, columns, strict=True)]
    joined = join(items, on, most_pairs=10**9)
    assert places_of(joined) == nested_loops(rows, on), joined.steps
    assert joined.steps == () or joined.steps[-1].kept_pairs == len(joined.places[0])
    assert {joined.first, *[step.item for step in joined.steps]} == set(range(len(items)))
    if len(items) == 2:
        check_partners(rows, items, on)


def check_partners(rows: list[Rows], items: list[pa.RecordBatch], on: Expression) -> None:
    semi_joined = semi_join(items, on, most_pairs=10**9)
    partnered = {place for place, _ in nested_loops(rows, on)}
    assert np.flatnonzero(semi_joined.mask).tolist() == sorted(partnered), semi_joined.steps


@settings(max_examples=4 * settings().max_examples, suppress_health_check=_SLOW)
@given(st.data())
def test_oracle_of_two_items(data: DataObject) -> None:
    columns = data.draw(item_columns(2, 2))
    rows, on = data.draw(item_rows(columns)), data.draw(join_conditions(columns))
    check(columns, rows, on)
    with small_pieces(max_pairs_per_row=0):
        check(columns, rows, on)


@settings(max_examples=2 * settings().max_examples, suppress_health_check=_SLOW)
@given(st.data())
def test_oracle_of_several_items(data: DataObject) -> None:
    columns = data.draw(item_columns(1, 5))
    rows, on = data.draw(item_rows(columns)), data.draw(join_conditions(columns))
    check(columns, rows, on)
    with small_pieces(max_pairs_per_row=data.draw(st.sampled_from((0, 8)))):
        check(columns, rows, on)
