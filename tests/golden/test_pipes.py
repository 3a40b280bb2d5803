"""PIPES (2009): the worked tables that need one stream."""

from __future__ import annotations

import pytest

from tests.golden.evaluators import Ask
from tests.golden.stream import Stream

WORTH = {"a": 1, "b": 10, "c": 100}


def stream(*copies: tuple[str, int, int]) -> Stream:
    rows = [
        {"value": value, "worth": WORTH[value], "at": at}
        for value, at, times in copies
        for _ in range(times)
    ]
    return Stream("CREATE STREAM s (value TEXT, worth BIGINT, at TIMESTAMP) ORDERED BY at", rows)


S1 = stream(
    *[("c", 1, 1), ("a", 2, 3), ("a", 3, 3), ("b", 3, 1), ("a", 4, 3)],
    *[("b", 4, 1), ("c", 4, 1), ("b", 5, 2), ("b", 6, 2)],
)
S2 = stream(
    *[("b", 2, 2), ("b", 3, 2), ("a", 4, 1), ("b", 4, 1), ("c", 4, 1)],
    *[("a", 5, 2), ("b", 5, 1), ("a", 6, 1), ("c", 6, 2)],
)
TABLE_IX = stream(("b", 1, 1), ("a", 3, 1), ("c", 4, 1), ("a", 7, 1), ("b", 10, 1))


def letters(ask: Ask, stream: Stream, window: str, at: int) -> str:
    return "".join(row[0] for row in ask(stream, f"SELECT value FROM s {window}", at))


@pytest.mark.parametrize(
    ("stream", "snapshots"),
    [(S1, ["c", "aaa", "aaab", "aaabc", "bb", "bb"]), (S2, ["", "bb", "bb", "abc", "aab", "acc"])],
    ids=["S1", "S2"],
)
def test_pipes_example_6_table_i_snapshots(ask: Ask, stream: Stream, snapshots: list[str]) -> None:
    for at, expected in enumerate(snapshots, 1):
        assert letters(ask, stream, "RANGE 1 SECOND", at) == expected


@pytest.mark.parametrize(
    ("at", "total"), [(1, 100), (2, 3), (3, 13), (4, 113), (5, 20), (6, 20), (7, None)]
)
def test_pipes_table_iii_sum(ask: Ask, at: int, total: int | None) -> None:
    """At 7 the paper has no tuple; SQL's answer is a row with NULL."""
    assert ask(S1, "SELECT sum(worth) AS total FROM s RANGE 1 SECOND", at) == [(total,)]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (1, "c"),
        (2, "caaa"),
        (3, "aaaaaab"),
        (4, "aaabaaabc"),  # the paper prints one a too many
        (5, "aaabcbb"),
        (6, "bbbb"),
        (7, "bb"),
        (8, ""),
    ],
)
def test_pipes_table_iv_range_2(ask: Ask, at: int, expected: str) -> None:
    """The rows of each instant are the paper's; ours are in order."""
    assert letters(ask, S1, "RANGE 2 SECONDS", at) == expected


@pytest.mark.parametrize(
    ("at", "expected"),
    [(50, "bacab"), (51, "acab"), (53, "cab"), (54, "ab"), (57, "b"), (60, "")],
)
def test_pipes_table_ix_range_50(ask: Ask, at: int, expected: str) -> None:
    assert letters(ask, TABLE_IX, "RANGE 50 SECONDS", at) == expected


@pytest.mark.parametrize("at", range(9))
def test_pipes_rules_9_to_15_selection_commutes_with_range(ask: Ask, at: int) -> None:
    """Rows in the window that satisfy WHERE are rows that satisfy it in the window."""
    chosen = ask(S1, "SELECT value FROM s WHERE value <> 'a' RANGE 2 SECONDS", at)
    assert chosen == [
        row for row in ask(S1, "SELECT value FROM s RANGE 2 SECONDS", at) if row != ("a",)
    ]


@pytest.mark.parametrize("at", range(9))
def test_pipes_rules_9_to_15_distinct(ask: Ask, at: int) -> None:
    every = ask(S1, "SELECT value FROM s RANGE 2 SECONDS", at)
    assert ask(S1, "SELECT DISTINCT value FROM s RANGE 2 SECONDS", at) == list(dict.fromkeys(every))


@pytest.mark.parametrize("at", range(9))
def test_pipes_rules_9_to_15_projection_commutes_with_range(ask: Ask, at: int) -> None:
    """What is computed of the rows in the window is what they have in it."""
    every = ask(S1, "SELECT worth FROM s RANGE 2 SECONDS", at)
    twice = ask(S1, "SELECT worth * 2 AS twice FROM s RANGE 2 SECONDS", at)
    assert twice == [(2 * row[0],) for row in every]


@pytest.mark.parametrize("at", [0, 3, 6, 20])
def test_pipes_deviation_no_window_is_all_there_is(ask: Ask, at: int) -> None:
    """The paper's default is the current instant; ours is SyncSQL's R(S). ts can be used."""
    expected = [(row["value"],) for row in S1.rows if row["ts"] <= at * 1_000_000]
    assert ask(S1, "SELECT value FROM s", at) == expected
    now = "WHERE ts = TIMESTAMP '1970-01-01 00:00:03'"
    assert ask(S1, f"SELECT value FROM s {now}", 6) == [("a",), ("a",), ("a",), ("b",)]
