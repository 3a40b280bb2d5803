"""Sets of row ids: as sorted disjoint ranges, as runs for the wire, as ascending arrays.

A range `(lo, hi)` is half-open. Runs are a list of alternating counts: ids to skip, ids to take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from datastem.arrays import Int64s, Mask

Range = tuple[int, int]


# ---- ranges


def union(ranges: Iterable[Range]) -> list[Range]:
    """Return the ids of all the ranges as sorted disjoint ranges; empty ranges are left out."""
    merged: list[Range] = []
    for lo, hi in sorted(ranges):
        if lo >= hi:
            continue
        if merged and lo <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], hi)
        else:
            merged.append((lo, hi))
    return merged


def subtract(lo: int, hi: int, ranges: Iterable[Range]) -> list[Range]:
    """Return the ids of `[lo, hi)` that are in none of the ranges, which must be as `union` returns
    them."""
    remaining: list[Range] = []
    for other_lo, other_hi in ranges:
        if other_hi <= lo:
            continue
        if other_lo >= hi:
            break
        if other_lo > lo:
            remaining.append((lo, other_lo))
        lo = max(lo, other_hi)
    if lo < hi:
        remaining.append((lo, hi))
    return remaining


def intersect(lo: int, hi: int, ranges: Iterable[Range]) -> list[Range]:
    """Return the ids of `[lo, hi)` that are in the ranges."""
    return [(max(lo, a), min(hi, b)) for a, b in ranges if max(lo, a) < min(hi, b)]


def size(ranges: Iterable[Range]) -> int:
    """Return the number of ids in disjoint ranges."""
    return sum(hi - lo for lo, hi in ranges)


# ---- runs


def to_runs(ids: Int64s) -> list[int]:
    """Return the runs of ids from 0 upwards that ascend, each once."""
    if not len(ids):
        return []
    # The places at which a run of consecutive ids begins, except the first.
    breaks = np.flatnonzero(ids[1:] != ids[:-1] + 1) + 1
    starts = ids[np.concatenate([[0], breaks])]
    stops = ids[np.concatenate([breaks, [len(ids)]]) - 1] + 1
    skips = starts - np.concatenate([[0], stops[:-1]])
    runs: list[int] = np.column_stack([skips, stops - starts]).ravel().tolist()
    return runs


def from_runs(runs: Sequence[int], limit: int) -> Int64s:
    """Return the ids of runs, ascending.

    Raise ValueError if `runs` is no list of runs, or has more than `limit` ids.
    """
    if len(runs) % 2 or any(number < 1 for number in runs[1:]):
        raise ValueError("runs are pairs of numbers from 1 upwards, but for the first")
    # Doubles can't overflow; they are exact enough to refuse what int64 does not hold.
    double_lengths = np.array(runs[1::2], np.uint64).astype(np.float64)
    if double_lengths.sum() > limit:
        raise ValueError(f"more than {limit:,} ids")
    stops = np.cumsum(np.array(runs, np.float64))
    if len(stops) and stops[-1] >= 2.0**63:
        raise ValueError("ids are less than 2^63")
    counts = np.array(runs, np.int64)
    # Run n takes `lengths[n]` ids up to `ends[n]`, exclusive. `places[n]` counts the ids of the
    # runs up to and including it.
    ends, lengths = np.cumsum(counts)[1::2], counts[1::2]
    places = np.cumsum(lengths)
    total = int(places[-1]) if len(places) else 0
    ids: Int64s = np.arange(total) + np.repeat(ends - places, lengths)
    return ids


# ---- ascending arrays


def member(ids: Int64s, among: Int64s) -> Mask:
    """Return a mask of `ids`: true for those that are in `among`, which ascends."""
    if not len(among):
        return np.zeros(len(ids), np.bool_)
    places = np.searchsorted(among, ids)
    # An id past the last one gets place 0, whose id is smaller, so it is no member.
    places[places == len(among)] = 0
    is_member: Mask = among[places] == ids
    return is_member


def common_ids(left_ids: Int64s, right_ids: Int64s) -> Int64s:
    """Return the ids that are in both; each of the two ascends, and so does the result."""
    if len(left_ids) > len(right_ids):
        left_ids, right_ids = right_ids, left_ids
    if not len(left_ids):
        return left_ids
    places = np.minimum(right_ids.searchsorted(left_ids), len(right_ids) - 1)
    common: Int64s = left_ids[right_ids[places] == left_ids]
    return common


def all_ids(left_ids: Int64s, right_ids: Int64s) -> Int64s:
    """Return the ids that are in any of two ascending arrays, ascending."""
    if not len(left_ids) or not len(right_ids):
        return left_ids if len(left_ids) else right_ids
    both = np.sort(np.concatenate([left_ids, right_ids]), kind="stable")
    distinct: Int64s = both[np.append(True, both[1:] > both[:-1])]
    return distinct


def has_repeats(numbers: Int64s) -> bool:
    """Return True if any two of the numbers, in any order, are equal."""
    ascending = np.sort(numbers)
    return bool((ascending[1:] == ascending[:-1]).any())
