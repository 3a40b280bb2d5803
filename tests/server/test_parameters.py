"""Parameters of many registrations are written as those of one are."""

from __future__ import annotations

import datetime
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from psoup.server.wire.parameters import to_json, to_json_many

COLUMNS = [
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]),
    st.decimals(-99, 99, places=2),
    st.text(),
    st.dates(),
    st.datetimes(timezones=st.just(datetime.UTC)),
]


@given(st.data(), st.lists(st.sampled_from(range(len(COLUMNS))), max_size=4), st.integers(0, 5))
def test_row_by_row_or_all_at_once(data, kinds: list[int], count: int) -> None:
    columns = {
        f'"{place}': data.draw(st.lists(st.none() | COLUMNS[kind], min_size=count, max_size=count))
        for place, kind in enumerate(kinds)
    }
    rows = [{name: values[place] for name, values in columns.items()} for place in range(count)]
    assert to_json_many(columns, count) == [to_json(row) for row in rows]


def test_equal_numbers_that_are_written_differently() -> None:
    assert to_json_many({"x": [0.0, -0.0, Decimal("1.0")]}, 3) == [
        to_json({"x": value}) for value in (0.0, -0.0, Decimal("1.0"))
    ]
