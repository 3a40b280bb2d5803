"""`ROWS n PARTITION BY`: the newest rows of few keys and of many."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial

import numpy as np
import pyarrow as pa

from benchmarks import workload
from benchmarks.report import Report
from benchmarks.stub import Stub
from benchmarks.timing import Times, interleaved, repeated, timed
from client_sdk import Client

KEYS = (200, 20_000)


@dataclass(frozen=True)
class Partitioned:
    """A stream with `keys` keys, and a query for the newest five rows of each of some keys."""

    keys: int
    stream: str
    handle: bytes
    last: datetime

    @classmethod
    def publish(cls, client: Client, keys: int, count: int) -> Partitioned:
        name, at = f"keys_{keys}", workload.rows(count)["at"]
        client.define(
            f"CREATE STREAM {name} (key BIGINT, value DOUBLE, at TIMESTAMP) ORDERED BY at"
        )
        sql = f"SELECT key, value, at FROM {name} WHERE key < 100 ROWS 5 PARTITION BY key"
        handle = client.register(sql).handle
        table = _keyed_rows(keys, at)
        client.publisher(name).publish_many(name, workload.batches(table, 20_000))
        return cls(keys, name, handle, at[-1].as_py())

    def later(self, number: int) -> pa.Table:
        """The nth batch of rows after those."""
        first = self.last + (number * 1000 + 1) * workload.EVERY
        return _keyed_rows(self.keys, workload.rows(1000, first + 999 * workload.EVERY)["at"])


def _keyed_rows(keys: int, at: pa.ChunkedArray) -> pa.Table:
    random = np.random.default_rng(len(at))
    columns = [random.integers(0, keys, len(at)), random.random(len(at)), at]
    return pa.table(columns, names=["key", "value", "at"])


def measure(
    report: Report, client: Client, stub: Stub, streams: list[Partitioned], rounds: int
) -> None:
    """The first call, later ones, and ones after more rows have come."""
    for partitioned in streams:
        first, header = timed(partial(stub.invoke, partitioned.handle))
        name = (
            f"ROWS 5 PARTITION BY over {partitioned.keys:,} keys, {header.row_count:,} rows shown"
        )
        warm = interleaved({name: repeated(stub.invoke, partitioned.handle)}, rounds)[name]
        moving = []
        for number in range(rounds):
            client.publish(partitioned.stream, partitioned.later(number))
            moving.append(timed(partial(stub.invoke, partitioned.handle))[0])
        report.add(f"{name}, first call", first * 1e3, "ms")
        for what, measured in (("again", warm), ("after 1,000 more rows", Times(moving))):
            ratio = {"ratio": measured.p50 / first, "beside": "first"}
            report.add(f"{name}, {what} p50", measured.p50 * 1e3, "ms", **ratio)
