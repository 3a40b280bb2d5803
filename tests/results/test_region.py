"""The difference of two regions, compared with a check of every row."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from results.region import Region

TS = np.array([3, 0, 2, 2, 1, 4, 4, 0, 3, 2])
IDS = np.arange(len(TS))

moments = st.tuples(st.integers(-1, 6), st.integers(0, 11))
ids = st.integers(0, 11)
regions = st.builds(Region, st.none() | moments, moments, ids, ids)


@given(regions, regions)
def test_what_is_left_of_a_region_is_what_the_other_does_not_hold(
    region: Region, subtracted: Region
) -> None:
    parts = region.minus(subtracted)
    assert not any(part.empty for part in parts)
    counts = sum((part.holds(TS, IDS).astype(int) for part in parts), np.zeros(len(TS), int))
    assert (counts == (region.holds(TS, IDS) & ~subtracted.holds(TS, IDS))).all(), "each row once"
