"""TEXT: counted in code points, cased one code point to one, and matched by LIKE.

LIKE takes time linear in the text, whatever the pattern. A pattern is cut at its % into pieces. The
first must begin the text and the last must end it. Each piece between is searched after the one
before: its leftmost place leaves most text to the pieces that follow, so no other place needs to be
tried. Common patterns are one Arrow call, and short ones a regular expression, whose automaton
stays small.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.types import BIGINT
from querystem.kernel.integers import INT64_MAX
from querystem.kernel.vector import Vector, boolean, both, of_text
from querystem.pace import spending

# A character of a pattern as text, a wildcard as bytes.
PatternToken: TypeAlias = str | bytes

# The automaton of a regular expression stays small up to these limits. Each _ after a character
# that may stand anywhere (a gap) may double it.
_MAX_REGEX_TOKENS, _MAX_REGEX_GAPS = 256, 8
_ANY, _ONE = b"%", b"_"

# The units of work (`querystem.pace`) of a text, of a byte of it, and of a step of Python.
_TEXT_UNITS, _BYTE_UNITS, _STEP_UNITS = 50, 4, 100
# How much text is matched between two reports of progress.
_SLICE_BYTES, _SLICE_CHARACTERS = 1 << 20, 16384
# The matchers of longer patterns are not cached: they may be large.
_MAX_CACHED_PATTERN = 256


def lower(operand: Vector) -> Vector:
    return of_text(pc.utf8_lower(operand.values))


def upper(operand: Vector) -> Vector:
    return of_text(pc.utf8_upper(operand.values))


def trim(operand: Vector) -> Vector:
    return of_text(pc.ascii_trim(operand.values, " "))


def length(operand: Vector) -> Vector:
    counts = pc.utf8_length(operand.values).fill_null(0).to_numpy(zero_copy_only=False)
    return Vector(BIGINT, counts.astype(np.int64), operand.valid)


def substring(text: Vector, start: Vector, count: Vector | None = None) -> Vector:
    """Return the code points at positions start <= p < start + count; NULL if count is negative."""
    valid = start.valid
    # `begin` counts from 0. A start below 1 still shortens the slice: `end` is counted from it.
    begin = np.maximum(start.values, 1) - 1
    if count is None:
        end = np.full(1, INT64_MAX)
    else:
        valid = both(both(valid, count.valid), count.values >= 0)
        end = _end(start, count)
    return _slices(text, begin, np.maximum(begin, end)).also_valid(valid)


def _end(start: Vector, count: Vector) -> Any:
    """Return start + count - 1, at most the greatest BIGINT."""
    counts = np.maximum(count.values, 0)
    # The count is cut so that start + count - 1 is at most the greatest int64.
    room = INT64_MAX - np.maximum(start.values, 1) + 1
    return start.values + np.minimum(counts, room) - 1


def _slices(text: Vector, begin: Any, end: Any) -> Vector:
    """Return the slice `[begin, end)` of each text, by one Arrow call for each distinct slice."""
    if len(begin) == len(end) == 1:
        return of_text(_slice(text.values, int(begin[0]), int(end[0])))
    rows = np.broadcast_shapes(begin.shape, end.shape, (len(text),))[0]
    # pairs[0] and pairs[1] are the begin and end of each row's slice. Sorted, rows with equal
    # slices stand together, and `edges` are the first of each further slice.
    pairs = np.stack([np.broadcast_to(begin, rows), np.broadcast_to(end, rows)])
    order = np.lexsort(pairs)
    pairs = pairs[:, order]
    edges = np.flatnonzero((np.diff(pairs) != 0).any(axis=0)) + 1
    places = np.zeros(rows, np.int64) if len(text) == 1 else order
    pieces = [
        _slice(text.values.take(pa.array(group)), *map(int, pairs[:, first]))
        for first, group in zip([0, *edges], np.split(places, edges), strict=True)
        if len(group)
    ]
    sliced = pa.chunked_array(pieces, pa.string()).combine_chunks()
    # argsort of a permutation is its inverse: it puts the slices back into the order of rows.
    return of_text(sliced.take(pa.array(np.argsort(order, kind="stable"))))


def _slice(array: pa.Array, begin: int, end: int) -> pa.Array:
    return pc.utf8_slice_codeunits(array, begin, end)


# ---- LIKE


def like(operand: Vector, pattern: str) -> Vector:
    """Return whether each text matches the pattern, whose escape is a backslash."""
    texts, spend = operand.values, spending()
    match = like_matcher(pattern)
    parts = []
    for run in _runs_of(texts):
        spend(len(run) * _TEXT_UNITS + run.nbytes * _BYTE_UNITS)
        parts.append(match(run))
    matched = pa.chunked_array(parts, pa.bool_()).fill_null(False)
    return boolean(matched.to_numpy(), operand.valid)


def like_matcher(pattern: str) -> Callable[[pa.Array], pa.Array]:
    """Return a function that says of each text of an Arrow array whether it matches the pattern;
    NULL for NULL."""
    return (_cached_matcher if len(pattern) <= _MAX_CACHED_PATTERN else _matcher)(pattern)


def spend_on(texts: pa.Array) -> None:
    """Report the work of reading these texts once."""
    spending()(len(texts) * _TEXT_UNITS + texts.nbytes * _BYTE_UNITS)


def _runs_of(texts: pa.Array) -> Iterator[pa.Array]:
    """Yield the texts in runs, each of which is matched in a few milliseconds."""
    if texts.nbytes <= _SLICE_BYTES:
        yield texts
        return
    # ends[k] is the number of bytes up to the end of text k.
    ends = pc.cumulative_sum(pc.binary_length(texts).fill_null(0).cast(pa.int64())).to_numpy()
    first = 0
    while first < len(texts):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(ends.searchsorted(before + _SLICE_BYTES)))
        yield texts.slice(first, last - first)
        first = last


def _matcher(pattern: str) -> Callable[[pa.Array], pa.Array]:
    """Return a function that says of each text of an Arrow array whether it matches the pattern."""
    tokens = _tokens(pattern)
    plain = "".join(token for token in tokens if isinstance(token, str))
    # One letter per token: x for a character of text, and the wildcards as they are.
    outline = "".join("x" if isinstance(token, str) else token.decode() for token in tokens)
    if re.fullmatch("x*", outline):
        return lambda array: pc.equal(array, plain)
    if re.fullmatch("x*%+", outline):
        return functools.partial(pc.starts_with, pattern=plain)
    if re.fullmatch("%+x*", outline):
        return functools.partial(pc.ends_with, pattern=plain)
    if re.fullmatch("%+x*%+", outline):
        return functools.partial(pc.match_substring, pattern=plain)
    gaps = sum(match[0].count("_") for match in re.finditer("x[x_]*", outline.partition("%")[2]))
    if len(tokens) <= _MAX_REGEX_TOKENS and gaps <= _MAX_REGEX_GAPS:
        return functools.partial(pc.match_substring_regex, pattern=_regex(tokens))
    return LongPattern.of(tokens).among


_cached_matcher = functools.lru_cache(maxsize=4096)(_matcher)


def _tokens(pattern: str) -> list[PatternToken]:
    tokens: list[PatternToken] = []
    escaped = False
    for character in pattern:
        if not escaped and character == "\\":
            escaped = True
            continue
        is_wildcard = not escaped and character in "%_"
        tokens.append(character.encode() if is_wildcard else character)
        escaped = False
    return [*tokens, "\\"] if escaped else tokens


def _regex(tokens: Sequence[PatternToken]) -> str:
    wildcards = {_ANY: ".*", _ONE: "."}
    body = "".join(
        re.escape(token) if isinstance(token, str) else wildcards[token] for token in tokens
    )
    return f"(?s)\\A{body}\\z"


# ---- long patterns


@dataclass(frozen=True)
class _Piece:
    """The part of a pattern between two %; `plain` is its text, or None if it has a _."""

    tokens: tuple[PatternToken, ...]
    plain: str | None

    @classmethod
    def of(cls, tokens: Sequence[PatternToken]) -> _Piece:
        texts = [token for token in tokens if isinstance(token, str)]
        return cls(tuple(tokens), "".join(texts) if len(texts) == len(tokens) else None)

    def __len__(self) -> int:
        return len(self.tokens)

    def stands_at(self, text: str, place: int) -> bool:
        if self.plain is not None:
            return text.startswith(self.plain, place)
        characters = text[place : place + len(self)]
        return len(characters) == len(self) and all(map(_fits, self.tokens, characters))

    def find(self, text: str, begin: int, end: int) -> int:
        """Return the leftmost place of the piece in `[begin, end)` of the text; -1 without one."""
        if self.plain is not None:
            return text.find(self.plain, begin, end)
        return self._find(text, begin, end)

    def _find(self, text: str, begin: int, end: int) -> int:
        """Read the text once. Bit n of `state` says that the first n + 1 tokens end at the
        character just read."""
        whole, state, spend = 1 << len(self) - 1, 0, spending()
        units = _STEP_UNITS + len(self) // 8
        for first in range(begin, end, _SLICE_CHARACTERS):
            characters = text[first : min(end, first + _SLICE_CHARACTERS)]
            spend(len(characters) * units)
            for place, character in enumerate(characters, first):
                # One shift moves all matches begun so far a token further, and the mask drops those
                # that the character does not fit.
                state = (state << 1 | 1) & self._bits.get(character, self._wild)
                if state & whole:
                    return place - len(self) + 1
        return -1

    @functools.cached_property
    def _wild(self) -> int:
        """A bit for each _."""
        return sum(1 << place for place, token in enumerate(self.tokens) if token == _ONE)

    @functools.cached_property
    def _bits(self) -> dict[str, int]:
        """The tokens that each character fits, as bits."""
        places: dict[str, int] = {}
        for place, token in enumerate(self.tokens):
            if isinstance(token, str):
                places[token] = places.get(token, 0) | 1 << place
        return {character: bits | self._wild for character, bits in places.items()}


def _fits(token: PatternToken, character: str) -> bool:
    return token in (_ONE, character)


@dataclass(frozen=True)
class LongPattern:
    """A pattern in pieces; without a % `last` is None and `first` is the whole pattern."""

    first: _Piece
    middle: tuple[_Piece, ...]
    last: _Piece | None

    @classmethod
    def of(cls, tokens: Sequence[PatternToken]) -> LongPattern:
        cuts = [place for place, token in enumerate(tokens) if token == _ANY]
        edges = zip([-1, *cuts], [*cuts, len(tokens)], strict=True)
        first, *pieces = (_Piece.of(tokens[begin + 1 : end]) for begin, end in edges)
        if not pieces:
            return cls(first, (), None)
        return cls(first, tuple(piece for piece in pieces[:-1] if len(piece)), pieces[-1])

    @functools.cached_property
    def least(self) -> int:
        """The length of the shortest text that may match."""
        return sum(map(len, [self.first, *self.middle, *([self.last] if self.last else [])]))

    def among(self, texts: pa.Array) -> pa.Array:
        """Return whether each text matches."""
        # Most texts are shorter than a long pattern, and need not become Python strings.
        long_enough = pc.greater_equal(pc.binary_length(texts), self.least).fill_null(False)
        spend = spending()
        matches: list[bool] = []
        for text in pc.filter(texts, long_enough).to_pylist():
            spend(_STEP_UNITS)
            matches.append(self._matches(text))
        unmatched = pa.array([False] * len(texts), pa.bool_())
        return pc.replace_with_mask(unmatched, long_enough, pa.array(matches, pa.bool_()))

    def _matches(self, text: str) -> bool:
        end = len(text) if self.last is None else len(text) - len(self.last)
        if len(text) < self.least or not self.first.stands_at(text, 0):
            return False
        if self.last is None:
            return len(text) == len(self.first)
        return self.last.stands_at(text, end) and self._middle_is_in(text, len(self.first), end)

    def _middle_is_in(self, text: str, place: int, end: int) -> bool:
        spend = spending()
        for piece in self.middle:
            place = piece.find(text, place, end)
            if place < 0:
                return False
            place += len(piece)
            spend(_STEP_UNITS)
        return True
