"""LIKE is exact and linear, however hostile the pattern."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querystem.kernel.text import LongPattern, _tokens, like
from querystem.kernel.vector import of_text
from querystem.pace import paced
from tests.oracle import texts as oracle

# Few characters, so that pieces overlap and repeat; of one, two, three and four bytes.
_LETTERS = "ab\\\n"
_WIDE = "é日😀"
_texts = st.text(_LETTERS + _WIDE + "%_", max_size=40)
_patterns = st.lists(
    st.sampled_from(["%", "_", "a", "b", "ab", "aab", "\\%", "\\_", "\\\\", "\n", *_WIDE]),
    max_size=60,
).map("".join)


def like_each(pattern: str, *rows: str | None) -> list[bool | None]:
    vector = like(of_text(pa.array(rows, pa.string())), pattern)
    values = [bool(value) for value in vector.values]
    valid = [True] * len(rows) if vector.valid is None else vector.valid.tolist()
    return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]


@given(_patterns, st.lists(_texts | st.none(), max_size=8))
def test_oracle_like(pattern: str, rows: list[str | None]) -> None:
    expected = [None if row is None else oracle.like(row, pattern) for row in rows]
    assert like_each(pattern, *rows) == expected


@given(_patterns, _texts)
def test_differential_pieces_are_the_pattern(pattern: str, text: str) -> None:
    """Also where the pattern is so short that pieces would not be taken."""
    [matched] = LongPattern.of(_tokens(pattern)).among(pa.array([text], pa.string())).to_pylist()
    assert matched is oracle.like(text, pattern)


@given(_patterns, st.integers(0, 3))
def test_a_text_made_from_a_pattern_matches_it(pattern: str, width: int) -> None:
    tokens = _tokens(pattern + "%" * 40)
    wild = {b"%": "b" * width, b"_": "😀"}
    matching_text = "".join(token if isinstance(token, str) else wild[token] for token in tokens)
    assert like_each(pattern + "%" * 40, matching_text) == [True]


_HOSTILE = {
    "many pieces": ("%a" * 20_000, "a" * 60_000, True),
    "many pieces, none fits": ("%a" * 20_000 + "b", "a" * 60_000, False),
    "pieces that nearly fit": ("%" + "aab%" * 10_000, "aa" * 60_000, False),
    "one long piece": ("%" + "a" * 20_000 + "b%", "a" * 60_000, False),
    "a long piece with gaps": ("%" + "a_" * 20_000 + "b%", "a" * 60_000, False),
    "gaps only": ("%" + "_" * 40_000 + "%", "é" * 40_000, True),
    "gaps and a last letter": ("%" + "_" * 20_000 + "b", "a" * 30_000, False),
}


@pytest.mark.parametrize("name", _HOSTILE)
def test_hostile_patterns_are_counted_and_end(name: str) -> None:
    """The work is at most some steps a character, and some words of bits where a piece has _."""
    pattern, text, expected = _HOSTILE[name]
    spent: list[int] = []
    with paced(spent.append):
        assert like_each(pattern, text, None, "a") == [expected, None, False]
    assert sum(spent) <= len(text) * (300 + len(pattern) // 8)
