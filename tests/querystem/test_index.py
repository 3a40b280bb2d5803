"""The query SteM finds for each predicate what the kernel finds for it alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from intervaltree import Interval, IntervalTree

from datastem.types import BIGINT, BOOLEAN, DOUBLE, TEXT, TIMESTAMP, Type, decimal_type
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Literal, Op
from querystem.index import Matches, QueryStem
from querystem.index.batch import ProbeBatch
from querystem.index.formula import Condition
from querystem.index.matches import RowLines, accumulate
from querystem.kernel import matches
from results.bitmaps import decode
from tests.oracle.expressions import conditions
from tests.oracle.strategies import rows, schemas, to_batch

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
_A, _B = ColumnRef("a", BIGINT), ColumnRef("b", DOUBLE)
_T = ColumnRef("t", TEXT)


def compare(op: Op, operand: Expression, value: Any, type_: Type | None = None) -> Call:
    return Call(op, (operand, Literal(value, type_ or operand.type)), BOOLEAN)


def both(*parts: Expression) -> Call:
    return Call(Op.AND, parts, BOOLEAN)


def either(*parts: Expression) -> Call:
    return Call(Op.OR, parts, BOOLEAN)


def rows_by_predicate(result: Matches) -> dict[int, list[int]]:
    return {predicate_id: offsets.tolist() for predicate_id, offsets in result}


def alone(predicates: Mapping[int, Expression], batch: pa.RecordBatch) -> dict[int, list[int]]:
    matching = {id_: np.flatnonzero(matches(where, batch)) for id_, where in predicates.items()}
    return {id_: matching[id_].tolist() for id_ in sorted(matching) if len(matching[id_])}


def seeded_batch(length: int, seed: int = 1) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    is_null = rng.random(length) < 0.1
    doubles = rng.choice([0.5, -0.0, np.nan, np.inf, -np.inf, 7.25, 1e300], length)
    return pa.record_batch(
        {
            "a": pa.array(rng.integers(0, 500, length), mask=is_null),
            "b": pa.array(doubles, mask=rng.random(length) < 0.1, from_pandas=False),
            "t": pa.array(rng.choice([f"s{i}" for i in range(80)], length)),
        }
    )


def many_predicates(count: int, seed: int = 2) -> dict[int, Expression]:
    """Intervals, equalities and a few of everything else, over `seeded_batch`."""
    rng = np.random.default_rng(seed)
    predicates: dict[int, Expression] = {}
    for id_ in range(count):
        low = int(rng.integers(0, 500))
        interval = both(compare(Op.GE, _A, low), compare(Op.LT, _A, low + int(rng.integers(90))))
        text = compare(Op.EQ, _T, f"s{rng.integers(100)}")
        double = compare(Op.GT, _B, float(rng.choice([0.0, np.inf, np.nan, 7.25])))
        like = Call(Op.LIKE, (_T, Literal(f"%{rng.integers(10)}", TEXT)), BOOLEAN)
        predicates[id_ * 3] = [
            interval,
            both(interval, text),
            either(text, both(double, interval)),
            both(double, like, interval),
            Call(Op.NOT, (either(interval, text),), BOOLEAN),
        ][id_ % 5]
    return predicates


@settings(suppress_health_check=_SLOW)
@given(st.data())
def test_oracle_interleaved_inserts_and_removes(data: DataObject) -> None:
    schema = data.draw(schemas())
    stem = QueryStem()
    predicates: dict[int, Expression] = {}
    for step in range(data.draw(st.integers(1, 6))):
        is_removal = data.draw(st.booleans())
        if predicates and is_removal:
            removed_id = data.draw(st.sampled_from(sorted(predicates)))
            stem.remove(removed_id)
            del predicates[removed_id]
        for place in range(data.draw(st.integers(0, 3))):
            predicates[step * 10 + place] = data.draw(conditions(schema.types))
            stem.insert(step * 10 + place, predicates[step * 10 + place])
        stem._check()
        assert len(stem) == len(predicates)
        batch = to_batch(schema, data.draw(rows(schema)))
        assert rows_by_predicate(stem.probe(batch)) == alone(predicates, batch)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 1000])
@pytest.mark.parametrize("count", [3, 40, 300])
def test_oracle_many_predicates(count: int, length: int) -> None:
    stem, predicates, batch = QueryStem(), many_predicates(count), seeded_batch(length)
    for id_, where in predicates.items():
        stem.insert(id_, where)
    assert rows_by_predicate(stem.probe(batch)) == alone(predicates, batch)
    for id_ in list(predicates)[::2]:
        stem.remove(id_)
        del predicates[id_]
    stem._check()
    assert rows_by_predicate(stem.probe(batch)) == alone(predicates, batch)


def test_slices_of_a_batch_join_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("querystem.index.probe._SOURCE_BYTES", 1)
    stem, predicates, batch = QueryStem(), many_predicates(60), seeded_batch(5000)
    for id_, where in predicates.items():
        stem.insert(id_, where)
    assert rows_by_predicate(stem.probe(batch)) == alone(predicates, batch)
    assert rows_by_predicate(stem.probe(pa.Table.from_batches([batch]))) == alone(predicates, batch)


@pytest.mark.parametrize(("lines", "slices"), [(1, 60), (7, 9), (60, 1), (1000, 1)])
def test_predicates_are_probed_in_slices(lines: int, slices: int) -> None:
    stem, predicates, batch = QueryStem(), many_predicates(60), seeded_batch(1000)
    for id_, where in predicates.items():
        stem.insert(id_, where)
    # 16 words are 1,000 rows that begin at bit 9 of the first.
    parts = list(stem.probe_slices(batch, 9, result_bytes=lines * 8 * 16))
    assert len(parts) == slices
    graph = [part.parts[0] for part in parts]
    assert all(isinstance(part, RowLines) and len(part.words) <= lines for part in graph)
    together = Matches(tuple(part for matches in parts for part in matches.parts))
    shifted = {id_: [9 + row for row in ids] for id_, ids in alone(predicates, batch).items()}
    assert rows_by_predicate(together) == shifted
    whole = stem.probe(batch, 9).bitmaps()
    assert all(np.array_equal(a, b) for a, b in zip(together.bitmaps(), whole, strict=True))


@pytest.mark.parametrize(("equalities", "is_hashed"), [(40, False), (400, True)])
def test_ranges_of_predicates_join_up(equalities: int, is_hashed: bool) -> None:
    stem, predicates, batch = QueryStem(), many_predicates(60), seeded_batch(300)
    predicates |= {500 + value: compare(Op.EQ, _A, value) for value in range(equalities)}
    for id_, where in predicates.items():
        stem.insert(id_, where)
    joined: dict[int, list[int]] = {}
    for lo, hi in pairwise([0, 1, 50, 51, 170, 600, 601, 1000]):
        for piece in stem.probe_slices(batch, lo=lo, hi=hi, result_bytes=2000):
            part = rows_by_predicate(piece)
            assert all(lo <= id_ < hi for id_ in part) and not part.keys() & joined.keys()
            joined |= part
    assert joined == alone(predicates, batch)
    assert (len(stem.graph_ids) < len(stem)) == is_hashed


@settings(suppress_health_check=_SLOW)
@given(st.data())
def test_oracle_slices_of_any_predicates(data: DataObject) -> None:
    schema = data.draw(schemas())
    predicates = dict(enumerate(data.draw(st.lists(conditions(schema.types), max_size=9))))
    stem = QueryStem()
    for id_, where in predicates.items():
        stem.insert(id_, where)
    batch = to_batch(schema, data.draw(rows(schema)))
    parts = stem.probe_slices(batch, result_bytes=data.draw(st.integers(8, 64)))
    together = Matches(tuple(part for matches in parts for part in matches.parts))
    assert rows_by_predicate(together) == alone(predicates, batch)


@pytest.mark.parametrize("width", [1, 127, 128])
def test_accumulate_joins_each_line_with_those_before(width: int) -> None:
    rng = np.random.default_rng(width)
    matrix = rng.integers(0, 2**64, (37, width), np.uint64) & rng.integers(
        0, 2**64, (37, width), np.uint64
    )
    expected = np.bitwise_or.accumulate(matrix, axis=0)
    assert (accumulate(matrix) == expected).all()


def test_matches_are_columnar_and_ascend() -> None:
    stem = QueryStem()
    for id_ in (2**40, 7, 9):
        stem.insert(id_, compare(Op.LT, _A, id_ % 1000))
    stem.insert(1, compare(Op.LT, _A, -1))
    result = stem.probe(seeded_batch(200))
    ids, counts, bitmaps = result.bitmaps()
    assert ids.tolist() == [7, 9, 2**40]
    assert [decode(each).tolist() for each in bitmaps.to_pylist()] == list(
        rows_by_predicate(result).values()
    )
    assert counts.tolist() == [len(each) for each in rows_by_predicate(result).values()]
    assert all((np.diff(rows.astype(int)) > 0).all() for _, rows in result)


def test_constants_match_all_or_nothing() -> None:
    stem = QueryStem()
    stem.insert(1, TRUE)
    stem.insert(2, Literal(False, BOOLEAN))
    stem.insert(3, Literal(None, BOOLEAN))
    stem.insert(4, compare(Op.NE, _A, None))
    assert rows_by_predicate(stem.probe(seeded_batch(70))) == {1: list(range(70))}


def test_constants_of_other_types_cut_exactly() -> None:
    huge = decimal_type(38, 0)
    batch = pa.record_batch({"a": [2**53, 2**53 + 1, -(2**63), 2**63 - 1, None]})
    cases: dict[int, Expression] = {
        1: compare(Op.GT, _A, 2.0**53, DOUBLE),
        2: compare(Op.EQ, _A, 2.0**53 + 2, DOUBLE),
        3: compare(Op.LT, _A, float("nan"), DOUBLE),
        4: compare(Op.LE, _A, float("-inf"), DOUBLE),
        5: compare(Op.LT, _A, 10**30, huge),
        6: compare(Op.GE, _A, -(2**63)),
        7: compare(Op.EQ, _A, -(2**63)),
        8: compare(Op.NE, _A, 2**63 - 1),
    }
    stem = QueryStem()
    for id_, where in cases.items():
        stem.insert(id_, where)
    expected = {1: [1, 3], 3: [0, 1, 2, 3], 5: [0, 1, 2, 3], 6: [0, 1, 2, 3], 7: [2], 8: [0, 1, 2]}
    assert rows_by_predicate(stem.probe(batch)) == expected == alone(cases, batch)


def test_equal_factors_are_one() -> None:
    stem = QueryStem()
    price, symbol = compare(Op.GT, _A, 5), compare(Op.EQ, _T, "s1")
    stem.insert(1, both(price, symbol))
    before = len(stem._tail.graph)
    stem.insert(2, both(symbol, price))
    stem.insert(3, price)
    assert len(stem._tail.graph) == before
    for id_ in (1, 2, 3):
        stem.remove(id_)
        stem._check()
    assert len(stem._tail.graph) == 0


def test_a_false_factor_ends_its_conjunction(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[Condition] = []
    original = ProbeBatch.mask

    def counted(batch: ProbeBatch, condition: Condition) -> Any:
        evaluated.append(condition)
        return original(batch, condition)

    monkeypatch.setattr(ProbeBatch, "mask", counted)
    stem = QueryStem()
    for id_, limit in enumerate((0, 500)):
        later = compare(Op.LT, _T, f"s{limit}")
        stem.insert(id_ * 2, both(compare(Op.LT, _A, limit), later))
        stem.insert(id_ * 2 + 1, both(later, compare(Op.LT, _A, limit - 1)))
    stem.probe(seeded_batch(100))
    assert evaluated == [Condition(compare(Op.LT, _T, "s500"), True)]


def test_misuse_is_refused() -> None:
    stem = QueryStem()
    stem.insert(1, TRUE)
    with pytest.raises(ValueError, match="already"):
        stem.insert(1, TRUE)
    with pytest.raises(KeyError, match="not in"):
        stem.remove(2)
    assert 1 in stem and 2 not in stem


def test_oracle_intervals_that_come_and_go_against_an_interval_tree() -> None:
    """The tree shares no code with the kernel; it finds intervals by a value, the index rows."""
    random = np.random.default_rng(2003)
    stem, tree, intervals = QueryStem(), IntervalTree(), {}
    for id_ in range(1500):
        begin, length = int(random.integers(-40, 300)), int(random.integers(1, 120))
        intervals[id_] = Interval(begin, begin + length, id_)
        tree.add(intervals[id_])
        stem.insert(id_, both(compare(Op.GE, _A, begin), compare(Op.LT, _A, begin + length)))
        if id_ % 3 == 0:
            removed = intervals.pop(int(random.choice(list(intervals))))
            tree.remove(removed)
            stem.remove(removed.data)
        if id_ % 100 == 0:
            values = random.integers(-50, 400, 50).tolist()
            expected = {
                (interval.data, row) for row, v in enumerate(values) for interval in tree[v]
            }
            matched = rows_by_predicate(
                stem.probe(pa.record_batch({"a": pa.array(values, pa.int64())}))
            )
            assert {(id_, row) for id_, rows in matched.items() for row in rows} == expected


def test_instants_are_intervals() -> None:
    ts = ColumnRef("ts", TIMESTAMP)
    nine = datetime(2026, 11, 16, 9, tzinfo=UTC)
    batch = pa.record_batch({"ts": pa.array([nine, nine.replace(hour=8), None], TIMESTAMP.arrow)})
    stem = QueryStem()
    stem.insert(1, compare(Op.GE, ts, nine))
    stem.insert(2, Call(Op.NOT, (compare(Op.GE, ts, nine),), BOOLEAN))
    assert rows_by_predicate(stem.probe(batch)) == {1: [0], 2: [1]}
    assert not stem._tail.graph.conditions
