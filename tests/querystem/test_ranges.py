"""Thresholds and boxes: the same matches as by the kernel alone, whatever the bounds are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datastem.types import BIGINT, DOUBLE
from querystem.expressions import ColumnRef, Expression, Op, predicate_key
from querystem.index import QueryStem
from querystem.index.matches import RowLines, RowLists
from querystem.index.probe import RootPlan
from querystem.index.stored import ArrayReader, ArrayWriter
from tests.querystem.test_hashed import soon_hashed
from tests.querystem.test_index import alone, both, compare, rows_by_predicate

_K, _N = ColumnRef("k", BIGINT), ColumnRef("n", BIGINT)
_X, _Y = ColumnRef("x", DOUBLE), ColumnRef("y", DOUBLE)
_INTEGERS = st.sampled_from([-(2**63), -(2**63) + 1, -1, 0, 1, 2, 7, 2**63 - 2, 2**63 - 1])
_DOUBLES = st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 5e-324, 1.0, 1.5, math.inf, math.nan])
_OPS = st.sampled_from([Op.LT, Op.LE, Op.GT, Op.GE])


def _range(operand: ColumnRef) -> st.SearchStrategy[Expression]:
    return st.builds(compare, _OPS, st.just(operand), _values(operand))


def _values(operand: ColumnRef) -> st.SearchStrategy[Any]:
    return _DOUBLES if operand.type == DOUBLE else _INTEGERS


_RANGES = st.lists(st.sampled_from([_N, _X, _Y]).flatmap(_range), max_size=5)
_KEYS = st.integers(0, 4)
_THRESHOLDS = st.builds(lambda key, ranges: both(compare(Op.EQ, _K, key), *ranges), _KEYS, _RANGES)
_BOXES = st.builds(
    lambda x, y, more: both(*x, *y, *more),
    st.lists(_range(_X), min_size=1, max_size=2),
    st.lists(_range(_Y), min_size=1, max_size=2),
    st.lists(_range(_N), max_size=1),
)
_ROWS = st.lists(
    st.tuples(*(st.none() | values for values in (_KEYS, _INTEGERS, _DOUBLES, _DOUBLES))),
    min_size=1,
    max_size=40,
)


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    types = [pa.int64(), pa.int64(), pa.float64(), pa.float64()]
    arrays = [pa.array(list(column), type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=["k", "n", "x", "y"])


def _insert(stem: QueryStem, predicates: dict[int, Expression]) -> None:
    texts = pa.array([predicate_key(where) for where in predicates.values()], pa.string())
    stem.insert_texts(np.array(list(predicates), np.int64), texts)


def _check(stem: QueryStem, predicates: dict[int, Expression], rows: list[Any]) -> None:
    whole = _batch(rows)
    stem._check()
    for batch, first in ((whole, 0), (whole, 70), (whole.slice(0, 1), 3)):
        expected = {
            id_: [row + first for row in matched]
            for id_, matched in alone(predicates, batch).items()
        }
        assert rows_by_predicate(stem.probe(batch, first)) == expected


def _few_at_once(patch: pytest.MonkeyPatch, pairs: int) -> None:
    """Make every path run with few rows and predicates."""
    soon_hashed(patch)
    patch.setattr("querystem.index.stem._MIN_BUILT_PREDICATES", 2)
    patch.setattr("querystem.index.hashed.search._PAIRS_AT_ONCE", pairs)
    patch.setattr("querystem.index.hashed.search._MIN_MATRIX_CELLS", pairs)
    patch.setattr("querystem.index.hashed.search._CELLS_AT_ONCE", pairs)
    patch.setattr("querystem.index.hashed.ladders._FEW_ROWS", 1)
    patch.setattr("querystem.index.built.boxes._MIN_BOXES", 2)
    patch.setattr("querystem.index.built.boxes._MIN_WIDE_BOXES", 8)
    patch.setattr("querystem.index.built.boxes._MIN_DIVISIONS", 1)
    patch.setattr("querystem.index.built.boxes.PREDICATES_PER_PAIR", 1)
    patch.setattr("querystem.index.built.boxes._PAIRS_AT_ONCE", pairs)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    predicates=st.lists(_THRESHOLDS | _BOXES, min_size=1, max_size=60),
    new=st.lists(_THRESHOLDS | _BOXES, max_size=20),
    rows=_ROWS,
    pairs=st.sampled_from([4, 64, 1 << 20]),
    random=st.randoms(use_true_random=False),
)
def test_oracle_thresholds_and_boxes_coming_and_going(
    predicates: list[Expression], new: list[Expression], rows: list[Any], pairs: int, random: Any
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        _few_at_once(patch, pairs)
        stem, present = QueryStem(), dict(enumerate(predicates))
        _insert(stem, present)
        _check(stem, present, rows)
        restored = _restored(stem)
        if restored is not None:
            _check(restored, present, rows)
        for id_ in random.sample(sorted(present), len(present) // 3):
            stem.remove(id_)
            del present[id_]
        _check(stem, present, rows)
        added = dict(enumerate(new, 1000))
        if added:
            _insert(stem, added)
        _check(stem, present | added, rows)


def _restored(stem: QueryStem) -> QueryStem | None:
    """The query SteM made again of its arrays, which can't be written; None if it has a tail."""
    content = stem.content()
    if content is None:
        return None
    writer = ArrayWriter()
    form = writer.write(content)
    for array in writer.arrays:
        array.flags.writeable = False
    return ArrayReader(writer.arrays).read(form)


