"""Negative tuples (2007): the worked figure."""

from __future__ import annotations

import pytest

from client_sdk import Client
from datastem.instants import SECOND, from_micros
from tests.golden.evaluators import Ask
from tests.golden.stream import Stream

SALES = Stream(
    "CREATE STREAM sales (item BIGINT, at TIMESTAMP) ORDERED BY at",
    [{"item": item, "at": at} for item, at in [(4, 0), (5, 1), (5, 2), (4, 4), (2, 5)]],
)
COUNT = "SELECT count(*) AS n FROM sales WHERE item IN (4, 5) RANGE 5 SECONDS"


@pytest.mark.parametrize(("at", "count"), [(4, 4), (5, 3), (6, 2)])
def test_negative_tuples_figure_1_count(ask: Ask, at: int, count: int) -> None:
    """No row arrives at 6: expiry alone changes the answer."""
    assert ask(SALES, COUNT, at) == [(count,)]


@pytest.mark.process
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_negative_tuples_figure_1_as_time_goes_by(client: Client) -> None:
    """The count at every second, from when the query knows of it; at 6 there is a heartbeat."""
    client.define(SALES.sql)
    count = client.register(COUNT)
    counts = []
    for second in range(7):
        now = from_micros(second * SECOND)
        client.publish(
            "sales", [{"item": r["item"], "at": now} for r in SALES.rows if r["at"] == now]
        )
        client.heartbeat("sales", now)
        answer = client.invoke(count)
        assert answer.now == now
        counts += [row["n"] for row in answer]
    assert counts == [1, 2, 3, 3, 4, 3, 2]


@pytest.mark.parametrize("at", range(12))
def test_negative_tuples_section_6_expired_through(ask: Ask, at: int) -> None:
    """A row is gone at every instant from its ts + 5 on."""
    inside = {row[0] for row in ask(SALES, "SELECT row_id FROM sales RANGE 5 SECONDS", at)}
    expired = {row["row_id"] for row in SALES.rows if row["ts"] + 5 * SECOND <= at * SECOND}
    assert not inside & expired
    arrived = {row["row_id"] for row in SALES.rows if row["ts"] <= at * SECOND}
    assert inside == arrived - expired
