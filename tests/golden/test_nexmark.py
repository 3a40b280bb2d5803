"""NEXMark in the numbering of the PIPES paper: the queries over one stream."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.golden.evaluators import Ask
from tests.golden.stream import Stream

BID = "CREATE STREAM bid (auction BIGINT, bidder BIGINT, price BIGINT, at TIMESTAMP) ORDERED BY at"
WHOLE = ("auction", "bidder", "price")


@pytest.fixture(scope="module")
def bids(shared_data: Path) -> Stream:
    with (shared_data / "nexmark" / "bid.csv").open() as lines:
        read = list(csv.DictReader(lines))
    moments = [datetime.fromisoformat(row["date_time"]).replace(tzinfo=UTC) for row in read]
    rows = [
        {name: int(row[name]) for name in WHOLE} | {"at": at}
        for row, at in zip(read, moments, strict=True)
    ]
    return Stream(BID, rows)


def test_nexmark_q1_currency_conversion(ask: Ask, bids: Stream) -> None:
    """At each bid's own instant, the window of one instant the paper takes for granted."""
    sql = "SELECT auction, price * 0.89 AS euros, bidder FROM bid RANGE 1 MICROSECOND"
    for at in {row["at"] for row in bids.rows}:
        now = [row for row in bids.rows if row["at"] == at]
        expected = [(row["auction"], row["price"] * 0.89, row["bidder"]) for row in now]
        assert ask(bids, sql, at) == expected


def test_nexmark_q2_selection_of_items(ask: Ask, bids: Stream) -> None:
    items = sorted({row["auction"] for row in bids.rows})[::3]
    sql = f"SELECT auction, price FROM bid WHERE auction IN ({', '.join(map(str, items))})"
    expected = [(row["auction"], row["price"]) for row in bids.rows if row["auction"] in items]
    assert expected and ask(bids, sql, bids.rows[-1]["at"]) == expected


def test_nexmark_q4_inner_query_the_highest_bid_of_a_window(ask: Ask, bids: Stream) -> None:
    """Ten minutes scaled to the data, whose bids all come within seconds."""
    width = timedelta(milliseconds=10)
    sql = "SELECT max(price) AS high FROM bid RANGE 10 MILLISECONDS"
    for at in {row["at"] for row in bids.rows}:
        prices = [row["price"] for row in bids.rows if at - width < row["at"] <= at]
        assert ask(bids, sql, at) == [(max(prices),)]
