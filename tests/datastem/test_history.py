"""The keyed history equals the naive one: late rows, equal ts, deletes, earlier knowledge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from datastem import history as module
from datastem.codec import HISTORY_COLUMNS, INSTANT
from datastem.equality import key_digests
from datastem.history import Closures, History, all_closures
from datastem.instants import FOR_EVER
from datastem.keyed_rows import KeyedRows
from tests.oracle.keyed import Keyed

KEYED = Keyed(("key",))
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prune the live rows at every insert."""
    monkeypatch.setattr(module, "PRUNE_AFTER_ROWS", 0)


def rows(size: int = 40) -> st.SearchStrategy[list[Row]]:
    fields = st.fixed_dictionaries(
        {"key": st.integers(0, 3), "ts": st.integers(0, 12), "_op": st.sampled_from(("", "delete"))}
    )
    return st.lists(fields, max_size=size).map(
        lambda drawn: [{**row, "row_id": place} for place, row in enumerate(drawn)]
    )


def keyed(source: list[Row]) -> KeyedRows:
    columns = [
        pa.array([row["key"] for row in source], pa.int64()),
        pa.array([row["ts"] for row in source], pa.int64()).view(INSTANT),
        pa.array([row["row_id"] for row in source], pa.int64()),
        pa.array([int(row["_op"] == "delete") for row in source], pa.int8()),
    ]
    return KeyedRows.of(pa.RecordBatch.from_arrays(columns, names=list(HISTORY_COLUMNS)))


def batches(data: DataObject, source: list[Row]) -> list[list[Row]]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(source)), max_size=8)))
    edges = [0, *cuts, len(source)]
    return [source[a:b] for a, b in zip(edges, edges[1:], strict=False)]


def built(parts: list[list[Row]]) -> History:
    history = History()
    for part in parts:
        history = history.insert(keyed(part), history.high + len(part))
        history._check()
    return history


@given(rows(), st.data())
def test_oracle_current_rows(source: list[Row], data: DataObject) -> None:
    history = built(batches(data, source))
    for high in range(len(source) + 1):
        prefix = Keyed(("key",), high).known(source)
        for instant in range(-1, 14):
            got = history.current(high, instant)
            expected = KEYED.current(prefix, instant)
            assert got.ids.tolist() == [row["row_id"] for row in expected]
            assert got.ts.tolist() == [row["ts"] for row in expected]


@given(rows(), st.data())
def test_oracle_retention(source: list[Row], data: DataObject) -> None:
    """Pruned or not, a row that had ended by the cut is never current, at any `high`."""
    cut = data.draw(st.integers(-1, 14))
    earlier = data.draw(st.integers(-1, cut))
    parts = batches(data, source)
    whole = built(parts)
    retained = Keyed(("key",), reached=cut).retained(source, cut, 0)
    pruned = built(parts[:-1]).prune(earlier).insert(keyed(parts[-1]), len(source))
    for history in (whole, whole.prune(cut), whole.prune(earlier), pruned):
        history._check()
        for high in range(0, len(source) + 1, 3):
            for instant in range(-1, 14, 2):
                expected = KEYED.current([r for r in retained if r["row_id"] < high], instant)
                got = history.current(high, instant, cut)
                assert got.ids.tolist() == [row["row_id"] for row in expected]


@given(rows(), st.data())
def test_oracle_closures(source: list[Row], data: DataObject) -> None:
    """The end of a row at any position is the least of its closures up to then."""
    history, learned = History(), []
    for part in batches(data, source):
        closures = history.closures(keyed(part))
        columns = (closures.ids.tolist(), closures.ends.tolist(), closures.by.tolist())
        learned += list(zip(*columns, strict=True))
        history = history.insert(keyed(part), history.high + len(part))
    for high in range(len(source) + 1):
        ends: dict[int, int | None] = dict.fromkeys(range(high))
        for row_id, end, by in learned:
            if by < high:
                assert row_id <= by
                old = ends[row_id]
                ends[row_id] = end if old is None else min(old, end)
        assert ends == KEYED.ends(source[:high])


