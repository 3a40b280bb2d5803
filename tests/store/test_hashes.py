"""The hash index compared with a dictionary, with hashes that collide."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from datastem.arrays import Int64s, Mask
from psoup.store.state.hash_index import HashIndex, hash_of, hashes_of

HASHES = st.sampled_from([0, 1, 2, 15, 16, 17, 2**32 - 1, 2**32 - 2, 12345])
OPERATIONS = st.lists(
    st.tuples(st.just("insert"), HASHES)
    | st.tuples(st.just("remove"), st.integers(0, 200))
    | st.tuples(st.just("many"), st.lists(HASHES, max_size=40)),
    max_size=30,
)


@given(OPERATIONS)
def test_rows_are_found_under_their_hash(operations) -> None:
    index, model = HashIndex(), {}
    rows = iter(range(100_000))
    for name, argument in operations:
        if name == "insert":
            row = next(rows)
            index.insert(argument, row)
            model[row] = argument
        elif name == "many":
            new = [next(rows) for _ in argument]
            index.insert_all(np.array(argument, np.uint32), np.array(new, np.int64))
            model.update(zip(new, argument, strict=True))
        elif model:
            row = sorted(model)[argument % len(model)]
            index.remove(model.pop(row), row)
        index._check()
    assert len(index) == len(model)
    for hash_ in set(model.values()) | {7}:
        expected = sorted(row for row, row_hash in model.items() if row_hash == hash_)
        assert sorted(index.candidates(hash_)) == expected
    _check_find(index, model)


def _check_find(index: HashIndex, model: dict[int, int]) -> None:
    keys = np.array([*model, 10**6], np.int64)
    hashes = np.array([*model.values(), 16], np.uint32)

    def same(places: Int64s, rows: Int64s) -> Mask:
        equal: Mask = keys[places] == rows
        return equal

    assert index.find(hashes, same).tolist() == [*model, -1]


@given(st.lists(st.tuples(st.integers(), st.text())))
def test_one_hash_at_a_time_or_all(keys) -> None:
    assert hashes_of(keys).tolist() == [hash_of(key) for key in keys]
