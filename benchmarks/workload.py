"""The rows and queries of the benchmarks: the traffic trace of the PSoup paper, generated."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import numpy as np
import pyarrow as pa

from client_sdk import Client
from tests.generators import traffic

STREAM = (
    "CREATE STREAM traffic (lane BIGINT, station BIGINT, speed DOUBLE, at TIMESTAMP) ORDERED BY at"
)
LANES = 8
# 65,536 rows of the stream hold about 100 for each of the 656 pairs of a lane and a station.
STATIONS = 82
EVERY = timedelta(milliseconds=1)
WINDOW_ROWS = 1 << 16


def rows(count: int) -> pa.Table:
    """One row each millisecond of event time."""
    return traffic(count, every=EVERY, stations=STATIONS)


def batches(table: pa.Table, size: int) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)


def pair_query(number: int) -> str:
    """About 100 rows of a window of 65,536; different for numbers below 656."""
    lane, station = number % LANES + 1, number // LANES % STATIONS + 1
    return (
        f"SELECT lane, station, speed, at FROM traffic WHERE lane = {lane} AND station = {station} "
        f"RANGE {WINDOW_ROWS} MILLISECONDS"
    )


def mixed_query(number: int) -> str:
    """Every other one by equality, the rest by two intervals as in the paper."""
    random = np.random.default_rng(number)
    if number % 2:
        lane, station = random.integers(1, LANES + 1), random.integers(1, STATIONS + 1)
        where = f"lane = {lane} AND station = {station} AND speed > {random.integers(0, 100)}"
    else:
        slow, first = random.integers(0, 90), random.integers(1, STATIONS - 8)
        where = f"speed BETWEEN {slow} AND {slow + 10} AND station BETWEEN {first} AND {first + 8}"
    return f"SELECT lane, station, speed, at FROM traffic WHERE {where} RANGE 1 MINUTE"


def register(client: Client, queries: list[str]) -> list[bytes]:
    """The handles, in order."""
    return [client.register(sql).handle for sql in queries]
