"""What a stored sample of a format holds: the story that made it, and what it answers.

    python -m tests.formats.story FOLDER NAME

runs the story with the program as it is and leaves `NAME.tar.xz`, the store, and `NAME.json`, what
it answered, in this folder. A sample is made once, by the last program that wrote its format, and
never again: test_samples.py opens all of them with the program of today.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from client_sdk import Client
from psoup.engine.engine import Engine
from psoup.engine.session import open_session
from psoup.engine.settings import EngineSettings
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from tests.support.system.processes import RunningStore

HERE = Path(__file__).parent

# So that a small store has files merged, tables compacted, a log trimmed, and checkpoints.
EAGER = EngineSettings(
    housekeeping=0.0,
    grace=3.0,
    trim_commits=4,
    checkpoint_commits=6,
    merge_files=4,
    compact_files=4,
)

STREAMS = (
    "CREATE STREAM trips (lane BIGINT, speed DOUBLE, at TIMESTAMP) ORDERED BY at RETAIN 30 DAYS",
    "CREATE STREAM notes (name TEXT, amount DECIMAL(8,2), day DATE, good BOOLEAN)",
    "CREATE STREAM places (place TEXT, free BIGINT, at TIMESTAMP) KEY (place) ORDERED BY at",
    "CREATE STREAM brief (a BIGINT)",
    "CREATE VIEW quick AS SELECT lane, speed FROM trips WHERE speed > 80",
)

QUERIES = {
    "fast": "SELECT row_id, lane, speed FROM trips WHERE speed > 90",
    "recent": "SELECT lane, speed FROM trips WHERE lane <> 2 RANGE 2 HOURS",
    "last": "SELECT row_id, speed FROM trips ROWS 3",
    "lanes": "SELECT lane, count(*) AS n, avg(speed) AS mean FROM trips GROUP BY lane",
    "refreshed": "SELECT count(*) AS n FROM trips REFRESH ON places WHERE free > 2",
    "notes": "SELECT name, amount, day FROM notes WHERE amount >= 2.50 ORDER BY amount",
    "free": "SELECT place, free FROM places WHERE free > 1 ORDER BY place",
    "spots": "SELECT count(*) AS n FROM places",
    "joined": "SELECT t.row_id, p.place FROM trips t JOIN places p ON t.lane = p.free "
    "WHERE t.speed > 60",
    "without": "SELECT lane FROM trips WHERE lane > 1 EXCEPT SELECT free FROM places",
    "then": "SELECT t.row_id, p.free FROM trips t LEFT JOIN places AS OF t.ts p ON p.place = 'a'",
    "viewed": "SELECT lane, speed FROM quick WHERE lane > 0",
}
# Registered when the engine has gone: only the log knows them.
LATER = {
    "slow": "SELECT row_id, speed FROM trips WHERE speed < 40",
    "bad": "SELECT name FROM notes WHERE NOT good",
    "full": "SELECT place FROM places WHERE free = 0",
    "paired": "SELECT n.name, p.place FROM notes n JOIN places p ON n.good = (p.free > 1)",
}
LANES = "SELECT row_id FROM trips WHERE lane = :lane"

DAY = datetime(2026, 1, 31, 12, tzinfo=UTC)


def trips(number: int, days: int = 0) -> list[dict[str, Any]]:
    """Twenty rows of one batch, some of them late."""
    start = DAY - timedelta(days=days) + timedelta(minutes=30 * number)
    return [
        {
            "lane": index % 4,
            "speed": float((index * 37 + number * 11) % 120),
            "at": start + timedelta(minutes=(index * 7) % 20),
        }
        for index in range(20)
    ]


def notes(number: int) -> list[dict[str, Any]]:
    return [
        {
            "name": None if index == 2 else f"note {number}.{index} é",
            "amount": Decimal(number * 4 + index) / 4,
            "day": DAY.date() + timedelta(days=index),
            "good": index % 2 == 0,
        }
        for index in range(4)
    ]


def places(number: int) -> list[dict[str, Any]]:
    at = DAY + timedelta(hours=number)
    return [
        {"place": place, "free": (number + index) % 4, "at": at}
        for index, place in enumerate("abcde")
    ]


def answers(client: Client, handles: dict[str, str]) -> dict[str, Any]:
    """Every answer and what the store says of its streams, registrations and leases, as JSON."""
    found = {name: client.invoke(bytes.fromhex(handle)).rows for name, handle in handles.items()}
    streams = [
        [one.name, one.row_count, one.registration_count, one.sql] for one in client.streams()
    ]
    listed = sorted(
        [one.handle.hex(), one.sql, int(one.lease.total_seconds())]
        for one in client.registrations()
    )
    return {
        "answers": json.loads(json.dumps(found, default=str)),
        "streams": streams,
        "registrations": listed,
    }


def publish(client: Client, number: int) -> None:
    """One batch for each stream, with an identity."""
    client.publish("trips", trips(number), publisher="trips", sequence=number)
    client.publish("notes", notes(number), publisher="notes", sequence=number)
    client.publish("places", places(number), publisher="places", sequence=number)
    client.delete("places", [{"place": "e", "at": DAY + timedelta(hours=number, minutes=1)}])


def tell(running: RunningStore) -> dict[str, Any]:
    """The whole story; what the store answers at its end, and its handles."""
    running.start_server()
    with running.client() as client:
        for sql in STREAMS:
            client.define(sql)
        handles = {name: client.register(sql).handle.hex() for name, sql in QUERIES.items()}
        many = client.register_many(LANES, [{"lane": lane} for lane in range(3)])
        handles |= {f"lane {lane}": one.hex() for lane, one in enumerate(many.handles)}
        ended = client.register("SELECT a FROM brief", lease=timedelta(seconds=1))
        contacted = client.register("SELECT a FROM brief WHERE a > 1", lease=timedelta(seconds=30))
        handles["contacted"] = contacted.handle.hex()
        client.publish("trips", trips(0, days=60))
        client.publish("brief", [{"a": 1}, {"a": 2}])
        with engine(running.store) as fold:
            for number in range(1, 7):
                publish(client, number)
                fold()
            time.sleep(1.5)  # so that some of two leases is used up
            client.invoke(contacted.handle)
            asyncio.run(expire(running.store))
            client.unregister(client.register("SELECT lane FROM trips WHERE lane = 7").handle)
            client.define("CREATE STREAM gone (a BIGINT)")
            client.publish("gone", [{"a": 1}])
            fold()
            client.define("DROP STREAM gone")
            fold()
        publish(client, 7)
        handles |= {name: client.register(sql).handle.hex() for name, sql in LATER.items()}
        publish(client, 8)
        return {"handles": handles, "expired": ended.handle.hex(), **answers(client, handles)}


@contextmanager
def engine(folder: Path) -> Iterator[Any]:
    """A function that lets the engine fold what there is, and tidy up after it."""
    spark = open_session(folder.parent / "spark")
    running = Engine(Store.open(folder), spark, EAGER)
    running.start()
    try:
        yield running.wait_idle
    finally:
        running.stop()
        spark.stop()


async def expire(folder: Path) -> None:
    """What a server does after ten minutes: leases that are used up end."""
    core = Core(Store.open(folder), Settings(folder))
    await core.start()
    try:
        assert await core.leases.expire() == 1
    finally:
        await core.stop()


def main(folder: str, name: str) -> None:
    with RunningStore(Path(folder).absolute()) as running:
        told = tell(running)
        for server in running.servers:
            server.stop()
        (HERE / f"{name}.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
        _forget_location(running.store)
        with tarfile.open(HERE / f"{name}.tar.xz", "w:xz", preset=9) as archive:
            archive.add(running.store, "store", filter=_anonymous)


def _forget_location(store: Path) -> None:
    """Where a table was made stands in its first commit, and is nobody's business."""
    for commit in store.rglob("00000000000000000000.json"):
        commit.write_text(commit.read_text().replace(f"file://{store}", "file:///store"))


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if member.name.endswith("engine.lock") else member


if __name__ == "__main__":
    main(*sys.argv[1:])
