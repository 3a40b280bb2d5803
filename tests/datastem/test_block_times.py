"""Blocks by time compared with a scan: in order or not, from either end and by the tree."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem import block_times
from datastem.block_times import BlockTimes
from datastem.blocks import BLOCK_ROWS
from datastem.segments import RowSegment, SegmentIndex

_instants = st.integers(0, 30)
_spans = st.tuples(_instants, _instants).map(lambda pair: (min(pair), max(pair)))
_changes = st.dictionaries(st.integers(0, 20), st.none() | _spans, max_size=8)


@pytest.fixture(params=["tree", "ends", "order"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Force one way of finding blocks: by the tree, from an end, or in their order."""
    if request.param != "order":
        monkeypatch.setattr(block_times, "SCAN_BELOW_BLOCKS", 0)
    if request.param == "tree":
        monkeypatch.setattr(block_times, "MIN_TREE_BLOCKS", 1)
        monkeypatch.setattr(block_times, "SCAN_SHARE_DIVISOR", 0)
        for name in ("TREE_PROBE_COST", "TREE_MATCH_COST", "TREE_EDGE_COST"):
            monkeypatch.setattr(block_times, name, 0)
        monkeypatch.setattr(block_times, "MAX_CHANGED_BLOCKS", 5)
    yield request.param


@given(st.lists(_changes, max_size=6), st.lists(st.tuples(st.none() | _instants, _instants)))
def test_oracle_overlapping(
    epochs: list[dict[int, tuple[int, int] | None]], intervals: list[tuple[int | None, int]]
) -> None:
    times, spans, versions = BlockTimes.nothing(), dict[int, tuple[int, int]](), list[BlockTimes]()
    for changes in epochs:
        times = times.changed(changes)
        spans = {n: span for n, span in {**spans, **changes}.items() if span is not None}
        times.follow()
        times._check()
        versions.append(times)
        for begin, end in intervals:
            expected = [
                number
                for number, (low, high) in sorted(spans.items())
                if low < end and (begin is None or begin < end and high >= begin)
            ]
            assert times.overlapping(begin, end) == expected
            for older in versions:
                older.overlapping(begin, end)


@given(_changes, _changes, _instants, _instants)
def test_who_has_older_blocks_finds_those(
    before: dict[int, tuple[int, int] | None],
    after: dict[int, tuple[int, int] | None],
    begin: int,
    end: int,
) -> None:
    old = BlockTimes.nothing().changed(before)
    old.follow()
    numbers = old.overlapping(begin, end)
    new = old.changed(after)
    new.follow()
    assert old.overlapping(begin, end) == numbers
    assert new.tree is old.tree


def test_a_tree_takes_so_many_at_a_time_and_answers_when_it_has_all(way: str) -> None:
    spans = {number: (100 - number, 200 + number % 3) for number in range(12)}
    times = BlockTimes.nothing().changed(spans)
    answers = []
    for _ in range(3):
        times.follow()
        answers.append(times.tree.probe(times, 0, 90))
        assert times.overlapping(0, 90) == [11]
    assert answers == ([None, None, [11]] if way == "tree" else [None] * 3)
    less = times.changed({11: None, 3: (0, 1)})
    less.follow()
    assert less.overlapping(0, 90) == [3]
    assert times.overlapping(0, 90) == [11]


def test_oracle_an_index_made_from_the_one_before() -> None:
    """Files are added, merged and removed: the index equals one that is made from scratch."""
    dice = random.Random(7)
    index, segments = SegmentIndex.of((), 0), list[RowSegment]()
    for high in range(1, 60):
        if segments and dice.random() < 0.4:
            first = dice.randrange(len(segments))
            neighbours = segments[first : first + 3]
            merged = _segment(dice, neighbours[0].row_lo, neighbours[-1].row_hi)
            segments[first : first + 3] = [merged] if first else []
        else:
            first = segments[-1].row_hi if segments else 0
            segments.append(_segment(dice, first, first + dice.choice((10, BLOCK_ROWS, 150_000))))
        index = SegmentIndex.of(segments, high, index)
        index._check()
        fresh = SegmentIndex.of(segments, high)
        assert index.segments == fresh.segments and index.least == fresh.least
        for derived_array, fresh_array in zip(_arrays(index), _arrays(fresh), strict=True):
            assert (derived_array == fresh_array).all()


def _segment(dice: random.Random, low: int, high: int) -> RowSegment:
    at = dice.randint(0, 1000)
    return RowSegment(low, high, at, at + dice.randint(0, 50), dice.random())


def _arrays(index: SegmentIndex) -> tuple[np.ndarray, ...]:
    return index.times.numbers, index.times.low, index.times.high
