"""Predicates found by hash: the same matches as by the kernel alone, whatever comes and goes."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from datastem.arrays import UInt64s
from datastem.instants import MINUTE
from datastem.types import BIGINT, BOOLEAN, DOUBLE, TEXT
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op, to_json
from querystem.index import QueryStem
from querystem.index.byte_slices import ByteSlices
from querystem.index.formula import formula_of
from querystem.index.hashed import combinations
from querystem.index.hashed.combinations import Combinations
from querystem.index.hashed.conjunction import KeyValue, split_conjunction
from tests.querystem.shapes import AFTER_NINE, Shapes, batch
from tests.querystem.test_index import alone, both, compare, rows_by_predicate

_LANE, _STATION = ColumnRef("lane", BIGINT), ColumnRef("station", BIGINT)
_SPEED, _NAME = ColumnRef("speed", DOUBLE), ColumnRef("name", TEXT)


def soon_hashed(monkeypatch: pytest.MonkeyPatch, distinct: int = 4) -> None:
    monkeypatch.setattr("querystem.index.family.HASHED_COMBINATIONS", distinct)


@dataclass(frozen=True)
class Sizes:
    """The most of each in a step; the structures are looked through after every `check` steps."""

    steps: int
    new: int
    gone: int
    rows: int
    check: int


LARGE = Sizes(steps=8, new=60, gone=40, rows=90, check=1)
SMALL = Sizes(steps=100, new=4, gone=5, rows=6, check=10)


@pytest.mark.parametrize("seed", range(5))
def test_oracle_every_shape_coming_and_going(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together more than 10⁵ pairs of a row and a predicate."""
    soon_hashed(monkeypatch)
    come_and_go(np.random.default_rng(seed), LARGE)


