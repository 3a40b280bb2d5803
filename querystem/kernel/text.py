"""TEXT: counted in code points, cased one code point to one."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.types import BIGINT
from querystem.kernel.integers import INT64_MAX
from querystem.kernel.vector import Vector, boolean, both, of_text


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
    """The code points at positions start <= p < start + count; NULL where count is negative."""
    valid = start.valid
    begin = np.maximum(start.values, 1) - 1
    if count is None:
        end = np.full(1, INT64_MAX)
    else:
        valid = both(both(valid, count.valid), count.values >= 0)
        end = _end(start, count)
    return _slices(text, begin, np.maximum(begin, end)).also_valid(valid)


def like(operand: Vector, pattern: str) -> Vector:
    found = _matcher(pattern)(operand.values)
    return boolean(found.fill_null(False).to_numpy(zero_copy_only=False), operand.valid)


def _end(start: Vector, count: Vector) -> Any:
    """start + count - 1, at most the greatest BIGINT."""
    counts = np.maximum(count.values, 0)
    room = INT64_MAX - np.maximum(start.values, 1) + 1
    return start.values + np.minimum(counts, room) - 1


def _slices(text: Vector, begin: Any, end: Any) -> Vector:
    """One Arrow call for each distinct slice."""
    if len(begin) == len(end) == 1:
        return of_text(_slice(text.values, int(begin[0]), int(end[0])))
    rows = np.broadcast_shapes(begin.shape, end.shape, (len(text),))[0]
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
    return of_text(sliced.take(pa.array(np.argsort(order, kind="stable"))))


def _slice(array: pa.Array, begin: int, end: int) -> pa.Array:
    return pc.utf8_slice_codeunits(array, begin, end)


@functools.lru_cache(maxsize=4096)
def _matcher(pattern: str) -> Any:
    """A function of an Arrow array: which values match the LIKE pattern."""
    tokens = _tokens(pattern)
    plain = "".join(token for token in tokens if isinstance(token, str))
    shape = "".join("x" if isinstance(token, str) else token.decode() for token in tokens)
    if re.fullmatch("x*", shape):
        return lambda array: pc.equal(array, plain)
    if re.fullmatch("x*%+", shape):
        return functools.partial(pc.starts_with, pattern=plain)
    if re.fullmatch("%+x*", shape):
        return functools.partial(pc.ends_with, pattern=plain)
    if re.fullmatch("%+x*%+", shape):
        return functools.partial(pc.match_substring, pattern=plain)
    return functools.partial(pc.match_substring_regex, pattern=_regex(tokens))


def _tokens(pattern: str) -> list[str | bytes]:
    """Plain characters as text, wildcards as bytes."""
    tokens: list[str | bytes] = []
    escaped = False
    for character in pattern:
        if not escaped and character == "\\":
            escaped = True
            continue
        is_wildcard = not escaped and character in "%_"
        tokens.append(character.encode() if is_wildcard else character)
        escaped = False
    return [*tokens, "\\"] if escaped else tokens


def _regex(tokens: list[str | bytes]) -> str:
    wildcards = {b"%": ".*", b"_": "."}
    body = "".join(
        re.escape(token) if isinstance(token, str) else wildcards[token] for token in tokens
    )
    return f"(?s)\\A{body}\\z"
