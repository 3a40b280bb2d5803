"""Ranges, bitmaps, coverage, cached matches and order, compared with sets of integers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results import id_sets
from results.bitmaps import decode, encode
from results.match_cache import MatchCache
from results.row_order import time_order
from results.stored_matches import MatchPieces, StreamCoverage

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8)
LOWS = st.sets(st.integers(0, 65535), max_size=50)


def members(spans: list[tuple[int, int]]) -> set[int]:
    return {n for lo, hi in spans for n in range(lo, hi)}


@given(SPANS, st.integers(0, 60), st.integers(0, 60))
def test_ranges_are_sets(spans: list[tuple[int, int]], lo: int, hi: int) -> None:
    joined = id_sets.union(spans)
    inside = set(range(lo, hi))
    assert members(joined) == members(spans)
    assert all(a[1] < b[0] for a, b in zip(joined, joined[1:], strict=False))
    assert members(id_sets.subtract(lo, hi, joined)) == inside - members(spans)
    assert members(id_sets.intersect(lo, hi, joined)) == inside & members(spans)
    assert id_sets.size(joined) == len(members(spans))


@given(LOWS)
def test_bitmaps_come_back(lows: set[int]) -> None:
    array = np.array(sorted(lows), np.uint16)
    content = encode(array)
    assert decode(content).tolist() == sorted(lows)
    assert encode(decode(content)) == content


def test_a_full_block_is_small() -> None:
    assert len(encode(np.arange(65536, dtype=np.int64).astype(np.uint16))) < 50


def test_coverage_follows_the_epoch() -> None:
    table = pa.table(
        {
            "predicate_lo": [1, 5, 1],
            "predicate_hi": [5, 6, 5],
            "row_lo": [100, 0, 40],
            "row_hi": pa.array([None, 50, 100], pa.int64()),
        }
    )
    coverage = StreamCoverage.of(table, 120)
    assert coverage.ranges(1) == [(40, 120)]
    assert coverage.at(130).ranges(4) == [(40, 130)]
    assert coverage.ranges(5) == [(0, 50)]
    assert coverage.ranges(6) == StreamCoverage.nothing().ranges(1) == []
    ids, first, stop = np.array([1, 4, 5, 9]), np.array([0, 50, 0, 0]), np.array([120, 100, 60, 9])
    assert coverage.covered_rows(ids, first, stop).tolist() == [80, 50, 50, 0]


@given(st.lists(st.tuples(st.integers(0, 3), SPANS, st.booleans()), max_size=10), LOWS)
def test_cached_matches_are_those_inserted(
    inserts: list[tuple[int, list[tuple[int, int]], bool]], lows: set[int]
) -> None:
    """Matches are inserted repeatedly, with more rows than their ranges, and in any order."""
    cache, block = MatchCache(10**6), 3
    base = block << 16
    truth = {n for n in lows if n < 60}
    heard: dict[int, set[int]] = {}
    for predicate, spans, generous in inserts:
        spans = id_sets.union(spans)
        inside = members(spans)
        matches = sorted(truth if generous else truth & inside)
        shifted = [(lo + base, hi + base) for lo, hi in spans]
        cache.insert(predicate, block, shifted, np.array(matches, np.uint16))
        heard.setdefault(predicate, set()).update(inside)
    for predicate, covered in heard.items():
        piece = cache.probe(predicate, block)
        missing = {n - base for n in members(piece.missing(base, base + 60))}
        assert missing == set(range(60)) - covered
        for n in covered:
            row_ids = piece.between(base + n, base + n + 1).tolist()
            assert row_ids == ([base + n] if n in truth else [])


def test_cached_matches_are_evicted() -> None:
    cache = MatchCache(5000)
    for block in range(100):
        cache.insert(1, block, [(block << 16, (block << 16) + 10)], np.arange(5, dtype=np.uint16))
    assert cache.used <= 5000
    assert cache.probe(1, 99).missing(99 << 16, (99 << 16) + 10) == []
    assert cache.probe(1, 0).missing(0, 10) == [(0, 10)]


def test_stored_pieces_are_found_by_predicate_and_block() -> None:
    stored = [(1, 0, [1, 2]), (1, 0, [7]), (1, 1, [3]), (4, 0, [0]), (4, 2, [65535])]
    table = pa.RecordBatch.from_pydict(
        {
            "predicate_id": [p for p, _, _ in stored],
            "block": [b for _, b, _ in stored],
            "bitmap": [encode(np.array(lows, np.uint16)) for _, _, lows in stored],
        }
    )
    pieces = MatchPieces(table)
    for predicate in range(6):
        for block in range(4):
            matches = [lows.tolist() for lows in pieces.find(predicate, block)]
            assert matches == [lows for p, b, lows in stored if (p, b) == (predicate, block)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 100)), unique_by=lambda x: x[1]))
def test_answers_are_in_order(rows: list[tuple[int, int]]) -> None:
    ts, ids = (np.array([row[side] for row in rows], np.int64) for side in (0, 1))
    places = time_order(ts, ids)
    if places is None:
        assert rows == sorted(rows)
    else:
        assert [rows[place] for place in places.tolist()] == sorted(rows)


def test_bytes_that_are_no_bitmap() -> None:
    for content in (b"", b"junk", encode(np.array([1, 9], np.uint16))[:-1]):
        with pytest.raises(ValueError):
            decode(content)
