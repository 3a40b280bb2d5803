"""Negative tuples (2007): the worked figure."""

from __future__ import annotations

import pytest

from tests.golden.stream import Stream

SALES = Stream(
    "CREATE STREAM sales (item BIGINT, at TIMESTAMP) ORDERED BY at",
    [{"item": item, "at": at} for item, at in [(4, 0), (5, 1), (5, 2), (4, 4), (2, 5)]],
)


@pytest.mark.parametrize(("at", "count"), [(4, 4), (5, 3), (6, 2)])
def test_negative_tuples_figure_1_count(at: int, count: int) -> None:
    """No row arrives at 6: expiry alone changes the answer."""
    sql = "SELECT count(*) AS n FROM sales WHERE item IN (4, 5) RANGE 5 SECONDS"
    assert SALES.ask(sql, at) == [(count,)]


@pytest.mark.parametrize("at", range(12))
def test_negative_tuples_section_6_expired_through(at: int) -> None:
    """A row is gone at every instant from its ts + 5 on."""
    inside = {row[0] for row in SALES.ask("SELECT row_id FROM sales RANGE 5 SECONDS", at)}
    expired = {row["row_id"] for row in SALES.rows if row["ts"] + 5_000_000 <= at * 1_000_000}
    assert not inside & expired
    arrived = {row["row_id"] for row in SALES.rows if row["ts"] <= at * 1_000_000}
    assert inside == arrived - expired
