"""Pairs by predicate: the rows of each number are those of a dictionary of lists."""

from __future__ import annotations

import numpy as np
import pytest

from querystem.index.regroup import GroupedRows, in_order, regroup

pytestmark = pytest.mark.usefixtures("core_path")

# Fewer numbers than pairs, as many, and many more; the last take one, two and three digits to sort.
LIMITS = [1, 2, 100, 1000, 50_000, 1 << 21, 1 << 22, 2**31]


def _lists(groups: GroupedRows) -> list[tuple[int, list[int]]]:
    assert groups.counts.sum() == len(groups.rows)
    ends = np.cumsum(groups.counts)
    spans = zip(ends - groups.counts, ends, strict=True)
    rows = [groups.rows[begin:end].tolist() for begin, end in spans]
    return list(zip(groups.numbers.tolist(), rows, strict=True))


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("count", [0, 1, 2, 999, 20_000])
def test_oracle_rows_of_each_number(limit: int, count: int) -> None:
    random = np.random.default_rng(count + limit)
    numbers = random.integers(0, limit, count).astype(np.int32)
    rows = random.integers(-(2**31), 2**31, count).astype(np.int32)
    expected: dict[int, list[int]] = {}
    for number, row in zip(numbers.tolist(), rows.tolist(), strict=True):
        expected.setdefault(number, []).append(row)
    assert _lists(regroup(numbers, rows)) == sorted(expected.items())


def test_arrays_may_be_strided_or_of_longer_integers() -> None:
    numbers, rows = np.array([3, 0, 1, 0, 3, 0], np.int32)[::2], np.array([7, 8, 9])
    expected = [(1, [8]), (3, [7, 9])]
    assert _lists(regroup(numbers, rows)) == expected
    assert _lists(regroup(numbers, rows.astype(np.int32))) == expected


def test_parts_are_brought_in_order() -> None:
    parts = [
        GroupedRows(np.array([5, 1]), np.array([2, 0]), np.array([4, 6], np.int32)),
        GroupedRows(np.array([0, 9, 2]), np.array([1, 0, 3]), np.array([8, 1, 2, 3], np.int32)),
    ]
    assert _lists(in_order(parts)) == [(0, [8]), (2, [1, 2, 3]), (5, [4, 6])]
    empty = GroupedRows(np.array([3]), np.array([0]), np.empty(0, np.int32))
    assert _lists(in_order([empty])) == []
