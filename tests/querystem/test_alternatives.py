"""Conjunctions with a LIKE, and disjunctions: the same matches as by the kernel alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datastem.types import BIGINT, BOOLEAN, DOUBLE, TEXT
from querystem.expressions import Call, ColumnRef, Expression, Op
from querystem.index import QueryStem
from querystem.index.built.alternatives import Alternatives
from querystem.index.matches import RowLists
from tests.querystem.test_hashed import soon_hashed
from tests.querystem.test_index import alone, both, compare, either, rows_by_predicate
from tests.querystem.test_like_index import insert, like, stored_again

_T, _U = ColumnRef("t", TEXT), ColumnRef("u", TEXT)
_A, _B = ColumnRef("a", BIGINT), ColumnRef("b", DOUBLE)
_WORDS = ("", "a", "ab", "abc", "b", "ba%", "é日", "a" * 300)
_PATTERNS = ("%", "a%", "%b", "%b%", "a_c", "_", "", "é%", "%a%b%", "ab", "a" * 300 + "%", "\\%")
_NUMBERS = (-(2**63), -1, 0, 1, 2, 2**63 - 1)
_DOUBLES = (float("-inf"), -0.0, 0.0, 1.5, float("inf"), float("nan"))

_equalities = st.one_of(
    st.sampled_from(_WORDS).map(lambda word: compare(Op.EQ, _T, word)),
    st.sampled_from(_WORDS).map(lambda word: compare(Op.EQ, _U, word)),
    st.sampled_from(_NUMBERS).map(lambda number: compare(Op.EQ, _A, number)),
)
_ranges = st.one_of(
    st.builds(
        compare, st.sampled_from([Op.LT, Op.GE, Op.NE]), st.just(_A), st.sampled_from(_NUMBERS)
    ),
    st.builds(compare, st.sampled_from([Op.LE, Op.GT]), st.just(_B), st.sampled_from(_DOUBLES)),
)
_likes = st.builds(like, st.sampled_from(_PATTERNS), st.sampled_from([_T, _U]))
_unlikes = _likes.map(lambda where: Call(Op.NOT, (where,), BOOLEAN))
_lowers = st.sampled_from(_PATTERNS).map(lambda text: like(text, Call(Op.LOWER, (_T,), TEXT)))
_factors = st.one_of(_equalities, _likes, _ranges, _unlikes, _lowers)
_conjunctions = st.lists(_factors, min_size=1, max_size=3).map(lambda parts: both(*parts))
_disjunctions = st.lists(_conjunctions, min_size=2, max_size=3).map(lambda parts: either(*parts))
_wheres = st.one_of(
    _conjunctions, _disjunctions, st.builds(lambda a, b: both(a, b), _disjunctions, _factors)
)
_rows = st.lists(
    st.tuples(
        *(st.none() | st.sampled_from(values) for values in (_WORDS, _WORDS, _NUMBERS, _DOUBLES))
    ),
    min_size=1,
    max_size=40,
)


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    types = [pa.string(), pa.string(), pa.int64(), pa.float64()]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(list(column), type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=["t", "u", "a", "b"])


def _check(stem: QueryStem, predicates: dict[int, Expression], batch: pa.RecordBatch) -> None:
    stem._check()
    for rows, first in ((batch, 0), (batch, 70), (batch.slice(0, 1), 3)):
        expected = {
            id_: [row + first for row in matched]
            for id_, matched in alone(predicates, rows).items()
        }
        assert rows_by_predicate(stem.probe(rows, first)) == expected


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    templates=st.lists(_wheres, min_size=1, max_size=6),
    rows=_rows,
    most=st.sampled_from([0, 30, 1 << 24]),
    is_hashed=st.booleans(),
    random=st.randoms(use_true_random=False),
)
def test_oracle_of_every_template(
    templates: list[Expression], rows: list[Any], most: int, is_hashed: bool, random: Any
) -> None:
    """Each template has many predicates, so that they are read in columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("querystem.index.built.reading.MIN_PREDICATES", 2)
        patch.setattr("querystem.index.built.alternatives.most_pairs", lambda *_: most)
        patch.setattr("querystem.index.stem._MIN_BUILT_PREDICATES", 2)
        patch.setattr("querystem.index.hashed.search._ROWS_PER_TAKEN_ROW", random.choice([0, 4]))
        if is_hashed:
            soon_hashed(patch)
        predicates = dict(
            enumerate(_varied(where, random) for where in templates for _ in range(20))
        )
        stem, batch = QueryStem(), _batch(rows)
        insert(stem, predicates)
        _check(stem, predicates, batch)
        if stem.content() is not None:
            stem = stored_again(stem)
            _check(stem, predicates, batch)
        for removed in random.sample(sorted(predicates), len(predicates) // 3):
            stem.remove(removed)
            del predicates[removed]
        _check(stem, predicates, batch)


def _varied(where: Expression, random: Any) -> Expression:
    """Return a predicate of the same shape with other constants."""
    pools = {_T: _WORDS, _U: _WORDS, _A: _NUMBERS, _B: _DOUBLES}
    if not isinstance(where, Call):
        return where
    if where.op in (Op.AND, Op.OR, Op.NOT):
        return Call(where.op, tuple(_varied(arg, random) for arg in where.args), where.type)
    operand = where.args[0]
    if where.op is Op.LIKE:
        return like(random.choice(_PATTERNS), operand)
    assert isinstance(operand, ColumnRef)
    return compare(where.op, operand, random.choice(pools[operand]))


@pytest.mark.parametrize(
    ("make", "accesses"),
    [
        (lambda n: both(like(f"name {n} %"), compare(Op.LT, _B, n / 7)), 1),
        (lambda n: either(compare(Op.EQ, _T, f"{n}"), compare(Op.EQ, _A, n)), 2),
        (lambda n: either(like(f"name {n} %"), both(compare(Op.EQ, _A, n), like("%x%", _U))), 2),
        (lambda n: either(like(f"%{n}"), compare(Op.LT, _B, n / 7)), 0),
    ],
)
def test_what_has_an_access_is_found_in_lists(make: Any, accesses: int) -> None:
    random = np.random.default_rng(1)
    batch = pa.record_batch(
        {
            "t": pa.array([f"name {n} x" for n in random.integers(0, 300, 100)]),
            "u": pa.array([f"{n} x" for n in random.integers(0, 300, 100)]),
            "a": random.integers(0, 300, 100),
            "b": random.uniform(0, 40, 100),
        }
    )
    predicates = {n: make(n) for n in range(200)}
    stem = QueryStem()
    insert(stem, predicates)
    assert not stem._families or all(f.group is None for f in stem._families.values())
    alternatives = [a for a in stem._parts[0].accesses if isinstance(a, Alternatives)]
    assert sum(len(each.accesses) for each in alternatives) == accesses
    matches = stem.probe(batch)
    assert rows_by_predicate(matches) == alone(predicates, batch)
    assert all(isinstance(part, RowLists) for part in matches.parts) == (accesses > 0)


def test_every_predicate_of_an_access_may_be_removed() -> None:
    """The others of the part stay, so that it is not built again."""
    predicates: dict[int, Expression] = {
        n: either(compare(Op.EQ, _T, f"{n}"), compare(Op.EQ, _A, n)) for n in range(70)
    }
    predicates |= {100 + n: both(like(f"{n}%"), compare(Op.LT, _B, 1.0)) for n in range(100)}
    stem, batch = QueryStem(), _batch([("1", None, 2, 0.5), (None, "1", None, None)])
    insert(stem, predicates)
    for removed in range(70):
        stem.remove(removed)
        del predicates[removed]
    assert len(stem._parts) == 1
    _check(stem, predicates, batch)
