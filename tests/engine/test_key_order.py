"""The driver's order of keyed rows equals the naive one, in memory and in mapped files."""

from __future__ import annotations

import logging
import tempfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from datastem.history import Closures
from datastem.keyed_rows import KeyedRows
from psoup.engine.steps import key_order
from psoup.engine.steps.key_order import KeyOrder, merge, parts_of
from tests.datastem.test_history import KEYED, batches, keyed, rows
from tests.oracle.keyed import Keyed

Row = dict[str, Any]
NO_IDS = np.empty(0, np.int64)


@pytest.fixture(autouse=True, params=[1 << 18, 5, 1])
def _sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all runs in memory, long ones, or hardly any."""
    monkeypatch.setattr(key_order, "MEMORY_ROWS", request.param)


def learn(ends: dict[int, int], closures: Closures) -> None:
    for row_id, end, by in zip(*map(np.ndarray.tolist, (closures.ids, closures.ends, closures.by)),
                               strict=True):  # fmt: skip
        assert row_id <= by
        ends[row_id] = min(end, ends.get(row_id, end))


@given(rows(), st.data())
def test_oracle_closures_and_ends(source: list[Row], data: DataObject) -> None:
    """Rows that came in any portions, some of which were stored before, have the ends of the
    naive history, although rows that ended were removed meanwhile."""
    portions = batches(data, source)
    stored = data.draw(st.integers(0, len(portions)))
    order = KeyOrder(data.draw(st.permutations([keyed(part) for part in portions[:stored]])))
    before = [row for part in portions[:stored] for row in part]
    ends = {row: end for row, end in KEYED.ends(before).items() if end is not None}
    removed: set[int] = set()
    for part in portions[stored:]:
        learn(ends, order.closures(keyed(part)))
        order.insert(keyed(part))
        before += part
        expected = {row: end for row, end in KEYED.ends(before).items() if end is not None}
        assert {id_: ends[id_] for id_ in expected.keys() - removed} == {
            id_: end for id_, end in expected.items() if id_ not in removed
        }
        cut = data.draw(st.integers(-1, 14))
        remaining = [row for row in before if row["row_id"] not in removed]
        retained = Keyed(("key",), reached=cut).retained(remaining, cut, 0)
        ended = order.ended(cut)
        assert ended.tolist() == sorted(
            {row["row_id"] for row in remaining} - {row["row_id"] for row in retained}
        )
        # Retention removes whole files, so some of the rows that have ended stay.
        chosen = ended[[data.draw(st.booleans()) for _ in ended]]
        order.remove(chosen)
        removed |= set(chosen.tolist())


@given(st.lists(rows(12), max_size=4))
def test_merged_runs_are_sorted(sources: list[list[Row]]) -> None:
    runs = [keyed(source).sorted() for source in sources]
    expected = KeyedRows.joined(runs).sorted()
    for merged in (merge(runs), KeyedRows.joined(list(parts_of(runs, NO_IDS)))):
        assert merged.keys.tolist() == expected.keys.tolist()
        assert merged.ts.tolist() == expected.ts.tolist()
    # Rows of several runs may have one id here; otherwise the order is complete.
    assert sorted(merged.ids.tolist()) == sorted(expected.ids.tolist())


def test_parts_are_small_whatever_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows of a stream may have one key."""
    monkeypatch.setattr(key_order, "MEMORY_ROWS", 64)
    ids = np.arange(1000)
    for keys in (np.zeros(1000, np.int64), ids % 3, ids * 2**50):
        whole = KeyedRows(keys, ids // 3, ids, np.zeros(1000, np.int8))
        runs = [whole.take(slice(0, 700)).sorted(), whole.take(slice(700, 1000)).sorted()]
        parts = list(parts_of(runs, NO_IDS))
        assert max(map(len, parts)) <= 64 + 2 * 3
        assert KeyedRows.joined(parts).ids.tolist() == whole.sorted().ids.tolist()


def test_a_full_disk_leaves_the_rows_in_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(key_order, "MEMORY_ROWS", 4)

    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    ids = np.arange(20)
    order = KeyOrder([KeyedRows(ids % 2, ids, ids, np.zeros(20, np.int8))])
    with caplog.at_level(logging.WARNING):
        closures = order.closures(
            KeyedRows(np.zeros(1, np.int64), np.array([7]), np.array([20]), np.zeros(1, np.int8))
        )
        order.insert(KeyedRows(ids % 2, ids + 20, ids + 21, np.zeros(20, np.int8)))
    assert "No space left" in caplog.text
    # Row 6 ends at 7 instead of 8, and the new row at 8.
    assert sorted(zip(closures.ids.tolist(), closures.ends.tolist(), strict=True)) == [
        (6, 7), (20, 8)
    ]  # fmt: skip
    assert order.ended(100).tolist() == [*range(20), *range(21, 39)]
