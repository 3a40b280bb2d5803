"""The rows and queries of the benchmarks: the traffic trace of the PSoup paper, generated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from client_sdk import Client
from tests.support.generators import START, traffic
from tests.support.system.processes import RunningStore

STREAM = (
    "CREATE STREAM traffic (lane BIGINT, station BIGINT, speed DOUBLE, at TIMESTAMP) ORDERED BY at"
)
LANES = 8
# 65,536 rows of the stream hold about 100 for each of the 656 pairs of a lane and a station.
STATIONS = 82
EVERY = timedelta(milliseconds=1)
WINDOW_ROWS = 1 << 16
_EQUAL = "lane = :lane AND station = :station AND speed > :speed"
_BETWEEN = "speed BETWEEN :slow AND :fast AND station BETWEEN :first AND :last"


def rows(count: int, last: datetime | None = None) -> pa.Table:
    """One row each millisecond of event time, up to an instant if one is given."""
    start = START if last is None else last - (count - 1) * EVERY
    return traffic(count, every=EVERY, stations=STATIONS, start=start)


def batches(table: pa.Table, size: int) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)


def pair(number: int) -> tuple[int, int]:
    """A lane and a station; different for numbers below 656."""
    return number % LANES + 1, number // LANES % STATIONS + 1


def pair_query(number: int, outputs: str = "lane, station, speed, at") -> str:
    """Over about 100 rows of a window of 65,536."""
    lane, station = pair(number)
    return (
        f"SELECT {outputs} FROM traffic WHERE lane = {lane} AND station = {station} "
        f"RANGE {WINDOW_ROWS} MILLISECONDS"
    )


def register_others(client: Client, count: int) -> None:
    """Queries with predicates of their own, each over rows of one of the pairs."""
    random = np.random.default_rng(0)
    table = {
        "lane": random.integers(1, LANES + 1, count),
        "station": random.integers(1, STATIONS + 1, count),
        "speed": random.uniform(0, 100, count),
    }
    client.register_many(f"SELECT * FROM traffic WHERE {_EQUAL} RANGE 1 MINUTE", pa.table(table))


def mixed(count: int) -> dict[str, pa.Table]:
    """Half by equality, half by two intervals as in the paper: a WHERE and its parameters."""
    random = np.random.default_rng(count)
    half = count // 2
    slow, first = random.integers(0, 90, half), random.integers(1, STATIONS - 8, half)
    equal = {
        "lane": random.integers(1, LANES + 1, count - half),
        "station": random.integers(1, STATIONS + 1, count - half),
        "speed": random.uniform(0, 100, count - half),
    }
    between = {"slow": slow, "fast": slow + 10, "first": first, "last": first + 8}
    return {_EQUAL: pa.table(equal), _BETWEEN: pa.table(between)}


def register_mixed(client: Client, count: int, stream: str = "traffic") -> None:
    for where, table in mixed(count).items():
        sql = f"SELECT lane, station, speed, at FROM {stream} WHERE {where} RANGE 1 MINUTE"
        client.register_many(sql, table)


def mixed_texts(count: int) -> list[str]:
    """The queries of `mixed`, each as a text of its own."""
    return [
        f"SELECT * FROM traffic WHERE {_filled(where, row)}"
        for where, table in mixed(count).items()
        for row in table.to_pylist()
    ]


def _filled(where: str, row: dict[str, Any]) -> str:
    return re.sub(r":(\w+)", lambda name: str(row[name[1]]), where)


def register(client: Client, queries: list[str]) -> list[bytes]:
    """The handles, in order."""
    return [client.register(sql).handle for sql in queries]


def fill(
    store: RunningStore, client: Client, table: pa.Table, queries: int, pairs: int
) -> list[bytes]:
    """Fill a stream with rows and `queries` queries, all matched; return `pairs` of the handles."""
    client.define(STREAM)
    handles = register(client, [pair_query(number) for number in range(pairs)])
    register_others(client, queries - pairs)
    client.publisher("benchmark").publish_many("traffic", batches(table, 20_000))
    store.wait_until_matched(client, 1200)
    return handles
