"""Encrypted files of copies: what syncs and reads take, beside plain files of the same server.

Each kind of file has its own device, which receives the same rows from one server, in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report import Report
from benchmarks.timing import least_cpu
from client_sdk import Client
from client_sdk.copies import Copies
from tests.support.system.processes import RunningStore

ROWS, QUICK_ROWS = 100_000, 10_000
CHANGED, QUICK_CHANGED = 1000, 100
ROUNDS, QUICK_ROUNDS = 7, 3
AIM = 1.15
STREAM = "CREATE STREAM rooms (room BIGINT, building TEXT, temp DOUBLE) KEY (room)"
QUERY = "SELECT room, building, temp FROM rooms"
GROUPS = "SELECT building, count(*) FROM rooms GROUP BY building"
KEYS = {"plain": None, "encrypted": bytes(range(32))}
BESIDE = "a plain file"
UNIT = "ms of a processor"


def run(folder: Path, quick: bool) -> Report:
    count, changed = (QUICK_ROWS, QUICK_CHANGED) if quick else (ROWS, CHANGED)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    setting = f"{changed:,} changed of {count:,} rows; the least of {rounds} rounds, in turns"
    report = Report("encrypted", setting)
    with RunningStore(folder) as store:
        store.start_server()
        with store.client() as client:
            client.define(STREAM)
            client.publish("rooms", _rooms(range(count), 0.0))
            _measure_first(report, client, folder, count, rounds)
            _measure_later(report, client, folder, count, changed, rounds)
    return report


def _measure_first(report: Report, client: Client, folder: Path, count: int, rounds: int) -> None:
    """Measure opening a new file and its first sync, which receives all rows."""
    numbers = {name: iter(range(rounds)) for name in KEYS}

    def sync_new(name: str) -> None:
        path = folder / f"{name}-{next(numbers[name])}.db"
        with Copies(path, key=KEYS[name]) as copies:
            copies.keep("rooms", QUERY)
            copies.sync(client)
            assert len(copies["rooms"]) == count

    least = least_cpu({name: partial(sync_new, name) for name in KEYS}, rounds)
    _add(report, f"first sync, {count:,} rows", least, has_aim=True)


def _measure_later(
    report: Report, client: Client, folder: Path, count: int, changed: int, rounds: int
) -> None:
    devices = {name: Copies(folder / f"{name}.db", key=key) for name, key in KEYS.items()}
    try:
        for copies in devices.values():
            copies.keep("rooms", QUERY)
            copies.sync(client)
        least = dict.fromkeys(KEYS, float("inf"))
        # Every 100th row changes, so that the changes are on many pages of the file.
        rooms = range(0, count, count // changed)
        for number in range(rounds):
            client.publish("rooms", _rooms(rooms, 50.0 + number))
            syncs = {name: partial(copies.sync, client) for name, copies in devices.items()}
            for name, seconds in least_cpu(syncs, 1).items():
                least[name] = min(least[name], seconds)
        _add(report, f"sync of {changed:,} changed rows", least, has_aim=True)
        reads: dict[str, Callable[[Copies], Any]] = {
            "rows()": lambda copies: copies["rooms"].rows(),
            "to_arrow()": lambda copies: copies["rooms"].to_arrow(),
            "query()": lambda copies: copies.query(GROUPS),
        }
        for what, read in reads.items():
            calls = {name: partial(read, copies) for name, copies in devices.items()}
            _add(report, what, least_cpu(calls, rounds))
    finally:
        for copies in devices.values():
            copies.close()


def _add(report: Report, what: str, least: dict[str, float], *, has_aim: bool = False) -> None:
    ratio = least["encrypted"] / least["plain"]
    aim = {"aim": f"≤ {AIM} ×", "met": ratio <= AIM} if has_aim else {}
    report.add(what, least["encrypted"] * 1e3, UNIT, ratio=ratio, beside=BESIDE, **aim)


def _rooms(rooms: Iterable[int], temp: float) -> list[dict[str, object]]:
    return [
        {"room": room, "building": f"building {room % 50}", "temp": temp + room / 1000}
        for room in rooms
    ]
