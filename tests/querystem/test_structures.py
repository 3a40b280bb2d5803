"""The structure that a query SteM says it has for a predicate: the one that finds its matches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest

from datastem.schema import StreamSchema
from datastem.types import BIGINT, DOUBLE, TEXT
from querystem.expressions import ColumnRef, Expression, Op
from querystem.index import QueryStem
from querystem.index.structures import Bitmaps
from querystem.structures import structure_text
from tests.querystem.shapes import Shapes, batch
from tests.querystem.test_index import alone, both, compare, either, rows_by_predicate
from tests.querystem.test_like_index import insert, like, stored_again
from tests.support.structures import found_by

_T, _A, _B = ColumnRef("t", TEXT), ColumnRef("a", BIGINT), ColumnRef("b", DOUBLE)


def _box(n: int, width: int = 2) -> Expression:
    return both(
        compare(Op.GE, _A, n),
        compare(Op.LE, _A, n + width),
        compare(Op.GE, _B, float(n)),
        compare(Op.LE, _B, float(n + width)),
    )


def _family(count: int, kind: str) -> dict[int, Expression]:
    makers = {
        "hashed": lambda n: compare(Op.EQ, _T, f"{n}"),
        "thresholds": lambda n: both(compare(Op.EQ, _A, n), compare(Op.LT, _B, float(n))),
        "both ends": lambda n: both(
            compare(Op.EQ, _A, n), compare(Op.LT, _B, n + 9.5), compare(Op.GT, _B, n - 9.5)
        ),
        "residual": lambda n: both(compare(Op.EQ, _A, n), like(f"%{n}", _T)),
        "boxes": lambda n: _box(n % 1000),
        "wide boxes": lambda n: _box(n % 7, 1_000_000),
        "prefixes": lambda n: like(f"{n:04}%", _T),
        "suffixes": lambda n: both(like(f"%{n:04}", _T), compare(Op.LT, _B, float(n))),
        "pieces": lambda n: like(f"%{n:04}%", _T),
        "either": lambda n: either(compare(Op.EQ, _T, f"{n}"), compare(Op.EQ, _A, n)),
        "ranges": lambda n: compare(Op.LT, _A, n),
    }
    return {n: makers[kind](n) for n in range(count)}


@pytest.mark.parametrize(
    ("kind", "count", "text"),
    [
        ("hashed", 200, "a hash table of t"),
        ("hashed", 100, "bitmaps, one for each distinct condition, then combined"),
        ("hashed", 2, "evaluated by itself"),
        ("hashed", 3, "bitmaps, one for each distinct condition, then combined"),
        ("thresholds", 200, "a hash table of a, then sorted bounds of b"),
        ("both ends", 200, "a hash table of a, then sorted bounds of b, then a check of the rest"),
        ("residual", 200, "a hash table of a, then a check of the rest"),
        ("boxes", 1000, "a grid of 64 × 64 cells over a, b, cut at quantiles; or bitmaps"),
        ("boxes", 200, "bitmaps, one for each distinct condition, then combined"),
        ("wide boxes", 3000, "a few rows are compared with every box; more by bitmaps"),
        ("prefixes", 200, "a table of prefixes of patterns of t"),
        ("suffixes", 200, "a table of suffixes of patterns of t, then sorted bounds of b"),
        ("pieces", 200, "a table of pieces of patterns of t"),
        ("either", 100, "one of: a hash table of a; or a hash table of t"),
        ("ranges", 200, "bitmaps, one for each distinct condition, then combined"),
    ],
)
def test_a_family_has_the_structure_that_finds_it(kind: str, count: int, text: str) -> None:
    predicates = _family(count, kind)
    stem = QueryStem()
    insert(stem, predicates)
    structures = {id_: stem.structure(id_) for id_ in predicates}
    assert {
        structure_text(structure, StreamSchema("s", ())) for structure in structures.values()
    } == {text}
    assert {structure.count for structure in structures.values()} == {count}
    rows = _rows(count)
    kinds = found_by(stem, rows)
    assert kinds.keys() == alone(predicates, rows).keys()
    assert kinds == {id_: type(structures[id_]) for id_ in kinds}
    again = stored_again(stem) if count >= 64 else stem
    assert {id_: again.structure(id_) for id_ in predicates} == structures


def _rows(count: int) -> pa.RecordBatch:
    """Rows that match a few predicates of every family."""
    numbers = np.array([1, 2, count // 2, count - 1])
    texts = [*[f"{n}" for n in numbers[:2]], *[f"{n:04}" for n in numbers[2:]]]
    return pa.record_batch([pa.array(texts), numbers, numbers - 0.25 + 0.25 * (numbers % 2)], "tab")


def test_families_of_one_stream_have_structures_of_their_own() -> None:
    """Whatever is inserted or removed beside them, one by one or many at once."""
    stem = QueryStem()
    predicates: dict[int, Expression] = {}
    families = {"thresholds": 300, "boxes": 600, "prefixes": 100, "either": 80, "ranges": 70}
    for number, (kind, count) in enumerate(families.items()):
        added = {10_000 * number + n: where for n, where in _family(count, kind).items()}
        insert(stem, added)
        predicates |= added
        stem.insert(5_000_000 + number, compare(Op.GT, _B, float(number)))
        predicates[5_000_000 + number] = compare(Op.GT, _B, float(number))
    for id_ in [*predicates][::9]:
        stem.remove(id_)
        del predicates[id_]
    rows = _rows(70)
    assert rows_by_predicate(stem.probe(rows)) == alone(predicates, rows)
    _check(stem, found_by(stem, rows))
    with pytest.raises(KeyError):
        stem.structure(99)


@pytest.mark.parametrize("seed", range(4))
def test_structures_of_random_predicates(seed: int) -> None:
    random = np.random.default_rng(seed)
    shapes = Shapes(random)
    predicates = {n: shapes.predicate() for n in range(400)}
    stem = QueryStem()
    insert(stem, predicates)
    for length in (1, 30, 200):
        _check(stem, found_by(stem, batch(random, length)))


def _check(stem: QueryStem, kinds: Mapping[int, type]) -> None:
    """A batch with many candidates is left to bitmaps by all structures but hash tables of whole
    families."""
    assert kinds
    for id_, kind in kinds.items():
        structure = stem.structure(id_)
        is_hashed = any(id_ in family for family in stem._families.values())
        assert kind is type(structure) or (kind is Bitmaps and not is_hashed)
