"""Predicates read from texts in columns match what the kernel matches with each by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from benchmarks.index_queries import FAMILIES, rows, texts
from datastem.types import BIGINT, BOOLEAN, DOUBLE, TEXT, decimal_type
from querystem.expressions import (
    Call,
    ColumnRef,
    Expression,
    Literal,
    Op,
    from_json,
    predicate_key,
)
from querystem.index import QueryStem
from querystem.index.built import reading
from querystem.index.formula import formula_of
from querystem.index.formula_text import formula_text, read_formula
from querystem.language.normal_form.normal import normal
from tests.oracle.expressions import conditions
from tests.oracle.strategies import rows as drawn_rows
from tests.oracle.strategies import schemas, to_batch
from tests.querystem.shapes import POOLS, Shapes, batch
from tests.querystem.test_hashed import among, by_station, readings, soon_hashed
from tests.querystem.test_index import alone, both, compare, either, rows_by_predicate
from tests.support.lengths import short_first

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read every template in columns, and build and merge parts after a few predicates."""
    soon_hashed(monkeypatch)
    monkeypatch.setattr("querystem.index.columns.templates._MIN_TEXTS", 1)
    monkeypatch.setattr("querystem.index.stem._MIN_BUILT_PREDICATES", 4)
    monkeypatch.setattr("querystem.index.stem._MAX_TAIL_PREDICATES", 6)


def insert(stem: QueryStem, predicates: dict[int, Expression]) -> None:
    keys = [predicate_key(where) for where in predicates.values()]
    stem.insert_texts(np.array(list(predicates), np.int64), pa.array(keys, pa.string()))


def pool_columns(name: str) -> Iterator[Expression]:
    """Yield a comparison of each kind with each value of a column's pool."""
    type_, pool = POOLS[name]
    column = ColumnRef(name, type_)
    for value in pool:
        for op in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE):
            yield compare(op, column, value)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("name", list(POOLS))
def test_oracle_every_comparison_with_every_value(name: str) -> None:
    predicates = dict(enumerate(pool_columns(name)))
    stem, pooled = QueryStem(), batch(np.random.default_rng(1), 300)
    insert(stem, predicates)
    stem._check()
    assert rows_by_predicate(stem.probe(pooled)) == alone(predicates, pooled)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("seed", short_first(range(6), 3))
def test_oracle_texts_that_come_and_go(seed: int) -> None:
    """Insert many at once or few, remove some, and probe after each step."""
    random = np.random.default_rng(seed)
    shapes, stem, predicates = Shapes(random), QueryStem(), dict[int, Expression]()
    for step in range(12):
        count = int(random.choice([1, 3, 20, 90]))
        new = {int(id_) * 100 + step: shapes.predicate() for id_ in random.permutation(count)}
        if step % 2:
            new = {id_: normal(where) for id_, where in new.items()}
        insert(stem, dict(sorted(new.items())))
        predicates |= new
        for id_ in random.permutation(sorted(predicates))[: int(random.integers(0, 60))].tolist():
            stem.remove(id_)
            del predicates[id_]
        stem._check()
        assert len(stem) == len(predicates)
        assert all(id_ in stem for id_ in predicates)
        pooled = batch(random, int(random.integers(1, 90)), nulls=float(random.choice([0, 0.2])))
        first = int(random.choice([0, 5, 64]))
        expected = {
            id_: [first + row for row in matching]
            for id_, matching in alone(predicates, pooled).items()
        }
        assert rows_by_predicate(stem.probe(pooled, first)) == expected