def _boxes(count: int, side: float, seed: int = 1) -> dict[int, Expression]:
    """Boxes in the unit square, whose sides are up to `side` long."""
    random = np.random.default_rng(seed)
    low = random.uniform(0, 1, (count, 2))
    high = low + random.uniform(0, side, (count, 2))
    return {
        number: both(
            compare(Op.GE, _X, float(low[number, 0])),
            compare(Op.LT, _X, float(high[number, 0])),
            compare(Op.GT, _Y, float(low[number, 1])),
            compare(Op.LE, _Y, float(high[number, 1])),
        )
        for number in range(count)
    }


def _points(count: int, side: float = 1.0) -> pa.RecordBatch:
    random = np.random.default_rng(2)
    return pa.record_batch({name: random.uniform(0, side, count) for name in ("x", "y")})


@pytest.mark.parametrize(("side", "rows", "is_grid"), [(0.02, 200, True), (1.0, 200, False)])
def test_small_boxes_are_found_by_a_grid_and_wide_ones_by_bitmaps(
    side: float, rows: int, is_grid: bool
) -> None:
    predicates = _boxes(1000, side)
    stem = QueryStem()
    _insert(stem, predicates)
    stem._check()
    batch = _points(rows)
    result = stem.probe(batch)
    assert [type(part) is RowLists for part in result.parts] == [is_grid]
    assert rows_by_predicate(result) == alone(predicates, batch)


def test_wide_boxes_are_compared_one_by_one_with_few_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("querystem.index.built.boxes._MIN_WIDE_BOXES", 500)
    predicates = _boxes(500, 1.0)
    stem = QueryStem()
    _insert(stem, predicates)
    for rows, kind in ((3, RowLists), (50, RowLines)):
        batch = _points(rows)
        result = stem.probe(batch)
        assert [type(part) for part in result.parts] == [kind]
        assert rows_by_predicate(result) == alone(predicates, batch)


def test_rows_that_crowd_into_one_cell_are_found_by_bitmaps() -> None:
    """A hundred boxes are about one point, which all rows are near to."""
    predicates = _boxes(1000, 0.02)
    for number in range(100):
        predicates[1000 + number] = both(
            compare(Op.GE, _X, 0.5 - number * 1e-6),
            compare(Op.LT, _X, 0.5001),
            compare(Op.GE, _Y, 0.5),
            compare(Op.LT, _Y, 0.5001 + number * 1e-6),
        )
    stem = QueryStem()
    _insert(stem, predicates)
    points = _points(300, 0.0001)
    crowd = pa.record_batch({name: pc.add(points[name], 0.5) for name in ("x", "y")})
    for batch, kind in ((crowd, RowLines), (_points(300), RowLists)):
        result = stem.probe(batch)
        assert [type(part) for part in result.parts] == [kind]
        assert rows_by_predicate(result) == alone(predicates, batch)


def test_a_plan_is_kept_while_the_same_predicates_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans: list[int] = []

    class CountedPlan(RootPlan):
        def __init__(self, graph: Any, roots: Any) -> None:
            plans.append(len(roots))
            super().__init__(graph, roots)

    monkeypatch.setattr("querystem.index.built.part.RootPlan", CountedPlan)
    predicates, batch = _boxes(100, 0.5), _points(20)
    stem = QueryStem()
    _insert(stem, predicates)
    expected = alone(predicates, batch)
    for _ in range(2):
        assert rows_by_predicate(stem.probe(batch)) == expected
    removed = next(iter(expected))
    stem.remove(removed)
    del expected[removed]
    for _ in range(2):
        assert rows_by_predicate(stem.probe(batch)) == expected
    assert plans == [100, 99]


def test_a_range_of_predicates_is_found_once_by_a_grid() -> None:
    predicates = _boxes(600, 0.02)
    stem, batch = QueryStem(), _points(150)
    _insert(stem, predicates)
    expected = alone(predicates, batch)
    stem.remove(next(iter(expected)))
    del expected[next(iter(expected))]
    for lo, hi in ((0, 300), (300, 600), (100, 101)):
        slices = list(stem.probe_slices(batch, lo=lo, hi=hi, result_bytes=1))
        matched = [item for result in slices for item in rows_by_predicate(result).items()]
        assert sorted(matched) == [item for item in expected.items() if lo <= item[0] < hi]
