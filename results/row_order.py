"""The order of rows by (ts, row_id): sorting them, and finding the newest ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s

# A point in the order of rows: (ts, row_id), compared in that order.
Moment = tuple[int, int]

# numpy sorts 16 bits by their digits, many times faster than it compares: even four times over that
# is faster than to compare pairs of numbers, unless rows are few.
_DIGIT, _MOST_BITS = 0xFFFF, 62
_FEW = 4096


@dataclass(frozen=True, slots=True)
class TimedRows:
    """The ts and the ids of some rows, at least one, with the least and the greatest ts."""

    ts: Int64s
    ids: Int64s
    low: int
    high: int


def time_order(ts: Int64s, ids: Int64s) -> Int64s | None:
    """The permutation that sorts rows by (ts, row_id), or None where they are sorted already."""
    if len(ts) < 2 or _rising(ts, ids):
        return None
    number = one_number((ts, ids)) if len(ts) > _FEW else None
    return np.lexsort((ids, ts)) if number is None else _by_digits(number)


def nth_newest(rows: Sequence[TimedRows], count: int) -> Moment | None:
    """The `count`-th newest of all rows; None where there are fewer. `count` is 1 or more.

    Only those of the `rows` are looked into that their bounds leave in doubt, and nothing is
    sorted.
    """
    sizes = np.array([len(some.ts) for some in rows], np.int64)
    if sizes.sum() < count:
        return None
    lows = np.array([some.low for some in rows], np.int64)
    highs = np.array([some.high for some in rows], np.int64)
    # The row looked for has a ts in [floor, ceiling]: that many rows are no older than `floor`,
    # and fewer than that many are newer than `ceiling`.
    floor = _reached(lows, sizes, count)
    ceiling = _reached(highs, sizes, count)
    need = count - int(sizes[lows > ceiling].sum())
    doubtful = [some for some in rows if some.low <= ceiling and some.high >= floor]
    ts = np.concatenate([some.ts for some in doubtful])
    ids = np.concatenate([some.ids for some in doubtful])
    instant = int(np.partition(ts, len(ts) - need)[len(ts) - need])
    level = ids[ts == instant]
    need -= int((ts > instant).sum())
    return instant, int(np.partition(level, len(level) - need)[len(level) - need])


def newest_of_each(codes: Int64s, ts: Int64s, ids: Int64s, count: int) -> Int64s:
    """The places of the newest `count` rows of each partition, ascending.

    `codes` are the partitions of the rows, numbered from 0.
    """
    if not len(codes):
        return np.empty(0, np.int64)
    order = _by_code(codes) if _rising(ts, ids) else np.lexsort((ids, ts, codes))
    ends = np.cumsum(np.bincount(codes))
    from_end = ends[codes[order]] - np.arange(len(order))
    return np.sort(order[from_end <= count])


def _rising(ts: Int64s, ids: Int64s) -> bool:
    after = (ts[1:] > ts[:-1]) | ((ts[1:] == ts[:-1]) & (ids[1:] > ids[:-1]))
    return bool(after.all())


def one_number(parts: Sequence[Int64s]) -> Int64s | None:
    """One number for each row, from 0, in the order that several numbers of it give, the first the
    most significant; None where it has no room. There is at least one row."""
    lows = [int(part.min()) for part in parts]
    spans = [int(part.max()) - low + 1 for part, low in zip(parts, lows, strict=True)]
    if math.prod(spans) > 1 << _MOST_BITS:
        return None
    number = parts[0] - lows[0]
    for part, low, span in zip(parts[1:], lows[1:], spans[1:], strict=True):
        number = number * span + (part - low)
    return number


def _by_digits(numbers: Int64s) -> Int64s:
    """The permutation that sorts numbers, none of them below 0; equal ones keep their order."""
    order = np.argsort((numbers & _DIGIT).astype(np.uint16), kind="stable")
    for shift in range(16, int(numbers.max()).bit_length(), 16):
        digits = ((numbers[order] >> shift) & _DIGIT).astype(np.uint16)
        order = order[np.argsort(digits, kind="stable")]
    return order


def _by_code(codes: Int64s) -> Int64s:
    narrow = codes.astype(np.uint16) if int(codes.max()) < 1 << 16 else codes
    return np.argsort(narrow, kind="stable")


def _reached(bounds: Int64s, sizes: Int64s, count: int) -> int:
    """The greatest bound such that the rows with a bound no less are at least `count`."""
    order = np.argsort(-bounds)
    place = int(np.searchsorted(np.cumsum(sizes[order]), count))
    return int(bounds[order[place]])
