"""PSoup (2003): what of its text needs one stream."""

from __future__ import annotations

import pytest

from tests.golden.evaluators import Ask
from tests.golden.stream import Stream

# Tuples 0 to 52: of those with a < 5 only 48 and 50 have b > 3.
ROWS = [
    {"a": 2 if n in (48, 50) else n % 9, "b": 7 if n in (48, 50) else n % 4, "at": n}
    for n in range(53)
]
R = Stream("CREATE STREAM r (a BIGINT, b BIGINT, at TIMESTAMP) ORDERED BY at", ROWS)


def test_psoup_3_2_1_query_24_meets_old_rows(ask: Ask) -> None:
    assert ask(R, "SELECT row_id FROM r WHERE a < 5 AND b > 3", 52) == [(48,), (50,)]


@pytest.mark.parametrize("at", [0, 7, 8, 30, 52])
def test_psoup_section_6_same_window_other_where_other_max(ask: Ask, at: int) -> None:
    window = "BEGIN NOW - 20 SECONDS END NOW"
    for where, keep in (("a < 5", lambda a: a < 5), ("a >= 5", lambda a: a >= 5)):
        inside = [row["b"] for row in ROWS if at - 20 <= row["at"] <= at and keep(row["a"])]
        answer = ask(R, f"SELECT max(b) AS most FROM r WHERE {where} {window}", at)
        assert answer == [(max(inside, default=None),)]


@pytest.mark.parametrize(
    ("window", "ids"),
    [
        ("BEGIN ROW 10 END ROW 14", range(10, 15)),
        ("BEGIN ROW 48 END ROW LAST", range(48, 53)),
        ("BEGIN ROW LAST - 9 END ROW LAST - 5", range(43, 48)),
    ],
    ids=["snapshot", "landmark", "sliding"],
)
def test_psoup_logical_windows(ask: Ask, window: str, ids: range) -> None:
    assert ask(R, f"SELECT row_id FROM r {window}", 52) == [(n,) for n in ids]
