"""The order of rows by (ts, row_id): sorting them, and finding the newest ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s, UInt64s

# A point in the order of rows: (ts, row_id), compared in that order.
Moment = tuple[int, int]

# numpy sorts 16-bit numbers with a radix sort. Four passes of it are faster than comparing 64-bit
# numbers, unless rows are few.
_DIGIT_BITS, _DIGITS = 16, 4
_MAX_SPAN = 1 << 62
LEXSORT_MAX_ROWS = 4096


@dataclass(frozen=True, slots=True)
class TimedRows:
    """The ts and the ids of some rows, at least one, with the least and the greatest ts."""

    ts: Int64s
    ids: Int64s
    low: int
    high: int


def time_order(ts: Int64s, ids: Int64s) -> Int64s | None:
    """Return the permutation that sorts rows by (ts, row_id), or None if they are sorted
    already."""
    if len(ts) < 2 or _rising(ts, ids):
        return None
    return number_order((_narrowed(ts), ids))


def number_order(parts: Sequence[Int64s]) -> Int64s:
    """Return the permutation that sorts rows by several numbers, the first the most significant;
    equal rows keep their order."""
    if len(parts[0]) <= LEXSORT_MAX_ROWS:
        return np.lexsort(tuple(reversed(parts)))
    order: Int64s | None = None
    for packed in reversed(_packed(parts)):
        order = _by_digits(packed, order)
    return np.arange(len(parts[0])) if order is None else order


def nth_newest(rows: Sequence[TimedRows], count: int) -> Moment | None:
    """Return the `count`-th newest of all rows; None if there are fewer. `count` is 1 or more.

    Only those of the `rows` are read that their bounds leave in doubt, and nothing is sorted.
    """
    sizes = np.array([len(run.ts) for run in rows], np.int64)
    if sizes.sum() < count:
        return None
    lows = np.array([run.low for run in rows], np.int64)
    highs = np.array([run.high for run in rows], np.int64)
    # The wanted row has a ts in [floor, ceiling]: at least `count` rows are no older than `floor`,
    # and fewer than `count` are newer than `ceiling`.
    floor = _reached(lows, sizes, count)
    ceiling = _reached(highs, sizes, count)
    need = count - int(sizes[lows > ceiling].sum())
    doubtful = [run for run in rows if run.low <= ceiling and run.high >= floor]
    ts = np.concatenate([run.ts for run in doubtful])
    ids = np.concatenate([run.ids for run in doubtful])
    instant = int(np.partition(ts, len(ts) - need)[len(ts) - need])
    level = ids[ts == instant]
    # Rows of that ts are ordered by id, after all newer rows.
    need -= int((ts > instant).sum())
    return instant, int(np.partition(level, len(level) - need)[len(level) - need])


def newest_of_each(codes: Int64s, ts: Int64s, ids: Int64s, count: int) -> Int64s:
    """Return the places of the newest `count` rows of each partition, ascending.

    `codes` are the partitions of the rows, numbered from 0.
    """
    if not len(codes):
        return np.empty(0, np.int64)
    order = _by_code(codes) if _rising(ts, ids) else np.lexsort((ids, ts, codes))
    # In `order` partition c ends at `ends[c]`. `from_end` is 1 for its newest row, 2 for the one
    # before, and so on.
    ends = np.cumsum(np.bincount(codes))
    from_end = ends[codes[order]] - np.arange(len(order))
    return np.sort(order[from_end <= count])


def _rising(ts: Int64s, ids: Int64s) -> bool:
    after = (ts[1:] > ts[:-1]) | ((ts[1:] == ts[:-1]) & (ids[1:] > ids[:-1]))
    return bool(after.all())


def one_number(parts: Sequence[Int64s]) -> Int64s | None:
    """Return one number for each row, from 0, in the order of several numbers of it, the first the
    most significant; None if int64 is too small. There is at least one row."""
    packed = _packed(parts)
    if not packed:
        return np.zeros(len(parts[0]), np.int64)
    if len(packed) > 1 or packed[0].span > _MAX_SPAN:
        return None
    return packed[0].numbers.view(np.int64)


@dataclass(frozen=True, slots=True)
class _Packed:
    """Numbers of rows from 0 up to `span`, in the order of one or several numbers of the rows."""

    numbers: UInt64s
    span: int


def _packed(parts: Sequence[Int64s]) -> list[_Packed]:
    """Return as few numbers per row as fit that give rows the order of `parts`, the first the most
    significant. A part that is equal for all rows is left out."""
    packed: list[_Packed] = []
    for part in parts:
        low, high = int(part.min()), int(part.max())
        span = high - low + 1
        if span == 1:
            continue
        # The difference may overflow int64; read as uint64 it is right.
        numbers = (part - np.int64(low)).view(np.uint64)
        if packed and packed[-1].span * span <= _MAX_SPAN:
            before = packed.pop()
            numbers += before.numbers * np.uint64(span)
            span *= before.span
        packed.append(_Packed(numbers, span))
    return packed


def _by_digits(packed: _Packed, order: Int64s | None) -> Int64s:
    """Return the permutation that sorts the packed numbers; equal ones keep the order `order`, or
    their own."""
    # The lowest digit comes first. Each pass is stable, so it keeps the order of earlier passes
    # among equal digits.
    digits = packed.numbers.astype("<u8", copy=False).view("<u2").reshape(-1, _DIGITS)
    for column in range(-(-(packed.span - 1).bit_length() // _DIGIT_BITS)):
        digit = np.ascontiguousarray(digits[:, column])
        if order is None:
            order = np.argsort(digit, kind="stable")
        else:
            order = order[np.argsort(digit[order], kind="stable")]
    assert order is not None, "a span has at least one digit"
    return order


def _narrowed(ts: Int64s) -> Int64s:
    """Return numbers in the order of some instants: small ones if the instants never fall."""
    if (ts[1:] < ts[:-1]).any():
        return ts
    # Ranks of the instants: their span is small, so that they pack into one number with the id.
    numbers = np.zeros(len(ts), np.int64)
    np.cumsum(ts[1:] > ts[:-1], out=numbers[1:])
    return numbers


def _by_code(codes: Int64s) -> Int64s:
    narrow = codes.astype(np.uint16) if int(codes.max()) < 1 << 16 else codes
    return np.argsort(narrow, kind="stable")


def _reached(bounds: Int64s, sizes: Int64s, count: int) -> int:
    """Return the greatest bound such that the rows with a bound no less are at least `count`."""
    # By descending bound: the running sum of sizes reaches `count` at the bound sought.
    order = np.argsort(-bounds)
    place = int(np.searchsorted(np.cumsum(sizes[order]), count))
    return int(bounds[order[place]])
