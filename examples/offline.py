"""A phone that is mostly offline: keeps two answers, goes away, reads them, comes back.

    python examples/offline.py localhost:7181 phone.db

Run it again and again: it syncs what changed since the last time. Without a connection it shows
what it has, and says how old that is.
"""

from __future__ import annotations

import contextlib
import sys
from datetime import UTC, datetime

from client_sdk import Client, Conflict, ConnectionFailed, Copies, Retry

STREAM = "CREATE STREAM parcels (town TEXT, weight DOUBLE) RETAIN 7 DAYS"
HEAVY = "SELECT town, weight, ts FROM parcels WHERE weight > 20 ORDER BY weight DESC RANGE 1 HOUR"
TOWNS = "SELECT town, count(*) AS parcels FROM parcels GROUP BY town RANGE 1 DAY"


def main(target: str, path: str) -> int:
    with Client(target, retry=Retry(attempts=2), timeout=5) as client, Copies(path) as copies:
        copies.keep("heavy", HEAVY, priority=1)
        copies.keep("towns", TOWNS)
        try:
            publish_some(client)
            for name, change in copies.sync(client).items():
                print(f"{name}: {change.status}, {change.rows} rows came")
        except ConnectionFailed as problem:
            print(f"offline: {problem.message.splitlines()[0]}")
        show(copies)
    return 0


def publish_some(client: Client) -> None:
    """So that there is something to see."""
    with contextlib.suppress(Conflict):
        client.define(STREAM)
    weights = {"Delft": 21.5, "Gouda": 3.0, "Leiden": 30.0}
    rows = [{"town": town, "weight": weight} for town, weight in weights.items()]
    client.publish("parcels", rows)


def show(copies: Copies) -> None:
    if not copies["heavy"].synced:
        return print("nothing has come yet")
    state = copies["towns"].state
    print(f"heavy now: {len(copies['heavy'])}")
    for row in copies.query("SELECT town, max(weight) AS most FROM heavy GROUP BY town"):
        print(f"  {row['town']}: {row['most']}")
    age = "still right" if state.fresh(datetime.now(UTC)) else "out of date by now"
    print(f"towns as of {state.now:%H:%M:%S}, {age} if nothing new came: {copies['towns'].rows()}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
