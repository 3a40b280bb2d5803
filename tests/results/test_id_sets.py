"""Sets of ids, converted to runs and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.id_sets import all_ids, from_runs, has_repeats, member, to_runs

IDS = st.sets(st.one_of(st.integers(0, 40), st.integers(0, 2**63 - 2**11)), max_size=40)


@given(IDS)
def test_there_and_back(ids: set[int]) -> None:
    array = np.array(sorted(ids), np.int64)
    assert from_runs(to_runs(array), 1000).tolist() == sorted(ids)


def test_the_example_of_the_wire() -> None:
    assert to_runs(np.array([3, 4, 9])) == [3, 2, 4, 1]
    assert from_runs([0, 2], 2).tolist() == [0, 1]


@pytest.mark.parametrize("runs", [[1], [1, 0], [0, 1, 0, 1], [0, 2**64 - 1], [2**63, 1], [0, 11]])
def test_what_is_no_set_is_refused(runs: list[int]) -> None:
    with pytest.raises(ValueError):
        from_runs(runs, 10)


@given(IDS, IDS)
def test_member(ids: set[int], among: set[int]) -> None:
    arrays = [np.array(sorted(members), np.int64) for members in (ids, among)]
    assert member(*arrays).tolist() == [row_id in among for row_id in sorted(ids)]


@given(IDS, IDS)
def test_ids_of_two_sets(first: set[int], second: set[int]) -> None:
    arrays = [np.array(sorted(ids), np.int64) for ids in (first, second)]
    assert all_ids(*arrays).tolist() == sorted(first | second)


@given(st.lists(st.integers(0, 60), max_size=20))
def test_repeats(numbers: list[int]) -> None:
    assert has_repeats(np.array(numbers, np.int64)) == (len(set(numbers)) < len(numbers))