@pytest.mark.usefixtures("small_limits")
@settings(suppress_health_check=[*_SLOW, HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.data())
def test_oracle_any_conditions(data: DataObject) -> None:
    schema = data.draw(schemas())
    wheres = data.draw(st.lists(conditions(schema.types), min_size=4, max_size=12))
    predicates = dict(enumerate(wheres + wheres[:2]))
    stem = QueryStem()
    insert(stem, predicates)
    stem._check()
    drawn = to_batch(schema, data.draw(drawn_rows(schema)))
    assert rows_by_predicate(stem.probe(drawn)) == alone(predicates, drawn)


@pytest.mark.parametrize("name", list(FAMILIES))
def test_oracle_families_of_the_benchmark(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is parsed one by one, and all of their parts are arrays."""
    parsed: list[str] = []
    monkeypatch.setattr(reading, "parse_text", lambda text: parsed.append(text))
    keys, stem = texts(FAMILIES[name], 700), QueryStem()
    stem.insert_texts(np.arange(700), keys)
    stem._check()
    assert not parsed and not len(stem._tail)
    predicates = {id_: where_of(text) for id_, text in enumerate(keys.to_pylist())}
    probed = rows(500)
    assert rows_by_predicate(stem.probe(probed)) == alone(predicates, probed)


def where_of(text: str) -> Expression:
    return from_json(json.loads(text))


_A, _T = ColumnRef("a", BIGINT), ColumnRef("t", TEXT)
_ODD_TEXTS = ['a"b', "back\\slash", '["lit","TEXT","x"]', '["par","TEXT","c0"]', "x" * 300, "é", ""]


@pytest.mark.usefixtures("small_limits")
def test_constants_that_are_written_in_special_ways() -> None:
    """Escapes, and constants whose type is not that of their operand."""
    price, wide = ColumnRef("d", POOLS["d"][0]), ColumnRef("w", POOLS["w"][0])
    double = ColumnRef("b", DOUBLE)
    wheres: list[Expression] = [compare(Op.EQ, _T, text) for text in _ODD_TEXTS]
    wheres += [both(compare(Op.EQ, _T, text), compare(Op.GT, _A, 2)) for text in _ODD_TEXTS]
    wheres += [Call(Op.LIKE, (_T, Literal(f"{text}%", TEXT)), BOOLEAN) for text in _ODD_TEXTS]
    for op in (Op.EQ, Op.NE, Op.LT, Op.GE):
        for value in (-1.5, 0.0, 3.0, 1e300, float("inf"), float("-inf"), float("nan")):
            wheres += [compare(op, operand, value, DOUBLE) for operand in (_A, price, wide)]
        for number in (-(2**63), 2**53 + 1, 3, 0, 2**63 - 1):
            wheres += [compare(op, operand, number, BIGINT) for operand in (double, price, wide)]
        for digits in ("0.125", "-3", "7.25", "99999999999999999999.5", "1E+3"):
            literal = Decimal(digits), decimal_type(30, 5)
            wheres += [compare(op, operand, *literal) for operand in (_A, double, price, wide)]
        wheres += [compare(op, price, None), compare(op, wide, None)]
    predicates = dict(enumerate(wheres))
    stem = QueryStem()
    insert(stem, predicates)
    stem._check()
    pooled = batch(np.random.default_rng(3), 300)
    pooled = pooled.set_column(2, "t", pa.array([_ODD_TEXTS[n % 7] for n in range(300)]))
    assert rows_by_predicate(stem.probe(pooled)) == alone(predicates, pooled)


@pytest.mark.usefixtures("small_limits")
def test_constants_inside_operands_make_operands_of_their_own() -> None:
    predicates: dict[int, Expression] = {}
    for n in range(60):
        remainder = Call(Op.MOD, (_A, Literal(2 + n % 3, BIGINT)), BIGINT)
        predicates[n] = both(compare(Op.EQ, remainder, n % 2), compare(Op.LT, _A, n // 4))
    stem = QueryStem()
    insert(stem, predicates)
    stem._check()
    assert not len(stem._parts) or all(not len(part.graph.conditions) for part in stem._parts)
    pooled = batch(np.random.default_rng(4), 200)
    assert rows_by_predicate(stem.probe(pooled)) == alone(predicates, pooled)


@pytest.mark.usefixtures("small_limits")
def test_every_constant_predicate() -> None:
    literals = [Literal(value, BOOLEAN) for value in (True, False, None)]
    predicates: dict[int, Expression] = {n: literals[n % 3] for n in range(9)}
    predicates |= {100 + n: either(literals[n % 3], compare(Op.LT, _A, n)) for n in range(9)}
    stem = QueryStem()
    insert(stem, predicates)
    pooled = batch(np.random.default_rng(4), 50)
    assert rows_by_predicate(stem.probe(pooled)) == alone(predicates, pooled)


def test_equal_factors_are_one_node() -> None:
    stem = QueryStem()
    one_of = among(_T, "a", "b")
    wheres: list[Expression] = [both(one_of, compare(Op.GT, _A, n % 50)) for n in range(1000)]
    wheres += [either(compare(Op.LT, _A, n), compare(Op.EQ, _T, "c")) for n in range(100)]
    insert(stem, dict(enumerate(wheres)))
    (part,) = stem._parts
    # 50 + 100 intervals, 3 members, one IN, 50 conjunctions and 100 disjunctions.
    assert part.graph.lines == 150 + 3 + 1 + 50 + 100


def test_parts_are_few_and_the_first_is_the_largest() -> None:
    random, stem = np.random.default_rng(5), QueryStem()
    predicates: dict[int, Expression] = {}
    sizes: list[int] = []
    for step in range(30):
        new: dict[int, Expression] = {
            step * 1000 + n: both(compare(Op.GE, _A, int(low)), compare(Op.LT, _A, int(low) + 40))
            for n, low in enumerate(random.integers(0, 400, int(random.integers(30, 400))))
        }
        insert(stem, new)
        predicates |= new
        sizes = [len(part) for part in stem._parts]
        assert len(sizes) <= 2 and sizes == sorted(sizes, reverse=True)
        assert len(stem._tail) < 1024
    assert len(sizes) == 2
    numbers = pa.record_batch({"a": random.integers(0, 450, 200)})
    assert rows_by_predicate(stem.probe(numbers)) == alone(predicates, numbers)


def test_a_family_that_grows_large_leaves_the_parts() -> None:
    """Whether it is hashed is decided for the whole stream, not by part."""
    few = by_station(900, stations=12)
    stem, rows_ = QueryStem(), readings(400)
    insert(stem, few)
    assert [len(part) for part in stem._parts] == [900]
    more = {5000 + id_: where for id_, where in by_station(60, stations=200, seed=9).items()}
    insert(stem, more)
    stem._check()
    assert not stem._parts and not len(stem._tail)
    assert rows_by_predicate(stem.probe(rows_)) == alone(few | more, rows_)


def test_a_part_is_built_again_when_half_of_it_was_removed() -> None:
    predicates: dict[int, Expression] = {n: compare(Op.LT, _A, n % 90) for n in range(400)}
    stem, numbers = QueryStem(), pa.record_batch({"a": np.arange(0, 90, 7)})
    insert(stem, predicates)
    for n in range(300):
        stem.remove(n)
        del predicates[n]
        assert n not in stem
    stem._check()
    assert len(stem._parts[0].alive) <= 200
    assert rows_by_predicate(stem.probe(numbers)) == alone(predicates, numbers)
    for n in range(300, 400):
        stem.remove(n)
    assert not len(stem) and not stem._parts


@pytest.mark.parametrize(
    "text",
    [
        '["call","BOOLEAN","<",["col","DATE","day"],["lit","DATE","2026-02-31"]]',
        '["call","BOOLEAN","<",["col","BIGINT","a"],["lit","NOTYPE",3]]',
        '["call","BOOLEAN","no such",["col","BIGINT","a"],["lit","BIGINT",3]]',
        "no JSON",
    ],
)
def test_a_bad_text_raises_as_it_does_alone(text: str) -> None:
    good = [predicate_key(compare(Op.LT, _A, n)) for n in range(200)]
    with pytest.raises(Exception) as expected:  # noqa: PT011
        QueryStem().insert_texts(np.arange(1), pa.array([text]))
    for texts_ in ([*good, text], [*good, *[text] * 50]):
        with pytest.raises(type(expected.value)):
            QueryStem().insert_texts(np.arange(len(texts_)), pa.array(texts_))


@settings(suppress_health_check=_SLOW)
@given(st.data())
def test_formulas_come_back_from_their_texts(data: DataObject) -> None:
    schema = data.draw(schemas())
    formula = formula_of(data.draw(conditions(schema.types)))
    assert repr(read_formula(formula_text(formula))) == repr(formula)


@pytest.mark.usefixtures("small_limits")
def test_ranges_of_parts_and_tail_make_up_a_probe() -> None:
    """Slices of predicates, and ranges of their ids, over two parts, a tail and hashed ones."""
    random = np.random.default_rng(8)
    shapes, stem = Shapes(random), QueryStem()
    predicates = {n: shapes.predicate() for n in random.permutation(400).tolist()}
    groups = np.split(np.array(list(predicates)), [260, 300, 303])
    for group in groups:
        insert(stem, {id_: predicates[id_] for id_ in sorted(group.tolist())})
    for id_ in groups[0][:50].tolist():
        stem.remove(id_)
        del predicates[id_]
    assert len(stem._tail) and stem._parts and len(stem.graph_ids) < len(stem)
    pooled = batch(random, 200)
    expected = alone(predicates, pooled)
    for lo, hi in [(0, 400), (0, 120), (120, 121), (350, 1000)]:
        slices = list(stem.probe_slices(pooled, lo=lo, hi=hi, result_bytes=5 * 200 // 8))
        ids = [id_ for matches in slices for id_, _ in matches]
        assert len(ids) == len(set(ids))
        probed = {
            id_: rows_ for matches in slices for id_, rows_ in rows_by_predicate(matches).items()
        }
        assert probed == {id_: rows_ for id_, rows_ in expected.items() if lo <= id_ < hi}
        lines = [sum(len(part.ids) for part in matches.parts) for matches in slices[:-1]]
        assert all(count <= 5 for count in lines)
