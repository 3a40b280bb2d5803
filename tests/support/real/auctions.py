"""NEXMark's auctions as the three streams of the PIPES paper, and its queries Q1 to Q6.

The file of auctions has one row for each; it was opened at one instant and closed at another, which
makes two streams of it. The paper's ranges (five hours, two days, ten minutes, an hour) are scaled
to rows that lie within half a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from tests.support.real.streams import RealStream, timed


def auction_streams(data: Path) -> list[RealStream]:
    auctions = csv.read_csv(data / "nexmark" / "auction.csv")
    bids = csv.read_csv(data / "nexmark" / "bid.csv")
    return [
        _stream(
            "bid",
            bids,
            {"auction": "itemid", "price": "price", "bidder": "bidder", "date_time": "ts"},
        ),
        _stream(
            "oa",
            auctions,
            {
                "id": "itemid",
                "seller": "seller",
                "initial_bid": "start_price",
                "date_time": "ts",
            },
        ),
        _stream("ca", auctions, {"id": "itemid", "expires": "ts"}),
    ]


def _stream(name: str, read: pa.Table, names: Mapping[str, str]) -> RealStream:
    rows = timed(read.select(list(names)).rename_columns(list(names.values())), "ts")
    numbers = ", ".join(f"{column} BIGINT" for column in rows.column_names if column != "ts")
    definition = f"CREATE STREAM {name} ({numbers}, ts TIMESTAMP) ORDERED BY ts"
    return RealStream(name, definition, rows.sort_by("ts"), "ts")


_PRICES = (
    "SELECT p.itemid, p.price, o.seller FROM ({bids} UNION ALL {starts}) AS p, {closings} AS c, "
    "{openings} AS o WHERE p.itemid = c.itemid AND c.itemid = o.itemid"
)
_CLOSING = "SELECT itemid, seller, max(price) AS price FROM ({}) AS p GROUP BY itemid, seller"

# Our text of each query, and DuckDB's over the rows dated up to {now}.
NEXMARK = {
    "Q1 currency conversion": (
        "SELECT itemid, price * 0.89 AS euros, bidder FROM bid WINDOW(NOW)",
        "SELECT itemid, price * 0.89::DOUBLE, bidder FROM bid WHERE ts = {now} ORDER BY row_id",
    ),
    "Q2 selection": (
        "SELECT itemid, price FROM bid WINDOW(RANGE 1 SECOND) "
        "WHERE itemid IN (1000, 1002, 1006, 1008, 1012)",
        "SELECT itemid, price FROM bid WHERE itemid IN (1000, 1002, 1006, 1008, 1012) "
        "AND ts > {now} - INTERVAL 1 SECOND ORDER BY ts, row_id",
    ),
    "Q3 short auctions": (
        "SELECT o.itemid FROM oa WINDOW(RANGE 20.2 SECONDS) AS o, ca WINDOW(NOW) AS c "
        "WHERE o.itemid = c.itemid",
        "SELECT o.itemid FROM oa o, ca c WHERE o.itemid = c.itemid AND c.ts = {now} "
        "AND o.ts > {now} - INTERVAL '20.2 seconds' "
        "ORDER BY greatest(o.ts, c.ts), o.row_id, c.row_id",
    ),
    "Q4 highest bid": (
        "SELECT itemid, price FROM bid WINDOW(RANGE 5 SECONDS) AS b "
        "WHERE price = (SELECT max(price) FROM bid WINDOW(RANGE 5 SECONDS) AS m)",
        "WITH seen AS (SELECT * FROM bid WHERE ts > {now} - INTERVAL 5 SECOND) "
        "SELECT itemid, price FROM seen WHERE price = (SELECT max(price) FROM seen) "
        "ORDER BY ts, row_id",
    ),
    "Q5 closing price": (
        _CLOSING.format(
            _PRICES.format(
                bids="SELECT itemid, price FROM bid WINDOW(RANGE 1 MINUTE) AS b",
                starts="SELECT itemid, start_price FROM oa WINDOW(RANGE 1 MINUTE) AS s",
                closings="ca WINDOW(RANGE 50 MILLISECONDS)",
                openings="oa WINDOW(RANGE 1 MINUTE)",
            )
        ),
        _CLOSING.format(
            _PRICES.format(
                bids="SELECT itemid, price FROM bid",
                starts="SELECT itemid, start_price FROM oa",
                closings="(SELECT * FROM ca WHERE ts > {now} - INTERVAL 50 MILLISECOND)",
                openings="oa",
            )
        )
        + " ORDER BY itemid, seller",
    ),
    "Q6 hot items": (
        "SELECT itemid, num FROM (SELECT itemid, count(*) AS num FROM bid "
        "WINDOW(RANGE 8 SECONDS) AS b GROUP BY itemid) AS t WHERE num >= ALL "
        "(SELECT count(*) AS n FROM bid WINDOW(RANGE 8 SECONDS) AS b GROUP BY itemid) "
        "ORDER BY itemid",
        "WITH counted AS (SELECT itemid, count(*) AS num FROM bid "
        "WHERE ts > {now} - INTERVAL 8 SECOND GROUP BY itemid) "
        "SELECT itemid, num FROM counted WHERE num >= ALL (SELECT num FROM counted) ORDER BY 1",
    ),
}
