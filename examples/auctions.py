"""NEXMark's queries Q1 to Q6, in the numbering of the PIPES paper, as views and registrations.

    python examples/auctions.py localhost:7181 nexmark

The folder has NEXMark's `auction.csv` and `bid.csv`. An auction opens at one instant and closes at
another, which makes two streams of it. Derived streams are views: a query names them as it names a
stream, and they are computed when a query is asked. The paper's hours are scaled to rows that lie
within half a minute.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from client_sdk import Client

STREAMS = [
    "CREATE STREAM bid (itemid BIGINT, price BIGINT, bidder BIGINT, ts TIMESTAMP) ORDERED BY ts",
    "CREATE STREAM oa (itemid BIGINT, seller BIGINT, start_price BIGINT, ts TIMESTAMP)"
    " ORDERED BY ts",
    "CREATE STREAM ca (itemid BIGINT, ts TIMESTAMP) ORDERED BY ts",
]
VIEWS = [
    "CREATE VIEW euros AS SELECT itemid, price * 0.89 AS euros, bidder FROM bid",
    "CREATE VIEW chosen AS"
    " SELECT itemid, price FROM bid WHERE itemid IN (1000, 1002, 1006, 1008, 1012)",
    "CREATE VIEW shortauction AS"
    " SELECT o.itemid FROM oa WINDOW(RANGE 20.2 SECONDS) AS o, ca WINDOW(NOW) AS c"
    " WHERE o.itemid = c.itemid",
    "CREATE VIEW highest AS SELECT max(price) AS price FROM bid RANGE 5 SECONDS",
    "CREATE VIEW offers AS"
    " SELECT itemid, price FROM bid RANGE 1 MINUTE"
    " UNION ALL SELECT itemid, start_price FROM oa RANGE 1 MINUTE",
    "CREATE STREAM currentprice AS"
    " SELECT p.itemid, p.price, o.seller"
    " FROM offers AS p, ca WINDOW(RANGE 50 MILLISECONDS) AS c, oa WINDOW(RANGE 1 MINUTE) AS o"
    " WHERE p.itemid = c.itemid AND c.itemid = o.itemid",
    "CREATE VIEW bidsofitem AS"
    " SELECT itemid, count(*) AS num FROM bid GROUP BY itemid RANGE 8 SECONDS",
]
QUERIES = {
    "Q1 currency conversion": "SELECT itemid, euros, bidder FROM euros WINDOW(NOW)",
    "Q2 selection": "SELECT itemid, price FROM chosen RANGE 1 SECOND",
    "Q3 short auctions": "SELECT itemid FROM shortauction",
    "Q4 highest bid": "SELECT b.itemid, b.price"
    " FROM bid WINDOW(RANGE 5 SECONDS) AS b, highest AS h WHERE b.price = h.price",
    "Q5 closing price": "SELECT itemid, seller, max(price) AS price FROM currentprice"
    " GROUP BY itemid, seller",
    "Q6 hot items": "SELECT itemid, num FROM bidsofitem"
    " WHERE num >= ALL (SELECT num FROM bidsofitem) ORDER BY itemid",
}
STEP = timedelta(seconds=5)


def main(target: str, folder: str) -> int:
    rows = read(Path(folder))
    with Client(target) as client:
        for sql in (*STREAMS, *VIEWS):
            client.define(sql)
        handles = {name: client.register(sql, key=name).handle for name, sql in QUERIES.items()}
        instants = sorted(row["ts"] for arguments in rows.values() for row in arguments)
        now = instants[0]
        while now < instants[-1] + STEP:
            publish(client, rows, now, now + STEP)
            now += STEP
            show(client, now, handles)
    return 0


def read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of the three streams."""
    with (folder / "auction.csv").open() as opened:
        auctions = list(csv.DictReader(opened))
    with (folder / "bid.csv").open() as opened:
        bids = list(csv.DictReader(opened))
    openings = {"itemid": "id", "seller": "seller", "start_price": "initial_bid"}
    return {
        "bid": chosen(
            bids, {"itemid": "auction", "price": "price", "bidder": "bidder"}, "date_time"
        ),
        "oa": chosen(auctions, openings, "date_time"),
        "ca": chosen(auctions, {"itemid": "id"}, "expires"),
    }


def chosen(
    rows: Iterable[Mapping[str, str]], columns: Mapping[str, str], at: str
) -> list[dict[str, Any]]:
    """Some columns of rows, which are numbers, and the instant of each."""
    names = [
        {name: int(row[source]) for name, source in columns.items()}
        | {"ts": datetime.fromisoformat(row[at]).replace(tzinfo=UTC)}
        for row in rows
    ]
    return sorted(names, key=lambda row: row["ts"])


def publish(
    client: Client, rows: Mapping[str, list[dict[str, Any]]], begin: datetime, end: datetime
) -> None:
    """Publishes the rows of an interval; then all streams have come to its end."""
    for name, chunk in rows.items():
        if among := [row for row in chunk if begin <= row["ts"] < end]:
            client.publish(name, among)
    for name in rows:
        client.heartbeat(name, end - timedelta(microseconds=1))


def show(client: Client, now: datetime, handles: Mapping[str, bytes]) -> None:
    counts = [f"{name.split()[0]} {len(client.invoke(row))}" for name, row in handles.items()]
    print(f"{now:%H:%M:%S}  {', '.join(counts)}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
