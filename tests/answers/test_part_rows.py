"""Looking rows up by id, against a dictionary: ids close together, far apart, gone, repeated."""

from __future__ import annotations

from typing import cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from psoup.answers.joins.part_rows import PartRows, distinct
from psoup.answers.planning.plan import LegPlan

ids = st.one_of(st.integers(0, 40), st.integers(0, 1 << 40))


@given(st.lists(ids))
def test_distinct_ids_ascend_each_once(given_ids: list[int]) -> None:
    result = distinct(np.array(given_ids, np.int64))
    assert result.tolist() == sorted(set(given_ids)) and result.dtype == np.int64


@given(st.sets(ids), st.lists(ids))
def test_places_are_those_of_a_dictionary(stored: set[int], candidates: list[int]) -> None:
    rows = PartRows(cast(LegPlan, None), [], np.array(sorted(stored), np.int64))
    places = {id_: place for place, id_ in enumerate(sorted(stored))}
    sought = [*candidates, *stored]
    result = rows.places(np.array(sought, np.int64))
    assert result.tolist() == [places.get(id_, -1) for id_ in sought]
