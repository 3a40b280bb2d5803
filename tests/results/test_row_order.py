"""Many rows are sorted by digits, and come out as they would by comparing."""

from __future__ import annotations

import numpy as np
import pytest

from datastem.instants import FOR_EVER, SINCE_EVER
from results.row_order import time_order


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
