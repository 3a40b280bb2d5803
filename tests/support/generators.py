"""Rows to test with, the same for the same seed, in the shape of the PSoup paper's traffic trace.

They replace ../shared/data/traffic for users who do not have it, and add a lane.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

START = datetime(2025, 3, 3, 8, tzinfo=UTC)
TRAFFIC_SQL = "CREATE STREAM traffic (lane BIGINT, station BIGINT, speed DOUBLE, at TIMESTAMP)"
TRAFFIC_SCHEMA = pa.schema(
    [
        ("lane", pa.int64()),
        ("station", pa.int64()),
        ("speed", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)


def traffic(
    count: int,
    *,
    seed: int = 0,
    start: datetime = START,
    every: timedelta = timedelta(milliseconds=100),
    late: float = 0.0,
    nulls: float = 0.0,
    stations: int = 9,
) -> pa.Table:
    """Return `count` readings of 8 lanes, `every` interval one, from `start` on.

    A share `late` of them is dated up to a minute before its turn, and a share `nulls` has no
    speed. Speeds are 0 to 100, rounded to a quarter so that equal ones meet.
    """
    random = np.random.default_rng(seed)
    origin = np.datetime64(start.astimezone(UTC).replace(tzinfo=None), "us")
    at = origin + np.arange(count) * np.timedelta64(every)
    behind = random.integers(1, 60_000_000, count) * (random.random(count) < late)
    speed = np.round(random.uniform(0, 100, count) * 4) / 4
    columns = [
        pa.array(random.integers(1, 9, count)),
        pa.array(random.integers(1, stations + 1, count)),
        pa.array(speed, mask=random.random(count) < nulls),
        pa.array(at - behind.astype("timedelta64[us]")).cast(TRAFFIC_SCHEMA.field("at").type),
    ]
    return pa.table(columns, schema=TRAFFIC_SCHEMA)
