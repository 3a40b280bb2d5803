"""Erasures of a stream: their ids in a few bytes, and which keys they refuse for how long."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psoup.store import Position, State
from psoup.store.log.event_table import from_table, to_table
from psoup.store.log.events import Entry, RowsErased
from psoup.store.state.erasures import (
    NO_ERASURES,
    REFUSED_FOR,
    SALT_BYTES,
    Erasure,
    ids_from_text,
    ids_to_text,
    pack_ids,
    unpack_ids,
)
from results.masking import masked

SALT = bytes(range(SALT_BYTES))
IDS = st.sets(st.integers(0, 2**40), max_size=50).map(lambda ids: np.array(sorted(ids), np.int64))


@given(IDS)
def test_ids_are_packed_and_unpacked(ids: np.ndarray) -> None:
    assert unpack_ids(pack_ids(ids)).tolist() == ids.tolist()
    assert ids_from_text(ids_to_text(ids)).tolist() == ids.tolist()
    assert len(pack_ids(np.arange(10**6, 2 * 10**6))) <= 8


@pytest.mark.parametrize("packed", [b"\x80", b"\x01", b"\x01\x00", b"\xff" * 30 + b"\x01\x01"])
def test_other_bytes_are_refused(packed: bytes) -> None:
    with pytest.raises((ValueError, OverflowError)):
        unpack_ids(packed)


@given(st.lists(st.tuples(IDS, st.integers(0, 9), st.integers(0, 200)), max_size=8))
def test_erasures_are_those_of_a_naive_model(steps: list[tuple[np.ndarray, int, int]]) -> None:
    day, erasures, stamp = REFUSED_FOR // 90, NO_ERASURES, 0
    keys = np.arange(10)
    erased: dict[int, set[int]] = {}
    refused: dict[int, int] = {}
    for version, (ids, key, days) in enumerate(steps, 1):
        stamp += days * day
        digest = int(masked(keys, SALT)[key])
        erasures = erasures.add(Erasure(1, Position(version, 0), stamp, ids, digest), SALT)
        erased[version], refused[key] = set(ids.tolist()), stamp
    erasures._check()
    assert set(erasures.ids.tolist()) == set().union(*erased.values())
    for version in range(len(steps) + 1):
        later = set().union(*(ids for at, ids in erased.items() if at > version))
        assert set(erasures.since(Position(version, 0)).tolist()) == later
    for now in (stamp, stamp + 89 * day, stamp + 91 * day):
        expected = [key for key, at in sorted(refused.items()) if now - at < REFUSED_FOR]
        assert erasures.refused(keys, now).tolist() == expected


def test_an_event_is_written_and_read() -> None:
    event = RowsErased(7, ids_to_text(np.array([1, 5])), 12, SALT.hex())
    entry = Entry(Position(3, 0), 5, "main", "ann", event)
    assert from_table(3, to_table([entry])) == [entry]
    state = State()
    state.apply(entry)
    assert state.erased(7).ids.tolist() == [1, 5] and state.erased(7).salt == SALT
    draft = state.draft()
    draft.apply(Entry(Position(4, 0), 6, "main", "ann", RowsErased(7, "", None, SALT.hex())))
    assert len(state.erased(7).records) == 1 and len(draft.erased(7).records) == 2
