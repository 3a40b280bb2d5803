"""Patterns that are searched together match what the kernel matches for each by itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from datastem.types import BIGINT, BOOLEAN, TEXT
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op, predicate_key
from querystem.index import QueryStem
from querystem.index.like import anchors, axis, checks, patterns
from querystem.index.like.patterns import Patterns
from querystem.index.matches import RowLists
from querystem.index.stored import ArrayReader, ArrayWriter
from querystem.kernel.text import like_matcher
from tests.querystem.test_index import alone, both, compare, either, rows_by_predicate

# Few characters, so that patterns match: wildcards, the escape, one of several bytes, one that
# combines with the one before, and one beyond the first plane.
_CHARACTERS = "ab%_\\é\u0301\U0001f600"
_PATTERN = st.one_of(
    st.text(_CHARACTERS, max_size=8),
    st.text(_CHARACTERS, max_size=8).map("%{}%".format),
    st.text("ab", min_size=6, max_size=80).map("{}%".format),
    st.text("ab", min_size=6, max_size=80).map("%{}".format),
    st.sampled_from(["", "%", "%%", "_", "\\", "\\\\", "%\\", "a" * 300, "a" * 300 + "%"]),
)
_TEXT = st.one_of(
    st.none(),
    st.text("abé\u0301\U0001f600%_\\\0\n", max_size=12),
    st.text("ab", min_size=8, max_size=90),
    st.integers(0, 400).map("a".__mul__),
)


def pairs_of(together: Patterns, texts: pa.Array) -> list[tuple[int, int]]:
    """Return the matching rows and patterns; raise if a pair comes twice."""
    pairs = [
        pair for rows, places in together.find(texts) for pair in zip(rows, places, strict=True)
    ]
    assert len(pairs) == len(set(pairs))
    return sorted((int(row), int(place)) for row, place in pairs)


def pairs_by_kernel(distinct: list[str], texts: pa.Array) -> list[tuple[int, int]]:
    columns = [like_matcher(pattern)(texts).fill_null(False).to_pylist() for pattern in distinct]
    return [
        (row, place)
        for row in range(len(texts))
        for place, column in enumerate(columns)
        if column[row]
    ]


@given(st.lists(_PATTERN, min_size=1, max_size=30, unique=True), st.lists(_TEXT, max_size=30))
@example(["%ab%", "%b%", "%aab%"], ["", None, "aaaaab" * 20, "b"])
def test_oracle_patterns(distinct: list[str], texts: list[str | None]) -> None:
    column = pa.array(["before", *texts], pa.string()).slice(1)
    together = Patterns.of(pa.array(distinct, pa.string()))
    assert pairs_of(together, column) == pairs_by_kernel(distinct, column)


@given(st.lists(_PATTERN, min_size=1, max_size=12, unique=True), st.lists(_TEXT, max_size=12))
def test_oracle_patterns_in_small_steps(distinct: list[str], texts: list[str | None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anchors, "_KEYS_AT_ONCE", 7)
        patch.setattr(anchors, "_CANDIDATES_AT_ONCE", 3)
        patch.setattr(checks, "_PLACES_AT_ONCE", 5)
        patch.setattr(checks, "_MAX_SEARCHED_BYTES", 20)
        patch.setattr(patterns, "_RUN_ROWS", 5)
        patch.setattr(patterns, "_RUN_BYTES", 40)
        patch.setattr(patterns, "_PAIRS_AT_ONCE", 4)
        test_oracle_patterns.hypothesis.inner_test(distinct, texts)  # type: ignore[attr-defined]


# ---- in the query SteM

_T, _A = ColumnRef("t", TEXT), ColumnRef("a", BIGINT)


def like(pattern: str, operand: Expression = _T) -> Call:
    return Call(Op.LIKE, (operand, Literal(pattern, TEXT)), BOOLEAN)


def predicates_of(distinct: list[str]) -> dict[int, Expression]:
    """Return predicates with these patterns, of each shape that a pattern has a place in."""
    predicates: dict[int, Expression] = {}
    for number, pattern in enumerate(distinct):
        shapes: list[Expression] = [
            like(pattern),
            Call(Op.NOT, (like(pattern),), BOOLEAN),
            both(like(pattern), compare(Op.LT, _A, number % 7)),
            either(like(pattern), compare(Op.EQ, _A, number % 7)),
            both(like("a%"), Call(Op.NOT, (like(pattern),), BOOLEAN)),
            like(pattern, Call(Op.LOWER, (_T,), TEXT)),
            like(pattern, Literal("ab", TEXT)),
            like(pattern),
        ]
        predicates |= {number * 10 + place: shape for place, shape in enumerate(shapes)}
    return predicates


def insert(stem: QueryStem, predicates: Mapping[int, Expression]) -> None:
    keys = [predicate_key(where) for where in predicates.values()]
    stem.insert_texts(np.array(list(predicates), np.int64), pa.array(keys, pa.string()))


def stored_again(stem: QueryStem) -> QueryStem:
    """Return the query SteM made of arrays, which may not be written to."""
    content, writer = stem.content(), ArrayWriter()
    assert content is not None
    form = writer.write(content)
    for array in writer.arrays:
        array.setflags(write=False)
    return ArrayReader(writer.arrays).read(form)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(_PATTERN, min_size=16, max_size=24),
    st.lists(_TEXT, min_size=1, max_size=70),
    st.sampled_from([0, 5, 64]),
    st.sampled_from([axis._MAX_PAIRS, 0]),
)
def test_oracle_predicates(
    given_patterns: list[str], texts: list[str | None], first: int, most_pairs: int
) -> None:
    """Many equal patterns, both parts and the tail, matches in lists and as bits."""
    rows = pa.record_batch(
        {"t": pa.array(texts, pa.string()), "a": pa.array([n % 9 for n in range(len(texts))])}
    )
    predicates = predicates_of(given_patterns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(axis, "_MAX_PAIRS", most_pairs)
        patch.setattr("querystem.index.built.reading.MIN_PREDICATES", 2)
        patch.setattr("querystem.index.probe._SOURCE_BYTES", 1)
        patch.setattr("querystem.index.probe._MIN_SLICE_WORDS", 1)
        stem = QueryStem()
        insert(stem, predicates)
        stem = stored_again(stem)
        for removed in list(predicates)[::3]:
            stem.remove(removed)
            del predicates[removed]
        for number, pattern in enumerate(given_patterns[:14]):
            predicates[1000 + number] = like(f"%{pattern}")
            stem.insert(1000 + number, predicates[1000 + number])
        stem._check()
        expected = {id_: [first + n for n in ids] for id_, ids in alone(predicates, rows).items()}
        assert rows_by_predicate(stem.probe(rows, first)) == expected


def test_many_predicates_of_a_pattern_are_lists() -> None:
    rows = pa.record_batch({"t": pa.array([f"name {number}" for number in range(100)])})
    stem, predicates = QueryStem(), {n: like(f"name {n}%") for n in range(100)}
    insert(stem, predicates)
    matches = stem.probe(rows)
    assert [type(part) for part in matches.parts] == [RowLists]
    assert rows_by_predicate(matches) == alone(predicates, rows)
    parts = [*stem.probe_slices(rows, lo=10, hi=20)]
    assert [len(part) for part in parts] == [10]


def test_pairs_that_are_too_many_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 patterns that match every one of 1,000 rows are 100,000 pairs."""
    monkeypatch.setattr(axis, "_MAX_PAIRS", 5000)
    rows = pa.record_batch({"t": pa.array(["abcdefghij" * 20] * 1000)})
    letters = "abcdefghij" * 20
    predicates: dict[int, Expression] = {n: like(f"%{letters[n : n + 9]}%") for n in range(100)}
    predicates |= {100 + n: like(f"%{letters[:n]}%") for n in range(1, 100)}
    stem = QueryStem()
    insert(stem, predicates)
    assert rows_by_predicate(stem.probe(rows)) == alone(predicates, rows)
