"""Update patterns (2005): when rows leave the answer of a query over one stream."""

from __future__ import annotations

import pytest

from tests.golden.evaluators import Ask
from tests.golden.stream import Stream

TIMES = [1, 1, 2, 5, 5, 6, 9]
CALLS = Stream(
    "CREATE STREAM calls (kind TEXT, at TIMESTAMP) ORDERED BY at",
    [{"kind": "xyx"[place % 3], "at": at} for place, at in enumerate(TIMES)],
)
ALL = list(range(len(TIMES)))


def inside(ask: Ask, sql: str) -> list[list[int]]:
    """The row ids in the answer at each second."""
    return [[int(row[0]) for row in ask(CALLS, sql, at)] for at in range(16)]


def leaving(answers: list[list[int]]) -> list[int]:
    """The rows in the order they left, those of one second by id."""
    return [
        row
        for before, after in zip(answers, answers[1:], strict=False)
        for row in before
        if row not in after
    ]


@pytest.mark.parametrize("width", [1, 3, 10])
def test_update_patterns_2_2_a_row_expires_at_its_ts_plus_the_window(ask: Ask, width: int) -> None:
    sql = f"SELECT row_id FROM calls RANGE {width} SECONDS"
    for at, row_ids in enumerate(inside(ask, sql)):
        assert row_ids == [row for row in ALL if TIMES[row] <= at < TIMES[row] + width]


@pytest.mark.parametrize("where", ["", "WHERE kind = 'x'"], ids=["window", "selection"])
def test_update_patterns_5_2_windows_and_selections_expire_in_order(ask: Ask, where: str) -> None:
    """Weakest non-monotonic: first in, first out."""
    expired = leaving(inside(ask, f"SELECT row_id FROM calls {where} RANGE 4 SECONDS"))
    assert expired == [row for row in ALL if not where or CALLS.rows[row]["kind"] == "x"]


def test_update_patterns_5_2_count_windows_expire_by_arrival(ask: Ask) -> None:
    """Strictly non-monotonic: a row leaves when another comes, whenever that is."""
    answers = inside(ask, "SELECT row_id FROM calls ROWS 2")
    for at, row_ids in enumerate(answers):
        assert row_ids == [row for row in ALL if TIMES[row] <= at][-2:]
