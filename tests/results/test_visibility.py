"""A row's interval of NOW compared with the oracle's windows and with the region of visible
rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from datastem.instants import FOR_EVER
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT
from results.region import entered, horizon_region, time_region, visible
from results.window import TimeWindow
from tests.oracle.queries import windows_of
from tests.oracle.windows import naive_window

SCHEMA = StreamSchema("s", (Column("a", BIGINT),))
WINDOWS = windows_of("time", SCHEMA)
INSTANTS = st.integers(-40, 60)
RETAINS = st.one_of(st.none(), st.integers(1, 40))
TS = np.arange(-30, 40)


def _ids(window: TimeWindow, now: int, retain: int | None) -> list[int]:
    rows = [{"ts": int(ts), "row_id": place} for place, ts in enumerate(TS)]
    return sorted(row["row_id"] for row in naive_window(window, rows, now, retain))


@given(WINDOWS, RETAINS, INSTANTS)
def test_visible_rows_are_those_of_the_window(window: TimeWindow, retain: int, now: int) -> None:
    first, until = visible(window, TS, retain)
    visible_ids = np.flatnonzero((first <= now) & (now < until))
    assert visible_ids.tolist() == _ids(window, now, retain)


@given(WINDOWS, RETAINS, INSTANTS, st.one_of(st.none(), st.integers(0, 50)))
def test_held_rows_are_those_visible_by_the_horizon(
    window: TimeWindow, retain: int | None, now: int, ahead: int | None
) -> None:
    horizon = None if ahead is None else now + ahead
    first, until = visible(window, TS, retain)
    becomes_visible = (until > now) & (first < until) & (first < FOR_EVER)
    if horizon is not None:
        becomes_visible &= first <= horizon
    oldest = None if retain is None else now - retain + 1
    region = horizon_region(window, now, horizon, oldest, len(TS))
    ids = np.arange(len(TS))
    assert set(ids[becomes_visible]) <= set(ids[region.holds(TS, ids)])
    extra = region.holds(TS, ids) & ~becomes_visible
    assert (first[extra] >= until[extra]).all(), "only rows that are never visible"


@given(WINDOWS, RETAINS, INSTANTS)
def test_without_a_horizon_ahead_the_held_rows_are_the_answer_s(
    window: TimeWindow, retain: int | None, now: int
) -> None:
    oldest = None if retain is None else now - retain + 1
    assert horizon_region(window, now, now, oldest, 9) == time_region(window, now, oldest, 9)
    assert entered(window, None) >= entered(window, now)


@given(WINDOWS, RETAINS)
def test_both_ends_rise_with_ts(window: TimeWindow, retain: int | None) -> None:
    first, until = visible(window, TS, retain)
    inside = first < FOR_EVER
    assert (np.diff(first[inside]) >= 0).all() and (np.diff(until[inside]) >= 0).all()
