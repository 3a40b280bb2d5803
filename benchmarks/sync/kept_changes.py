"""The cost of keeping changes: a client's processor time for a sync, with changes and without.

Two copies of one answer are synced one after the other, in files of their own: current rows of a
keyed stream in a window that moves with the clock, so that rows may leave at any sync.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.report import Report
from client_sdk import Client
from client_sdk.copies import Copies
from tests.support.system.processes import RunningStore

ROWS, QUICK_ROWS = 100_000, 10_000
UPDATES = (0, 1, 100, 1000)
ROUNDS = 5
NAME = "hot"
STREAM = "CREATE STREAM rooms (room BIGINT, building TEXT, temp DOUBLE) KEY (room)"
QUERY = "SELECT room, building, temp FROM rooms RANGE 1 HOUR"
BESIDE = "a sync without"


def measure(report: Report, folder: Path, quick: bool) -> None:
    count = QUICK_ROWS if quick else ROWS
    folder.mkdir()
    with RunningStore(folder) as store:
        store.start_server()
        with (
            store.client() as client,
            Copies(folder / "plain.db") as plain,
            Copies(folder / "kept.db") as with_changes,
        ):
            client.define(STREAM)
            client.publish("rooms", _rooms(count, 0))
            plain.keep(NAME, QUERY)
            with_changes.keep(NAME, QUERY, changes=True)
            _measure(report, client, (plain, with_changes), count)
    sizes = [(folder / name).stat().st_size / count for name in ("plain.db", "kept.db")]
    report.add(
        f"client, a copy of {count:,} rows that keeps changes: its file",
        sizes[1],
        "bytes a row",
        ratio=sizes[1] / sizes[0],
        beside="one without",
    )


def _measure(report: Report, client: Client, both: tuple[Copies, Copies], count: int) -> None:
    what = f"client, a copy of {count:,} rows that keeps changes"
    _add(report, f"{what}: taking it whole", [_synced(copies, client) for copies in both])
    for updates in UPDATES:
        rounds = [
            _round(client, both, updates, number * 1000 + updates) for number in range(ROUNDS)
        ]
        least = [min(times) for times in zip(*rounds, strict=True)]
        _add(report, f"{what}: a sync with {updates:,} updates", least[:2])
        if updates == UPDATES[-1]:
            ratio = {"ratio": least[2] / least[0], "beside": BESIDE}
            report.add(
                f"{what}: reading {updates:,} changes", least[2] * 1e3, "ms of a processor", **ratio
            )


def _round(
    client: Client, both: tuple[Copies, Copies], updates: int, temp: int
) -> tuple[float, ...]:
    """Seconds of a sync without changes, of one with, and of reading the changes."""
    if updates:
        client.publish("rooms", _rooms(updates, temp))
    took = [_synced(copies, client) for copies in both]
    begun = time.process_time()
    with both[1].changes(NAME) as batch:
        assert len(batch) == updates, "not every update was told"
    return (*took, time.process_time() - begun)


def _synced(copies: Copies, client: Client) -> float:
    begun = time.process_time()
    assert copies.sync(client).complete
    return time.process_time() - begun


def _add(report: Report, what: str, least: list[float]) -> None:
    without, with_changes = least
    ratio = {"ratio": with_changes / without, "beside": BESIDE}
    report.add(what, with_changes * 1e3, "ms of a processor", **ratio)


def _rooms(count: int, temp: float) -> list[dict[str, object]]:
    return [
        {"room": room, "building": f"building {room % 50}", "temp": temp + room / 1000}
        for room in range(count)
    ]
