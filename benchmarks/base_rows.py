"""Base rows of a join: what they cost a device, beside a copy of the same answer's results.

One answer counts orders by the region of their customer. One copy receives its results, which stay
as of the sync; the other receives orders and customers, and computes the answer offline.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.report import Report
from benchmarks.timing import least_cpu
from client_sdk import Client, Synced
from client_sdk.copies import Copies
from tests.support.system.processes import RunningStore

ROWS, QUICK_ROWS = 100_000, 10_000
ROUNDS, QUICK_ROUNDS = 7, 3
CUSTOMERS_SHARE, REGIONS = 10, 50
STREAMS = (
    "CREATE STREAM orders (id BIGINT, customer BIGINT, amount DOUBLE) RETAIN 1 DAY",
    "CREATE STREAM customers (id BIGINT, region TEXT) KEY (id)",
)
TEXT = (
    "SELECT c.region, count(*) AS n, sum(o.amount) AS total FROM orders AS o WINDOW(RANGE 1 DAY) "
    "JOIN customers AS c ON o.customer = c.id GROUP BY c.region ORDER BY c.region"
)
RESULTS = "results"
COPIES = {RESULTS: False, "base rows": True}
BESIDE = "a copy of results"


def run(folder: Path, quick: bool) -> Report:
    count, rounds = (QUICK_ROWS, QUICK_ROUNDS) if quick else (ROWS, ROUNDS)
    setting = (
        f"{count:,} orders of {count // CUSTOMERS_SHARE:,} customers, counted for {REGIONS} regions"
    )
    report = Report("base_rows", f"{setting}; time of the client alone, the least of {rounds}")
    with RunningStore(folder) as store:
        store.start_server()
        with store.client() as client, Copies(folder / "device.db") as copies:
            for sql in STREAMS:
                client.define(sql)
            _publish_customers(client, count // CUSTOMERS_SHARE)
            _publish_orders(client, count, count // CUSTOMERS_SHARE)
            for name, base_rows in COPIES.items():
                copies.keep(name, TEXT, base_rows=base_rows)
            _measure(report, client, copies, count, rounds)
    return report


def _measure(report: Report, client: Client, copies: Copies, count: int, rounds: int) -> None:
    customers = count // CUSTOMERS_SHARE
    changes: dict[str, Callable[[], None]] = {
        "a first sync": lambda: None,
        "a sync with nothing new": lambda: None,
        "a sync after 1,000 orders": lambda: _publish_orders(client, 1000, customers),
        "a sync after 10 customers moved": lambda: _publish_customers(client, 10),
    }
    for what, change in changes.items():
        change()
        syncs = {name: _synced(copies, client, name) for name in COPIES}
        received = {name: float(synced.received_bytes) for name, (synced, _) in syncs.items()}
        _add(report, what, received, "bytes")
        times = {name: seconds * 1e3 for name, (_, seconds) in syncs.items()}
        _add(report, what, times, "ms of a processor")
    reads = {name: copies[name].rows for name in COPIES}
    assert reads[RESULTS]() == reads["base rows"]()
    least = least_cpu(reads, rounds)
    _add(
        report, "rows(), offline", {name: least[name] * 1e3 for name in COPIES}, "ms of a processor"
    )


def _add(report: Report, what: str, values: dict[str, float], unit: str) -> None:
    for name, value in values.items():
        details: dict[str, Any] = {}
        if name != RESULTS:
            details = {"ratio": value / values[RESULTS], "beside": BESIDE}
        report.add(f"{what}, {name}", value, unit, **details)


def _synced(copies: Copies, client: Client, name: str) -> tuple[Synced, float]:
    begun = time.process_time()
    synced = copies.sync(client, only=[name])
    seconds = time.process_time() - begun
    assert synced.complete, synced[name].error
    return synced, seconds


def _publish_orders(client: Client, count: int, customers: int) -> None:
    chance = random.Random(count)
    ids = [chance.randrange(customers) for _ in range(count)]
    amounts = [chance.randrange(1, 10_000) / 100 for _ in ids]
    orders = pa.table({"id": list(range(count)), "customer": ids, "amount": amounts})
    client.publish("orders", orders)


def _publish_customers(client: Client, count: int) -> None:
    chance = random.Random(count)
    regions = [f"region {chance.randrange(REGIONS):02}" for _ in range(count)]
    client.publish("customers", pa.table({"id": list(range(count)), "region": regions}))
