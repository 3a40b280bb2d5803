"""Cohorts against a naive twin: for each predicate, the set of rows it has met."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from psoup.engine.coverage import Band, Cohort, Cohorts

STREAM = 7


def test_a_new_cohort_waits_for_what_is_below() -> None:
    coverage = Cohorts()
    coverage.start(STREAM, Cohort(1, 3, 100))
    assert coverage.pending(STREAM, 0) == 100
    assert coverage.bands(STREAM, 30, 0, 100) == [Band(((1, 3),), 70, 100)]


def test_cohorts_share_the_rows_neither_has_met() -> None:
    coverage = Cohorts()
    coverage.start(STREAM, Cohort(1, 3, 50))
    coverage.start(STREAM, Cohort(3, 4, 80))
    assert coverage.bands(STREAM, 60, 0, 80) == [
        Band(((3, 4),), 50, 80),
        Band(((1, 3), (3, 4)), 20, 50),
    ]


def test_rows_that_are_gone_are_not_waited_for() -> None:
    coverage = Cohorts()
    coverage.start(STREAM, Cohort(1, 2, 50))
    assert coverage.bands(STREAM, 100, 40, 50) == [Band(((1, 2),), 40, 50)]
    assert coverage.bands(STREAM, 100, 50, 50) == []
    assert coverage.pending(STREAM, 60) == 0


def test_a_pass_comes_to_its_end_while_others_keep_coming() -> None:
    """A cohort and ten rows a step, a slice of a hundred rows after it."""
    coverage, high, reached, slices = Cohorts(), 1000, 0, 0
    for number in range(60):
        coverage.start(STREAM, Cohort(number + 1, number + 2, high))
        high += 10
        top = coverage.top(STREAM, 0, reached)
        bands = coverage.bands(STREAM, 100, 0, top)
        slices += len(bands)
        reached = bands[-1].lo
        coverage.extend(STREAM, reached, top)
    complete = [one for one in coverage.cohorts(STREAM) if one.row_lo == 0]
    assert complete == [Cohort(1, complete[0].hi, 0)]
    assert complete[0].hi > 30


@given(st.lists(st.tuples(st.sampled_from(["register", "rows", "slice"]), st.integers(1, 40))))
def test_every_row_is_met_once_and_the_table_says_so(actions: list[tuple[str, int]]) -> None:
    coverage, high, next_id, reached = Cohorts(), 0, 1, 0
    met: dict[int, list[int]] = {}
    written = [coverage.table()]
    for action, amount in actions:
        if action == "register":
            written.append(coverage.start(STREAM, Cohort(next_id, next_id + amount, high)))
            met.update((one, []) for one in range(next_id, next_id + amount))
            next_id += amount
        elif action == "rows":
            for ids in met.values():
                ids.extend(range(high, high + amount))
            high += amount
        elif bands := coverage.bands(STREAM, amount, 0, top := coverage.top(STREAM, 0, reached)):
            for band in bands:
                for lo, hi in band.predicates:
                    for one in range(lo, hi):
                        met[one].extend(range(band.lo, band.hi))
            reached = bands[-1].lo
            written.append(coverage.extend(STREAM, reached, top))
        coverage._check()
        loaded = Cohorts.load(pa.concat_tables(written))
        assert loaded.cohorts(STREAM) == coverage.cohorts(STREAM)
        assert Cohorts.load(coverage.table()).cohorts(STREAM) == coverage.cohorts(STREAM)
        for cohort in coverage.cohorts(STREAM):
            for one in range(cohort.lo, cohort.hi):
                assert sorted(met[one]) == list(range(cohort.row_lo, high))
