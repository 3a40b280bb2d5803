"""A radix sort of many rows gives the same order as comparing them."""

from __future__ import annotations

import numpy as np
import pytest

from datastem.arrays import Int64s
from datastem.instants import FOR_EVER, SINCE_EVER
from results.row_order import number_order, one_number, time_order


@pytest.mark.parametrize(
    ("instants", "ids"),
    [
        ((0, 1), (0, 10_000)),
        ((-(10**6), 10**6), (0, 2**20)),
        ((10**15, 10**15 + 2**31 - 1), (2**62, 2**62 + 2**31 - 1)),
        ((10**15, 10**15 + 2**31), (5, 2**31 + 5)),
        ((SINCE_EVER, FOR_EVER), (0, 2**62)),
        ((-(2**62), 2**62), (-(2**62), 2**62)),
    ],
)
def test_many_rows_in_the_order_of_time(instants: tuple[int, int], ids: tuple[int, int]) -> None:
    random = np.random.default_rng(3)
    for count in (4_096, 4_097, 20_000):
        ts = random.integers(*instants, count, endpoint=True)
        rows = random.integers(*ids, count, endpoint=True)
        ts[:2], rows[:2] = instants, ids
        order = time_order(ts, rows)
        assert order is not None and (order == np.lexsort((rows, ts))).all()
    assert time_order(np.sort(ts), np.arange(count)) is None


def test_instants_that_never_fall_are_sorted_by_the_rest() -> None:
    random = np.random.default_rng(4)
    ts = np.sort(random.integers(0, 2**62, 6))[random.integers(0, 6, 9_000)]
    for moments in (np.sort(ts), ts):
        ids = random.permutation(2**20)[: len(ts)]
        order = time_order(moments, ids)
        assert order is not None and (order == np.lexsort((ids, moments))).all()


SPANS = [(0, 1), (7, 8), (-3, 3), (0, 2**16), (-(2**40), 2**40), (-(2**63), 2**63 - 1)]


@pytest.mark.parametrize("seed", range(40))
def test_numbers_of_any_width_are_sorted_as_by_comparing(seed: int) -> None:
    random = np.random.default_rng(seed)

    def part(count: int) -> Int64s:
        low, high = SPANS[random.integers(len(SPANS))]
        few = random.integers(low, high, 1 + int(random.integers(count)))
        return few[random.integers(0, len(few), count)]

    for count in (1, 50, 5_000):
        parts = [part(count) for _ in range(1 + int(random.integers(4)))]
        order = np.lexsort(tuple(reversed(parts)))
        assert (number_order(parts) == order).all()
        number = one_number(parts)
        if number is not None:
            assert number.min() >= 0
            assert (np.argsort(number, kind="stable") == order).all()