def test_oracle_small_sets_coming_and_going(monkeypatch: pytest.MonkeyPatch) -> None:
    soon_hashed(monkeypatch)
    come_and_go(np.random.default_rng(5), SMALL)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_oracle_a_hundred_thousand_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of some rows and the predicates of that moment."""
    soon_hashed(monkeypatch)
    for seed in range(100_000 // SMALL.steps):
        come_and_go(np.random.default_rng([7, seed]), SMALL)


def come_and_go(random: np.random.Generator, sizes: Sizes) -> None:
    shapes, stem = Shapes(random), QueryStem()
    predicates: dict[int, Expression] = {}
    for step in range(sizes.steps):
        for place in range(int(random.integers(1, sizes.new))):
            id_ = place * 1000 + step
            predicates[id_] = shapes.predicate()
            stem.insert(id_, predicates[id_])
        removed = int(random.integers(0, sizes.gone))
        for id_ in random.permutation(sorted(predicates))[:removed].tolist():
            stem.remove(id_)
            del predicates[id_]
        if step % sizes.check == 0:
            stem._check()
        count = int(random.integers(1, sizes.rows))
        rows = batch(random, count, nulls=float(random.choice([0.0, 0.2])))
        assert rows_by_predicate(stem.probe(rows)) == alone(predicates, rows)
        assert len(stem) == len(predicates)
    for id_ in random.permutation(sorted(predicates)).tolist():
        assert id_ in stem
        stem.remove(id_)
    stem._check()
    assert not len(stem) and not rows_by_predicate(stem.probe(rows))


def readings(count: int, stations: int = 200, seed: int = 1) -> pa.RecordBatch:
    random = np.random.default_rng(seed)
    station = random.integers(0, stations, count)
    return pa.record_batch(
        {
            "lane": random.integers(1, 9, count),
            "station": pa.array(station, mask=random.random(count) < 0.05),
            "speed": pa.array(random.integers(0, 100, count) / 2, mask=random.random(count) < 0.1),
            "name": [f"station {number % 50}" for number in station],
        }
    )


def by_station(count: int, stations: int = 200, seed: int = 2) -> dict[int, Expression]:
    random = np.random.default_rng(seed)
    return {
        id_: both(
            compare(Op.EQ, _LANE, int(random.integers(1, 9))),
            compare(Op.EQ, _STATION, int(random.integers(stations))),
            compare(Op.GT, _SPEED, float(random.integers(50))),
        )
        for id_ in range(count)
    }


def stem_of(predicates: dict[int, Expression]) -> QueryStem:
    stem = QueryStem()
    for id_, where in predicates.items():
        stem.insert(id_, where)
    return stem


@pytest.mark.usefixtures("core_path")
@pytest.mark.parametrize("first", [0, 1, 63, 64, 40_000])
def test_rows_are_numbered_from_the_first(first: int) -> None:
    names = {9000 + n: compare(Op.EQ, _NAME, f"station {n}") for n in range(200)}
    predicates = {**by_station(700), **names, 10_000: compare(Op.LT, _SPEED, 20.0)}
    stem, rows = stem_of(predicates), readings(3000)
    expected = {
        id_: [first + row for row in row_numbers]
        for id_, row_numbers in alone(predicates, rows).items()
    }
    assert rows_by_predicate(stem.probe(rows, first)) == expected
    ids, counts, bitmaps = stem.probe(rows, first).bitmaps()
    assert (ids.tolist(), counts.tolist()) == (
        list(expected),
        [len(row_numbers) for row_numbers in expected.values()],
    )
    assert len(bitmaps) == len(ids)


@pytest.mark.usefixtures("core_path")
def test_rows_that_crowd_into_one_combination() -> None:
    predicates = by_station(900, stations=20)
    where = both(compare(Op.EQ, _LANE, 3), compare(Op.EQ, _STATION, 5))
    speeds = {5000 + n: both(where, compare(Op.GT, _SPEED, n / 2)) for n in range(50)}
    like = Call(Op.LIKE, (_NAME, Literal("%5", TEXT)), BOOLEAN)
    stem = stem_of(predicates | speeds | {7000: both(where, like)})
    crowd = pa.record_batch(
        {
            "lane": np.full(9000, 3),
            "station": np.where(np.arange(9000) % 9, 5, 6),
            "speed": pa.array(np.arange(9000) % 60, pa.float64()),
            "name": [f"station {row % 7}" for row in range(9000)],
        }
    )
    everything = predicates | speeds | {7000: both(where, like)}
    assert rows_by_predicate(stem.probe(crowd)) == alone(everything, crowd)


def test_a_family_is_hashed_when_it_is_large_and_counted_again_when_it_is_empty() -> None:
    predicates = by_station(600)
    stem, rows = stem_of(predicates), readings(500)
    assert not len(stem._tail)
    for id_ in list(predicates):
        stem.remove(id_)
    stem._check()
    few = dict(list(predicates.items())[:10])
    for id_, where in few.items():
        stem.insert(id_, where)
    assert len(stem._tail) == 10
    assert rows_by_predicate(stem.probe(rows)) == alone(few, rows)


def among(operand: Expression, *values: Any) -> Call:
    return Call(Op.IN, (operand, *[Literal(value, operand.type) for value in values]), BOOLEAN)


_MANY = [among(_LANE, 1, 2, 3, 4), among(_NAME, "a", "b", "c"), among(_STATION, 7, 5, 9)]
_TWICE = [compare(Op.EQ, _NAME, "b"), compare(Op.EQ, _NAME, "a"), among(_NAME, "c", "a")]


@pytest.mark.parametrize(
    ("parts", "fixed"),
    [(_MANY, {_NAME: ("a", "b", "c"), _STATION: (5, 7, 9)}), (_TWICE, {_NAME: ("a",)})],
    ids=["more values than are hashed", "one operand"],
)
def test_a_conjunction_is_split_alike_in_whatever_order_its_parts_are(
    parts: list[Expression], fixed: dict[Expression, tuple[KeyValue, ...]]
) -> None:
    fast = compare(Op.GT, _SPEED, 4.0)
    for order in itertools.permutations([*parts, fast]):
        split = split_conjunction(formula_of(both(*order)))
        assert split is not None
        assert split.fixed == fixed
        assert list(split.ranges) == [_SPEED]


def test_what_is_hashed_late_may_fix_fewer_operands_than_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by the hundred thousand sets: its parts come back from the graph in another order."""
    soon_hashed(monkeypatch)
    come_and_go(np.random.default_rng([7, 273]), SMALL)


