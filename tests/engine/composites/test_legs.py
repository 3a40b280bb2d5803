"""The legs of registered joins, beside a naive reading of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from psoup.engine.composites.legs import JoinedLegs, covered, without
from psoup.engine.matching.coverage import OPEN, Cohort
from psoup.engine.repair.recover import open_ledger
from psoup.store import Store
from querystem.expressions import TRUE
from tests.support.engine.author import OTHER, READINGS, Author, above, sensor_is
from tests.support.engine.composites import equal, register_join

# The number of predicates of a cohort, and its first row.
COHORTS = st.tuples(st.integers(0, 9), st.integers(0, 3))
LEGS = st.tuples(*(st.integers(1, 4) for _ in range(4)))
IDS = st.lists(st.integers(0, 30), unique=True).map(lambda ids: tuple(sorted(ids)))


@given(st.lists(LEGS), st.frozensets(st.integers(1, 4)))
def test_the_legs_of_a_composite(legs: list[tuple[int, ...]], quarantined: frozenset[int]) -> None:
    columns = np.array(legs, np.int64).reshape(-1, 4).T
    joined = JoinedLegs((columns[0], columns[1], columns[2], columns[3]), quarantined)
    for composite in range(5):
        of_composite = [leg for leg in legs if leg[0] == composite]
        columns = joined.of(composite)
        assert columns[0].tolist() == sorted(leg[1] for leg in of_composite)
        assert sorted(columns.T.tolist()) == sorted(list(leg[1:]) for leg in of_composite)
        expected = tuple(
            tuple(sorted({leg[3] for leg in of_composite if leg[2] == stream} - quarantined))
            for stream in (2, 1, 2)
        )
        # The second time they are kept ones.
        for _ in range(2):
            assert joined.local(composite, (2, 1, 2)) == expected


@given(
    IDS, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=5), st.integers(0, 3)
)
def test_predicates_that_were_matched_with_all_rows(
    predicates: tuple[int, ...], parts: list[tuple[int, int]], floor: int
) -> None:
    cohorts, lo = list[Cohort](), 0
    for count, row_lo in parts:
        cohorts.append(Cohort.since(lo, lo + count, row_lo))
        lo += count
    expected = tuple(
        id_
        for id_ in predicates
        if any(cohort.lo <= id_ < cohort.hi and cohort.covers(floor, OPEN) for cohort in cohorts)
    )
    assert covered(predicates, cohorts, floor) == expected


@given(IDS, IDS)
def test_predicates_that_are_not_excluded(
    predicates: tuple[int, ...], excluded: tuple[int, ...]
) -> None:
    expected = tuple(id_ for id_ in predicates if id_ not in excluded)
    assert without((predicates, predicates), (excluded, predicates)) == (expected, ())


def test_legs_are_kept_until_a_join_comes_or_ends(store: Store, author: Author) -> None:
    streams = author.create(READINGS), author.create(OTHER)
    joins = [
        register_join(author, [(streams[0], sensor_is(n)), (streams[1], TRUE)], [equal(0, 1)])
        for n in range(3)
    ]
    ledger = open_ledger(store)
    ledger.state = author.state
    legs = ledger.joined_legs
    assert legs.local(joins[0].composite_id, streams) == (
        tuple(join.legs[0] for join in joins),
        (joins[0].legs[1],),
    )
    # Other queries and rows change nothing.
    author.register(streams[0], above(1.0))
    assert ledger.joined_legs is legs
    author.unregister(joins[1].handle)
    after = ledger.joined_legs
    assert after is not legs
    expected = joins[0].legs[0], joins[2].legs[0]
    assert after.local(joins[0].composite_id, streams)[0] == expected
    register_join(author, [(streams[0], sensor_is(9)), (streams[1], TRUE)], [equal(0, 1)])
    assert len(ledger.joined_legs.local(joins[0].composite_id, streams)[0]) == 3
