"""PIPES (2009) and SyncSQL (2010): what of them is a keyed stream."""

from __future__ import annotations

import pytest

from datastem.instants import SECOND
from tests.golden import keyed
from tests.golden.evaluators import Ask
from tests.golden.stream import Stream

S1 = Stream(keyed.PIPES_SQL, keyed.pipes_rows())
ROOMS = Stream(keyed.SYNCSQL_SQL, keyed.room_rows())


@pytest.mark.parametrize("at", range(20))
def test_pipes_table_vi_validity_intervals(ask: Ask, at: int) -> None:
    valid = [(value, start) for value, start, end in keyed.TABLE_VI if start <= at < end]
    answer = ask(S1, "SELECT value, extract(second FROM ts) AS start FROM s", at)
    assert sorted(answer) == sorted(valid)


@pytest.mark.parametrize("at", range(20))
def test_pipes_table_viii_sum(ask: Ask, at: int) -> None:
    """Where the paper has no tuple, SQL's answer is a row with NULL."""
    total = next((total for low, high, total in keyed.TABLE_VIII if low <= at < high), None)
    assert ask(S1, "SELECT sum(worth) AS total FROM s", at) == [(total,)]


@pytest.mark.parametrize("at", keyed.RELATION)
def test_syncsql_example_1_the_relation_of_a_tagged_stream(ask: Ask, at: int) -> None:
    """An update moves ts."""
    answer = ask(ROOMS, "SELECT room, temp, row_id FROM rooms", at)
    times = {row["row_id"]: row["ts"] // SECOND for row in ROOMS.rows}
    assert {(room, temp, times[row_id]) for room, temp, row_id in answer} == keyed.RELATION[at]


@pytest.mark.parametrize(
    ("temps", "inside"),
    [((89, 87, 79, 78), [1, 1, 0, 0]), ((89, 79, 87, 78), [1, 0, 1, 0])],
)
def test_syncsql_section_10_3_2_a_row_enters_and_leaves(
    ask: Ask, temps: tuple[int, ...], inside: list[int]
) -> None:
    """temp > 80 over one key: entered, updated and left, as the signs of the paper say."""
    rows = [{"room": "a", "temp": t, "at": n, "_op": "row"} for n, t in enumerate(temps)]
    stream = Stream(keyed.SYNCSQL_SQL, rows)
    sql = "SELECT count(*) AS n FROM rooms WHERE temp > 80"
    assert [ask(stream, sql, at)[0][0] for at in range(4)] == inside