def test_a_change_makes_a_segment_of_its_own() -> None:
    predicates = by_station(2000)
    stem, rows = stem_of(predicates), readings(200)
    stem.probe(rows)
    (family,) = stem._families.values()
    assert family.group is not None
    (large,) = family.group._segments
    more = by_station(10, seed=5)
    for id_, where in more.items():
        predicates[9000 + id_] = where
        stem.insert(9000 + id_, where)
    assert rows_by_predicate(stem.probe(rows)) == alone(predicates, rows)
    assert family.group._segments[0] is large


def test_codes_that_collide_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """By another seed among predicates, by comparison between a row and a predicate."""
    codes_of = combinations.codes_of
    seeds: list[int] = []

    def weak(key_columns: list[combinations.KeyColumn], seed: int) -> UInt64s:
        seeds.append(seed)
        bits = np.uint64(4 if len(set(seeds)) < 3 else 16)
        return codes_of(key_columns, seed) & ((np.uint64(1) << bits) - np.uint64(1))

    monkeypatch.setattr("querystem.index.hashed.combinations.codes_of", weak)
    monkeypatch.setattr("querystem.index.hashed.search.codes_of", weak)
    predicates = by_station(300)
    stem, rows = stem_of(predicates), readings(2000)
    assert rows_by_predicate(stem.probe(rows)) == alone(predicates, rows)
    assert len(set(seeds)) > 1


def test_texts_of_any_length_have_codes_of_their_own() -> None:
    texts = ["", "a", "b", "ab", "ba", "\0", "a\0", "a" * 8, "a" * 9, "a" * 16, "é", "日本" * 20]
    array = pa.array([*texts, *texts])
    distinct, places = Combinations.of([array])
    assert len(distinct) == len(texts)
    assert (places[: len(texts)] == places[len(texts) :]).all()
    column = ByteSlices.of(array.slice(3))
    rows, matched = distinct.find([column], combinations.codes_of([column], distinct.seed))
    assert rows.tolist() == list(range(len(array) - 3))
    assert matched.tolist() == places[3:].tolist()


def test_texts_are_read_in_columns_or_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    soon_hashed(monkeypatch)
    random = np.random.default_rng(7)
    shapes = Shapes(random)
    odd = ['a"b', "back\\slash", '["lit","TEXT","x"]', "x" * 300, "é", ""]
    predicates = {n: shapes.predicate() for n in range(200)}
    predicates |= {1000 + n: where for n, where in by_station(300, stations=20).items()}
    predicates |= {2000 + n: compare(Op.EQ, _NAME, odd[n % 6] + str(n // 12)) for n in range(200)}
    for n, speed in enumerate([0.0, 1e300, -5e-324, float("inf"), float("nan")] * 20):
        parts = [compare(Op.EQ, _LANE, n % 8), compare(Op.LE, _SPEED, speed)]
        predicates[3000 + n] = both(*parts, compare(Op.GT, _SPEED, float(n)))
        limit = [-(2**63), 2**63 - 1, 5][n % 3]
        parts = [compare(Op.EQ, _LANE, n), compare(Op.GE, _STATION, limit)]
        predicates[4000 + n] = both(*parts)
        parts = [compare(Op.EQ, _LANE, n % 8), compare(Op.LT, AFTER_NINE, n * MINUTE)]
        predicates[5000 + n] = both(*parts)
    stem, ids = QueryStem(), np.array(list(predicates))
    texts = [json.dumps(to_json(where), separators=(",", ":")) for where in predicates.values()]
    stem.insert_texts(ids, pa.array(texts))
    stem._check()
    rows = both_batches(random)
    assert rows_by_predicate(stem.probe(rows)) == alone(predicates, rows)
    assert len(stem) == len(predicates)


def both_batches(random: np.random.Generator) -> pa.RecordBatch:
    """Columns of `shapes` and of `readings`, with names that are asked for."""
    first, second = batch(random, 400), readings(400, stations=20)
    names = pa.array(
        [['a"b0', "x" * 300 + "1", "é2", "3", "back\\slash4"][n % 5] for n in range(400)]
    )
    columns_ = [*first.columns, *second.columns[:3], names]
    return pa.record_batch(columns_, names=[*first.schema.names, *second.schema.names])
