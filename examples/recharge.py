"""A client that keeps a copy: it syncs, goes offline, queues a batch, comes back for the change."""

from __future__ import annotations

import random
import time
from datetime import datetime, timedelta
from pathlib import Path

from rich.console import Console

from client_sdk import Client, Copies, Synced

STREAM = "CREATE STREAM detector (lane BIGINT, speed DOUBLE) RETAIN 1 HOUR"
KEPT = {
    "slow": "SELECT lane, speed, ts FROM detector WHERE speed < 20 RANGE 1 MINUTE",
    "lanes": "SELECT lane, count(*) AS cars, avg(speed) AS mean FROM detector "
    "GROUP BY lane RANGE 1 MINUTE",
}
EARLY, LATE, MISSED = 3000, 500, 20


def recharge(address: str, folder: Path, console: Console) -> bool:
    """Whether the copies said at every instant what the store says."""
    dice = random.Random(2003)
    with Client(address) as client:
        client.define(STREAM)
        publish(client, dice, EARLY)
        time.sleep(1)
        publish(client, dice, LATE)
    with Copies(folder / "tablet.db") as copies:
        copies.keep("slow", KEPT["slow"])
        copies.keep("lanes", KEPT["lanes"], base_rows=True)
        with Client(address) as client:
            first = copies.sync(client)
        console.print(f"  tablet keeps two answers and disconnects: {summary(first)}")

        now, later = len(copies["slow"]), almost_a_minute_after_its_last_row(copies)
        remaining, cars = copies["slow"].rows(later), copies["lanes"].rows(later)
        console.print(
            f"  offline, by time alone: in a minute {len(remaining):,} of {now:,} slow cars stay,\n"
            f"  {sum(row['cars'] for row in cars):,} of all {EARLY + LATE:,}"
        )
        copies.publish("detector", [{"lane": 9, "speed": 3.5}])
        console.print(f"  offline it publishes {copies.queued.rows} row, which waits in the file")

        with Client(address) as client:
            publish(client, dice, MISSED)
            second = copies.sync(client)
            console.print(
                f"  back again: {second.sent.rows} row sent, exactly once; {summary(second)}"
            )
            right = first.complete and second.complete and agrees(client, copies)
    console.print(
        f"  {'equal' if right else '[bold red]DIFFERENT FROM[/]'} what the store answers\n"
    )
    return right


def almost_a_minute_after_its_last_row(copies: Copies) -> datetime:
    last: datetime = max(row["ts"] for row in copies["slow"])
    return last + timedelta(seconds=59.5)


def publish(client: Client, dice: random.Random, count: int) -> None:
    rows = [{"lane": dice.randint(1, 8), "speed": dice.randint(0, 400) / 4} for _ in range(count)]
    client.publish("detector", rows)


def summary(synced: Synced) -> str:
    rows = sum(change.rows for change in synced.values())
    return f"{rows:,} rows, {synced.received_bytes:,} bytes received"


def agrees(client: Client, copies: Copies) -> bool:
    """At one instant, that of the later of the two."""
    now = max(moment(copies, name) for name in KEPT)
    return all(
        copies[name].rows(now)
        == client.invoke(copies[name].handle or b"", as_of=now, knowledge="today").rows
        for name in KEPT
    )


def moment(copies: Copies, name: str) -> datetime:
    now = copies[name].state.now
    assert now is not None, "a stream with arrival time has a NOW"
    return now
