"""Cohorts against a naive twin: for each predicate, the set of rows it was matched with."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from psoup.engine.coverage import Band, Cohort, Cohorts, Want, bands, pending, top

STREAM = 7


def test_a_want_waits_for_what_is_below() -> None:
    wants = [Want(1, 3, 100, 0)]
    assert pending(wants, 0) == 100
    assert bands(wants, 30, 0, 100) == [Band(((1, 3),), 70, 100)]


def test_wants_share_the_rows_neither_has_met() -> None:
    assert bands([Want(1, 3, 50, 0), Want(3, 4, 80, 0)], 60, 0, 80) == [
        Band(((3, 4),), 50, 80),
        Band(((1, 3), (3, 4)), 20, 50),
    ]


def test_a_want_ends_where_it_reaches_no_further() -> None:
    wants = [Want(1, 3, 80, 70), Want(3, 4, 80, 20), Want(4, 5, 40, 10)]
    assert bands(wants, 100, 0, 80) == [
        Band(((1, 3), (3, 4)), 70, 80),
        Band(((3, 4),), 40, 70),
        Band(((3, 4), (4, 5)), 20, 40),
        Band(((4, 5),), 10, 20),
    ]
    assert pending(wants, 0) == 60


def test_rows_that_nobody_wants_are_passed_over() -> None:
    assert bands([Want(1, 3, 80, 70), Want(3, 4, 40, 20)], 100, 0, 80) == [
        Band(((1, 3),), 70, 80),
        Band(((3, 4),), 20, 40),
    ]


def test_large_slices_end_with_a_block() -> None:
    (band,) = bands([Want(1, 2, 200_000, 0)], 65_536, 0, 200_000)
    assert (band.lo, band.hi) == (131_072, 200_000)


def test_rows_that_are_gone_are_not_waited_for() -> None:
    wants = [Want(1, 2, 50, 0)]
    assert bands(wants, 100, 40, 50) == [Band(((1, 2),), 40, 50)]
    assert bands(wants, 100, 50, 50) == []
    assert pending(wants, 60) <= 0


def every_row(coverage: Cohorts) -> list[Want]:
    """Wants that take all cohorts to the first row."""
    cohorts = coverage.cohorts(STREAM)
    return [Want(cohort.lo, cohort.hi, cohort.row_lo, 0) for cohort in cohorts if cohort.row_lo]


def test_a_pass_comes_to_its_end_while_others_keep_coming() -> None:
    """A cohort and ten rows a step, a slice of a hundred rows after it."""
    coverage, high, reached, slices = Cohorts(), 1000, 0, 0
    for number in range(60):
        coverage.start(STREAM, Cohort(number + 1, number + 2, high))
        high += 10
        wants = every_row(coverage)
        start = top(wants, reached)
        work = bands(wants, 100, 0, start)
        slices += len(work)
        reached = work[-1].lo
        coverage.extend(STREAM, [want for want in wants if want.row_lo <= start], reached)
    complete = [cohort for cohort in coverage.cohorts(STREAM) if cohort.row_lo == 0]
    assert complete == [Cohort(1, complete[0].hi, 0)]
    assert complete[0].hi > 30


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["register", "rows", "slice", "cut"]), st.integers(1, 40))
)


@given(ACTIONS, st.integers(1, 7))
def test_every_row_is_met_once_and_the_table_says_so(
    actions: list[tuple[str, int]], apart: int
) -> None:
    """Each predicate needs another part of the rows; cutting forgets some matches."""
    coverage, high, next_id, reached = Cohorts(), 0, 1, 0
    met: dict[int, list[int]] = {}
    written = [coverage.table()]
    for action, amount in actions:
        if action == "register":
            written.append(coverage.start(STREAM, Cohort(next_id, next_id + amount, high)))
            met.update((id_, []) for id_ in range(next_id, next_id + amount))
            next_id += amount
        elif action == "rows":
            for ids in met.values():
                ids.extend(range(high, high + amount))
            high += amount
        elif action == "cut" and coverage.cohorts(STREAM):
            levels = [amount * cohort.lo % (high + 1) for cohort in coverage.cohorts(STREAM)]
            for cohort, level in zip(coverage.cohorts(STREAM), levels, strict=True):
                for id_ in range(cohort.lo, cohort.hi):
                    met[id_] = [row for row in met[id_] if row >= level]
            coverage.cut(STREAM, levels)
            written = [coverage.table()]
        elif action == "slice":
            wants = _half_wants(coverage, apart)
            start = top(wants, reached)
            work = bands(wants, amount, 0, start)
            for band in work:
                for lo, hi in band.predicates:
                    for id_ in range(lo, hi):
                        met[id_].extend(range(band.lo, band.hi))
            if work:
                reached = work[-1].lo
                sharing = [want for want in wants if want.row_lo <= start]
                written.append(coverage.extend(STREAM, sharing, reached))
        coverage._check()
        loaded = Cohorts.load(pa.concat_tables(written))
        assert loaded.cohorts(STREAM) == coverage.cohorts(STREAM)
        assert Cohorts.load(coverage.table()).cohorts(STREAM) == coverage.cohorts(STREAM)
        for cohort in coverage.cohorts(STREAM):
            for id_ in range(cohort.lo, cohort.hi):
                assert sorted(met[id_]) == list(range(cohort.row_lo, high))


def _half_wants(coverage: Cohorts, apart: int) -> list[Want]:
    """Wants that take each cohort in two parts, down to different rows."""
    wants = []
    for cohort in coverage.cohorts(STREAM):
        middle = cohort.lo + (cohort.hi - cohort.lo) // 2
        for lo, hi in ((cohort.lo, middle), (middle, cohort.hi)):
            target = cohort.row_lo * (lo % apart) // (apart + 1)
            if lo < hi and target < cohort.row_lo:
                wants.append(Want(lo, hi, cohort.row_lo, target))
    return wants
