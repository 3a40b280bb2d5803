"""Cohorts and pieces against a naive twin: for each predicate, the rows it was matched with.

Predicates are registered, set aside and released, rows come, back-fill takes slices, matches are
cut and merged, in any order. Each row is matched at most once until it is cut, and the table of the
coverage, read by the engine or by a server, says which were.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyroaring
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from datastem.blocks import BLOCK_BITS, BLOCK_MASK, BLOCK_ROWS
from psoup.engine.matching.coverage import OPEN, Cohort, Cohorts, Want, bands, top
from psoup.engine.steps import pieces
from psoup.store.layout import MATCHES
from results.id_sets import union
from results.stored_matches import StreamCoverage

STREAM = 7


def is_match(predicate: int, row: int) -> bool:
    return (row * 7 + predicate) % 3 == 0


def block_pieces(predicate: int, lo: int, hi: int) -> Iterable[dict[str, Any]]:
    """Yield the pieces that matching a predicate with the rows `[lo, hi)` makes."""
    for block in range(lo >> BLOCK_BITS, (max(lo, hi - 1) >> BLOCK_BITS) + 1):
        first, last = max(lo, block << BLOCK_BITS), min(hi, (block + 1) << BLOCK_BITS)
        rows = [row & BLOCK_MASK for row in range(first, last) if is_match(predicate, row)]
        if rows:
            bitmap = pyroaring.BitMap(rows).serialize()
            numbers = STREAM, 0, predicate, block, first, last, len(rows), bitmap
            yield dict(zip(MATCHES.names, numbers, strict=True))


class CoverageMachine(RuleBasedStateMachine):
    @initialize(first=st.sampled_from([0, BLOCK_ROWS - 40]))
    def begin(self, first: int) -> None:
        self.coverage, self.high, self.floor, self.reached = Cohorts(), first, first, 0
        self.quarantined: set[int] = set()
        self.met: dict[int, list[int]] = {}
        self.pieces = MATCHES.empty_table()
        self.written = [self.coverage.table()]

    def match(self, predicate: int, lo: int, hi: int) -> None:
        self.met[predicate].extend(range(lo, hi))
        rows = list(block_pieces(predicate, lo, hi))
        added = pa.Table.from_pylist(rows, schema=MATCHES)
        self.pieces = pa.concat_tables([self.pieces, added])

    @rule(count=st.integers(1, 5), failing=st.sets(st.integers(0, 4), max_size=2))
    def register(self, count: int, failing: set[int]) -> None:
        """Some predicates fail at once, so that no epoch has them without their quarantine."""
        # Ids between those of two cohorts belong to another stream.
        lo = max(self.met, default=0) + 3
        ids = range(lo, lo + count)
        bad = {lo + place for place in failing if place < count}
        cohort = Cohort.since(lo, lo + count, self.high)
        self.written.append(self.coverage.start(STREAM, cohort, sorted(bad)))
        self.met.update((id_, []) for id_ in ids)
        self.quarantined |= bad

    @rule(count=st.integers(1, 60))
    def insert(self, count: int) -> None:
        for predicate in self.met.keys() - self.quarantined:
            self.match(predicate, self.high, self.high + count)
        self.high += count

    @precondition(lambda self: self.met)
    @rule(data=st.data())
    def quarantine(self, data: st.DataObject) -> None:
        self.quarantined |= data.draw(st.sets(st.sampled_from(sorted(self.met)), min_size=1))
        self.coverage.close(STREAM, sorted(self.quarantined), self.high)
        self.written = [self.coverage.table()]

    @precondition(lambda self: self.quarantined)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        ids = data.draw(st.sets(st.sampled_from(sorted(self.quarantined)), min_size=1))
        self.quarantined -= ids
        self.written += [self.coverage.reopen(STREAM, id_, self.high) for id_ in sorted(ids)]

    @rule(rows=st.integers(1, 90), reach=st.integers(0, 100))
    def backfill(self, rows: int, reach: int) -> None:
        """Windows of every second predicate of a cohort reach all rows, the others to `reach`."""
        wants = [
            Want(lo, lo + 1, end, max(begin, 0 if lo % 2 else self.floor + reach))
            for cohort in self.coverage.cohorts(STREAM)
            for lo in range(cohort.lo, cohort.hi)
            for begin, end in cohort.gaps_above(self.floor)
        ]
        wants = [want for want in wants if max(want.target, self.floor) < want.row_lo]
        start = top(wants, self.reached)
        work = bands(wants, rows, self.floor, start)
        for band in work:
            for lo, hi in band.predicates:
                for predicate in self.met.keys() & range(lo, hi):
                    self.match(predicate, band.lo, band.hi)
        if work:
            self.reached = work[-1].lo if work[-1].lo > self.floor else 0
            sharing = [want for want in wants if want.row_lo <= start]
            self.written.append(self.coverage.extend(STREAM, sharing, self.reached))

    @rule(level=st.integers(0, 120), apart=st.integers(0, 9))
    def cut(self, level: int, apart: int) -> None:
        cohorts = self.coverage.cohorts(STREAM)
        levels = [
            min(self.floor + level + apart * (cohort.lo % 3), self.high) for cohort in cohorts
        ]
        for cohort, row_lo in zip(cohorts, levels, strict=True):
            self.forget(self.met.keys() & range(cohort.lo, cohort.hi), row_lo)
        self.coverage.cut(STREAM, levels)
        self.after_cut()

    @rule(level=st.integers(0, 120))
    def mend(self, level: int) -> None:
        level = min(self.floor + level, self.high)
        self.forget(self.met, level)
        self.coverage.raise_to(STREAM, level)
        self.after_cut()

    def forget(self, predicates: Iterable[int], row_lo: int) -> None:
        for id_ in predicates:
            self.met[id_] = [row for row in self.met[id_] if row >= row_lo]

    def after_cut(self) -> None:
        self.pieces = pieces.covered(self.pieces, self.coverage.cohorts(STREAM))
        self.written = [self.coverage.table()]

    @rule()
    def merge(self) -> None:
        self.pieces = self.merged()

    def merged(self) -> pa.Table:
        live = pa.array(sorted(self.met), pa.int64())
        return pieces.merge(self.pieces, live, self.coverage.interrupted(STREAM))

    @rule()
    def restart(self) -> None:
        """The next engine reads the table, which may have been compacted."""
        self.coverage = Cohorts.load(pa.concat_tables(self.written))
        self.written = [self.coverage.table()]
        self.reached = 0

    @invariant()
    def rows_are_met_once_and_the_table_says_so(self) -> None:
        self.coverage._check()
        loaded = Cohorts.load(pa.concat_tables(self.written))
        assert loaded.cohorts(STREAM) == self.coverage.cohorts(STREAM)
        assert Cohorts.load(self.coverage.table()).cohorts(STREAM) == loaded.cohorts(STREAM)
        covered = {
            id_: [(lo, min(hi, self.high)) for lo, hi in cohort.rows]
            for cohort in loaded.cohorts(STREAM)
            for id_ in range(cohort.lo, cohort.hi)
        }
        server = StreamCoverage.of(pa.concat_tables(self.written), self.high)
        ids = np.array(sorted(self.met), np.int64)
        firsts, stops = ids * 5 % 97, np.full_like(ids, self.high)
        counts = server.covered_rows(ids, firsts, stops).tolist()
        for id_, first, count in zip(ids.tolist(), firsts.tolist(), counts, strict=True):
            # What is said of rows that are gone does not matter.
            rows = {row for lo, hi in covered[id_] for row in range(max(lo, self.floor), hi)}
            assert sorted(self.met[id_]) == sorted(rows), "each row once"
            assert server.ranges(id_) == union(covered[id_])
            assert count == sum(max(0, hi - max(lo, first)) for lo, hi in covered[id_])
        for cohort in self.coverage.cohorts(STREAM):
            if self.met.keys() & range(cohort.lo, cohort.hi) & self.quarantined:
                assert not cohort.is_open and not cohort.gaps
                assert not cohort.covers(0, OPEN)

    @invariant()
    def merged_pieces_are_disjoint_and_hold_the_matches(self) -> None:
        rows: dict[int, list[int]] = {id_: [] for id_ in self.met}
        ranges: dict[int, list[tuple[int, int]]] = {id_: [] for id_ in self.met}
        for piece in self.merged().to_pylist():
            lows = pyroaring.BitMap.deserialize(piece["bitmap"])
            first = piece["block"] << BLOCK_BITS
            rows[piece["predicate_id"]] += [first + low for low in lows]
            ranges[piece["predicate_id"]].append((piece["lo"], piece["hi"]))
        for id_, met in self.met.items():
            assert sorted(rows[id_]) == [row for row in sorted(met) if is_match(id_, row)]
            ends = sorted(ranges[id_])
            assert all(a[1] <= b[0] for a, b in zip(ends, ends[1:], strict=False))
            assert all(set(range(lo, hi)) <= set(met) for lo, hi in ends), "no piece over a gap"


TestCoverage = CoverageMachine.TestCase
TestCoverage.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
