"""The strategies of the paper's experiments agree with each other, on little data."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paper import workload
from benchmarks.paper.complete import Rings
from benchmarks.paper.rates import KINDS, rates
from benchmarks.paper.response import STRATEGIES, responses
from benchmarks.paper.storage import storage

MAKERS = [workload.equality, workload.intervals, workload.inequalities, workload.traffic]


@pytest.mark.parametrize("make", MAKERS)
def test_all_strategies_find_the_same_rows(make) -> None:
    """`responses` compares every answer. The stream is longer than a block."""
    measured = responses(make(70_000, 24), [128, 1_000, 65_536], 1)
    assert [response.window for response in measured] == [128, 1_000, 65_536]
    for response in measured:
        assert set(response.find_ms) == set(response.take_ms) == set(STRATEGIES)
        assert all(response.find_ms[name] > 0 for name in STRATEGIES)


@pytest.mark.parametrize("batch", [64, 300, 4_096])
def test_shared_and_unshared_match_alike(batch: int) -> None:
    """`rates` compares what they find, and the answers PSoup-C keeps of it."""
    measured = rates(workload.inequalities(8_192, 40), 40, batch, 1_000, 0.0)
    assert set(measured.shared) == set(measured.unshared) == set(KINDS)


def test_storage_is_counted() -> None:
    small, large = storage(workload.intervals(4_096, 16), [256, 4_096])
    assert small.data < large.data
    assert small.partial < large.partial
    assert small.complete < large.complete
    assert large.bit_array == 16 * 4_096 // 8
    assert small.queries == large.queries > 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 12))))
def test_rings_are_queues(steps: list[tuple[int, int, int]]) -> None:
    rings, queues, value = Rings(4), [deque[int]() for _ in range(4)], 0
    for number, put, drop in steps:
        values = list(range(value, value + put))
        value += put
        rings.append(np.array([number]), np.array([put]), np.array(values, np.int64))
        queues[number].extend(values)
        drop = min(drop, len(queues[number]))
        rings.drop(np.array([number]), np.array([drop]))
        for _ in range(drop):
            queues[number].popleft()
        for ring, queue in enumerate(queues):
            assert rings.get(ring).tolist() == list(queue)
