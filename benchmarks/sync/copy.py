"""The cost of a copy to its client: processor time of one process that keeps it, gRPC included."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks import workload
from benchmarks.report import Report
from benchmarks.sync.changes import SLIDING
from benchmarks.timing import least_cpu
from client_sdk import Client
from client_sdk.copies import Copies
from tests.support.system.processes import RunningStore

ROWS, QUICK_ROWS = 100_000, 10_000
ROUNDS = 5
BATCH = 10_000
NAME = "window"
READ = "reading it as Arrow"


def measure(report: Report, folder: Path, quick: bool) -> None:
    count = QUICK_ROWS if quick else ROWS
    folder.mkdir()
    with RunningStore(folder) as store:
        store.start_server()
        with store.client() as client, Copies(folder / "client.db") as copies:
            client.define(SLIDING.stream)
            for batch in workload.batches(SLIDING.rows(0, count), BATCH):
                client.publish(SLIDING.name, batch)
            sql = f"SELECT lane, station, speed, at FROM traffic RANGE {count} MILLISECONDS"
            copies.keep(NAME, sql)
            took = least_cpu({"taking it whole": lambda: copies.sync(client)}, 1)
            assert len(copies[NAME]) == count, "the copy is not the whole answer"
            took |= least_cpu(_calls(client, copies, count), ROUNDS)
    read = took.pop(READ)
    what = f"client, a copy of {count:,} rows"
    report.add(f"{what}: {READ}", read * 1e3, "ms of a processor")
    for call, seconds in took.items():
        ratio = {"ratio": seconds / read, "beside": "reading it"}
        report.add(f"{what}: {call}", seconds * 1e3, "ms of a processor", **ratio)
    size = (folder / "client.db").stat().st_size / count
    report.add(f"{what}: its file", size, "bytes a row")


def _calls(client: Client, copies: Copies, count: int) -> dict[str, Callable[[], object]]:
    published = count

    def one_new_row() -> None:
        nonlocal published
        client.publish(SLIDING.name, SLIDING.rows(published, 1))
        published += 1
        copies.sync(client)

    return {
        READ: lambda: copies[NAME].to_arrow(),
        "reading it as dicts": lambda: list(copies[NAME].rows()),
        "a sync with nothing new": lambda: copies.sync(client),
        "publishing one row, and its sync": one_new_row,
        "verifying it": lambda: copies.verify(),
    }
