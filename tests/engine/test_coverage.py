"""The order in which back-fill works; `test_coverage_machine` has cohorts against a naive twin."""

from __future__ import annotations

from psoup.engine.matching.coverage import Band, Cohort, Cohorts, Want, bands, pending, top

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
        coverage.start(STREAM, Cohort.since(number + 1, number + 2, high))
        high += 10
        wants = every_row(coverage)
        start = top(wants, reached)
        work = bands(wants, 100, 0, start)
        slices += len(work)
        reached = work[-1].lo
        coverage.extend(STREAM, [want for want in wants if want.row_lo <= start], reached)
    complete = [cohort for cohort in coverage.cohorts(STREAM) if cohort.row_lo == 0]
    assert complete == [Cohort.since(1, complete[0].hi, 0)]
    assert complete[0].hi > 30
