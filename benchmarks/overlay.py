"""Own edits: what reading a copy takes with queued rows in it, beside the same copy without them.

Two copies of one answer are in one file, one that shows own edits and one that does not. Half of
the queued rows replace rows of their keys, and half are new.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import Report
from benchmarks.timing import least_cpu
from client_sdk import Client
from client_sdk.copies import Copies, Copy
from tests.support.system.processes import RunningStore

ROWS, QUICK_ROWS = 100_000, 10_000
QUEUED, QUICK_QUEUED = 1000, 100
ROUNDS, QUICK_ROUNDS = 7, 3
AIM = 1.2
STREAM = "CREATE STREAM rooms (room BIGINT, building TEXT, temp DOUBLE) KEY (room)"
QUERY = "SELECT room, building, temp FROM rooms"
GROUPS = "SELECT building, count(*) AS n, avg(temp) AS mean FROM rooms GROUP BY building"
BESIDE = "without own edits"
UNIT = "ms of a processor"


def run(folder: Path, quick: bool) -> Report:
    count, queued = (QUICK_ROWS, QUICK_QUEUED) if quick else (ROWS, QUEUED)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    setting = f"{queued:,} queued of {count:,} rows; the least of {rounds} rounds, in turns"
    report = Report("overlay", setting)
    with RunningStore(folder) as store:
        store.start_server()
        with store.client() as client, Copies(folder / "device.db") as copies:
            client.define(STREAM)
            client.publish("rooms", _rooms(range(count), 0.0))
            _measure(report, client, copies, count, queued, rounds)
    return report


def _measure(
    report: Report, client: Client, copies: Copies, count: int, queued: int, rounds: int
) -> None:
    copies.keep("plain", QUERY)
    copies.keep("groups", GROUPS, base_rows=True)
    copies.sync(client)
    edits = _rooms(range(count - queued // 2, count + queued // 2), 50.0)
    seconds_without = _seconds(lambda: copies.publish("rooms", edits))
    copies.send(client)
    copies.keep("own", QUERY, edits=True)
    copies.keep("own_groups", GROUPS, base_rows=True, edits=True)
    copies.sync(client)
    edits = _rooms(range(count, count + queued), 60.0)
    seconds_with = _seconds(lambda: copies.publish("rooms", edits))
    plain, edited = copies["plain"], copies["own"]
    assert len(edited) == len(plain) + queued // 2 and len(edited.pending) == queued
    for name, both in _reads(copies, plain, edited).items():
        least = least_cpu({"without": both[0], "with": both[1]}, rounds)
        ratio = least["with"] / least["without"]
        aim: dict[str, Any] = {}
        if name == "rows()":
            aim = {"aim": f"≤ {AIM} ×", "met": ratio <= AIM}
        report.add(name, least["with"] * 1e3, UNIT, ratio=ratio, beside=BESIDE, **aim)
    ratio = seconds_with / seconds_without
    report.add(f"queuing {queued:,} rows", seconds_with * 1e3, UNIT, ratio=ratio, beside=BESIDE)
    report.add("pending", _seconds(lambda: edited.pending) * 1e3, UNIT)


def _reads(copies: Copies, plain: Copy, edited: Copy) -> dict[str, tuple[Callable[[], Any], ...]]:
    select = "SELECT building, count(*) FROM {} GROUP BY building"
    groups, own_groups = copies["groups"], copies["own_groups"]
    return {
        "rows()": (plain.rows, edited.rows),
        "to_arrow()": (plain.to_arrow, edited.to_arrow),
        "query()": (
            lambda: plain.query(select.format("plain")),
            lambda: edited.query(select.format("own")),
        ),
        "rows() of groups from base rows": (groups.rows, own_groups.rows),
    }


def _seconds(call: Callable[[], Any]) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun


def _rooms(rooms: range, temp: float) -> list[dict[str, object]]:
    return [
        {"room": room, "building": f"building {room % 50}", "temp": temp + room / 1000}
        for room in rooms
    ]
