"""Queries to measure that are more than joins: rows looked up AS OF others, set operations, queries
inside expressions, and NEXMark's auctions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.join_cases import OTHER_AIM, Join, rows_of, sparse

LOOKUP_MILLISECONDS = 100.0
_START = 1_700_000_000_000_000
_SECOND, _HOUR = 1_000_000, 3_600_000_000


def trees(scale: int) -> list[Join]:
    """The queries, over rows that are `scale` times fewer than the aims speak of."""
    middle, large = 100_000 // scale, 1_000_000 // scale
    random = np.random.default_rng(2)
    return [_look_ups(random, middle, large), *_sets(random, middle, large), *_auctions(scale)]


def _look_ups(random: np.random.Generator, count: int, versions: int) -> Join:
    """Rows that come at any time of a day, and a hundred versions of each key on that day."""
    keys = max(1, versions // 100)
    day = 24 * _HOUR
    return Join(
        f"{count:,} rows looked up AS OF another's ts among {versions:,} versions",
        {
            "l": _dated(sparse(random.integers(0, keys, count)), random.integers(0, day, count)),
            "r": _dated(sparse(np.arange(versions) % keys), np.arange(versions) * day // versions),
        },
        "SELECT l.v AS v, n.v AS w FROM l, r AS OF l.ts AS n WHERE l.k = n.k",
        duckdb_sql="SELECT l.v AS v, n.v AS w FROM l ASOF JOIN r AS n "
        "ON l.k = n.k AND l.ts >= n.ts",
        keys={"r": "k"},
        most=LOOKUP_MILLISECONDS,
    )


def _sets(random: np.random.Generator, middle: int, large: int) -> list[Join]:
    streams = {
        "l": rows_of(sparse(np.arange(large) % (2 * middle))),
        "r": rows_of(sparse(random.permutation(middle)), random.integers(0, large, middle)),
    }
    exists = "SELECT x.v AS v FROM l x WHERE {} (SELECT y.v FROM r y WHERE {})"
    size = f"{large:,} and {middle:,} rows"
    return [
        Join(
            f"EXCEPT ALL of {size}",
            streams,
            "SELECT k FROM l EXCEPT ALL SELECT k FROM r",
            OTHER_AIM,
        ),
        Join(
            f"EXISTS over {size}, by an equal key",
            streams,
            exists.format("EXISTS", "y.k = x.k"),
            OTHER_AIM,
        ),
        Join(
            f"NOT EXISTS over {size}, by an equal key and a lesser value",
            streams,
            exists.format("NOT EXISTS", "y.k = x.k AND y.v < x.v"),
            OTHER_AIM,
        ),
    ]


def _auctions(scale: int) -> list[Join]:
    """NEXMark Q3 to Q6 as the PIPES paper has them, over two hours of auctions and bids.

    A closing counts for ten minutes, not for its instant alone: more than one is reported.
    """
    streams = _auction_rows(20_000 // scale, 500_000 // scale)
    now = max(int(rows["ts"].cast(pa.int64())[-1].as_py()) for rows in streams.values())

    def since(name: str, length: int) -> str:
        """The rows of a table that a window of that length holds."""
        return f"(SELECT * FROM {name} WHERE ts > make_timestamp({now - length}))"

    closed, recent, hour = (
        since("ca", 600 * _SECOND),
        since("bid", 600 * _SECOND),
        since("bid", _HOUR),
    )
    counted = "SELECT item, count(*) AS num FROM {} AS b GROUP BY item"
    hot = "SELECT item, num FROM ({0}) AS t WHERE num >= ALL (SELECT num FROM ({0}) AS u)"
    highest = "SELECT item, price FROM {0} AS b WHERE price = (SELECT max(price) FROM {0} AS m)"
    short = "SELECT o.item FROM {} AS o, {} AS c WHERE o.item = c.item"
    closing = (
        "SELECT p.item, o.seller, max(p.price) AS price FROM (SELECT item, price FROM {} AS b "
        "UNION ALL SELECT item, price FROM {} AS s) AS p, {} AS c, {} AS o "
        "WHERE p.item = c.item AND c.item = o.item GROUP BY p.item, o.seller"
    )
    window = "{} WINDOW(RANGE {})".format
    days, minutes = "2 DAYS", "10 MINUTES"
    ours = {
        "Q3": short.format(window("oa", "5 HOURS"), window("ca", minutes)),
        "Q4": highest.format(window("bid", minutes)),
        "Q5": closing.format(
            window("bid", days), window("oa", days), window("ca", minutes), window("oa", days)
        ),
        "Q6": hot.format(counted.format(window("bid", "1 HOUR"))),
    }
    duckdb_sql = {
        "Q3": short.format("oa", closed),
        "Q4": highest.format(recent),
        "Q5": closing.format("bid", "oa", closed, "oa"),
        "Q6": hot.format(counted.format(hour)),
    }
    size = f"{len(streams['bid']):,} bids for {len(streams['oa']):,} auctions"
    return [
        Join(
            f"NEXMark {name} over {size}",
            streams,
            ours[name],
            OTHER_AIM,
            duckdb_sql=duckdb_sql[name],
        )
        for name in ours
    ]


def _auction_rows(auctions: int, bids: int) -> dict[str, pa.Table]:
    """Auctions that are opened within two hours and last up to one; all three streams end when
    these two hours do."""
    random = np.random.default_rng(3)
    end = 2 * _HOUR
    opened = np.sort(random.integers(0, end, auctions))
    closed = opened + random.integers(60 * _SECOND, _HOUR, auctions)
    over = np.flatnonzero(closed <= end)
    over = over[np.argsort(closed[over])]
    at = np.sort(random.integers(0, end, bids))
    # A bid is for an auction that was opened by then, more often for one of the last.
    item = np.maximum(0, np.searchsorted(opened, at) - 1 - random.geometric(0.002, bids))
    opened[-1] = at[-1] = end
    return {
        "oa": _timed(opened, item=np.arange(auctions), seller=np.arange(auctions) % 997, price=100),
        "ca": _timed(np.append(closed[over][:-1], end), item=over),
        "bid": _timed(at, item=item, price=random.integers(100, 1_000_000, bids)),
    }


def _dated(keys: np.ndarray[Any, Any], instants: np.ndarray[Any, Any]) -> pa.Table:
    order = np.argsort(instants, kind="stable")
    return _timed(instants[order], k=keys[order], v=np.arange(len(keys)))


def _timed(instants: np.ndarray[Any, Any], **columns: np.ndarray[Any, Any] | int) -> pa.Table:
    """Return a table with event time, in microseconds after the start."""
    moments = pa.array(instants + _START).cast(pa.timestamp("us", "UTC"))
    values = {
        name: pa.array(np.broadcast_to(column, len(instants))) for name, column in columns.items()
    }
    return pa.table({**values, "ts": moments})
