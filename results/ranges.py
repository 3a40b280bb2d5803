"""Sets of integers as sorted, disjoint, half-open ranges."""

from __future__ import annotations

from collections.abc import Iterable

Range = tuple[int, int]


def union(ranges: Iterable[Range]) -> list[Range]:
    """Sorted, disjoint and as few as can be; empty ranges are left out."""
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
    """What of `[lo, hi)` is in none of the ranges, which must be as `union` gives them."""
    rest: list[Range] = []
    for other_lo, other_hi in ranges:
        if other_hi <= lo:
            continue
        if other_lo >= hi:
            break
        if other_lo > lo:
            rest.append((lo, other_lo))
        lo = max(lo, other_hi)
    if lo < hi:
        rest.append((lo, hi))
    return rest


def intersect(lo: int, hi: int, ranges: Iterable[Range]) -> list[Range]:
    """What of `[lo, hi)` is in the ranges."""
    return [(max(lo, a), min(hi, b)) for a, b in ranges if max(lo, a) < min(hi, b)]


def size(ranges: Iterable[Range]) -> int:
    return sum(hi - lo for lo, hi in ranges)