@given(rows(), st.integers(1, 9), st.data())
def test_oracle_all_closures(source: list[Row], range_rows: int, data: DataObject) -> None:
    """Closed at once, by ranges of keys, rows have the closures of rows that came in portions."""
    # Digests, so that keys are in different ranges.
    digests = {0: -(2**63), 1: -1, 2: 2**62, 3: 12345}
    source = [{**row, "key": digests[row["key"]]} for row in source]
    history, learned = History(), list[Closures]()
    for part in batches(data, source):
        learned.append(history.closures(keyed(part)))
        history = history.insert(keyed(part), history.high + len(part))
    assert _triples(all_closures(keyed(source), range_rows)) == _triples(learned)


def _triples(closures: list[Closures]) -> list[tuple[int, int, int]]:
    parts = (
        zip(part.ids.tolist(), part.ends.tolist(), part.by.tolist(), strict=True)
        for part in closures
    )
    return sorted(triple for part in parts for triple in part)


def test_keys_are_spread_over_all_ranges() -> None:
    keys = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, 10_000)
    for count in (1, 7, 1000):
        ranges = module.key_ranges(keys, count)
        counts = np.bincount(ranges, minlength=count)
        assert len(counts) == count and counts.max() < 10 + 3 * len(keys) / count


def test_recent_instants_need_the_live_rows_only() -> None:
    """A thousand keys with a hundred rows each: only the last ones are read."""
    history = History()
    for turn in range(100):
        part = [{"key": k, "ts": turn, "row_id": turn * 1000 + k, "_op": ""} for k in range(1000)]
        history = history.insert(keyed(part), (turn + 1) * 1000)
    assert len(history) == 100_000
    assert len(history.live.runs) <= 4000
    assert history.live.since >= 95
    assert history.live.settled <= 98_000
    assert len(history.current(99_000, 97)) == 1000
    assert history.current(50_500, 60).ids.tolist() == [*range(49_500, 50_500)]


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ([pa.array([0.0])], [pa.array([-0.0])], True),
        ([pa.array([float("nan")])], [pa.array([-float("nan")])], True),
        ([pa.array(["ab"]), pa.array(["c"])], [pa.array(["a"]), pa.array(["bc"])], False),
        ([pa.array([1]), pa.array([2])], [pa.array([2]), pa.array([1])], False),
        ([pa.array([True])], [pa.array([False])], False),
        ([pa.array(["é"])], [pa.array(["é"])], True),
    ],
)
def test_key_digests(first: list[pa.Array], second: list[pa.Array], equal: bool) -> None:
    assert (key_digests(first)[0] == key_digests(second)[0]) == equal


def test_key_digests_stay_what_they_are() -> None:
    """Stems on disk hold these digests."""
    digests = key_digests([pa.array(["a", "b", "a"]), pa.array([1, 2, 1])])
    assert digests.dtype == np.int64
    assert digests[0] == digests[2] != digests[1]
    assert digests.tolist()[:2] == [-5101055812324535584, 4770688250002808650]


@given(rows(), st.data())
def test_what_changed_is_the_difference_of_what_was_current(
    source: list[Row], data: DataObject
) -> None:
    """Between any two ids, with NOW as the greatest ts below each."""
    history = built(batches(data, source))
    tops = [max((row["ts"] for row in source[:high]), default=0) for high in range(len(source) + 1)]
    for old in range(len(source) + 1):
        for new in range(old, len(source) + 1, 3):
            before = set(history.current(old, tops[old]).ids.tolist())
            after = set(history.current(new, tops[new]).ids.tolist())
            removed, added = history.changed(old, new, tops[old])
            assert removed.ids.tolist() == sorted(before - after)
            assert added.ids.tolist() == sorted(after - before)
            assert history.least_ts(old, new) == min(
                (row["ts"] for row in source[old:new]), default=FOR_EVER
            )


@given(rows(), st.data())
def test_oracle_rows_looked_up(source: list[Row], data: DataObject) -> None:
    """The row of a key that was current at an instant, as known from the ids below `high`."""
    history = built(batches(data, source))
    lookup = st.tuples(st.integers(0, 4), st.integers(-1, 13), st.integers(0, len(source)))
    lookups = data.draw(st.lists(lookup, max_size=20))
    keys, instants, highs = (
        np.array([values[n] for values in lookups], np.int64) for n in range(3)
    )
    expected = []
    for key, instant, high in lookups:
        candidates = [r for r in source[:high] if r["key"] == key and r["ts"] <= instant]
        last = max(candidates, key=lambda row: (row["ts"], row["row_id"]), default=None)
        expected.append(-1 if last is None or last["_op"] == "delete" else last["row_id"])
    assert history.current_at(keys, instants, highs).tolist() == expected
