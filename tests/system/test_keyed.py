"""Keyed streams through a running store and its engine: a relation as it changes, a week of car
parks. The papers' tables are in tests/golden."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from client_sdk import Client
from tests.golden import keyed
from tests.support.system.processes import RunningStore
from tests.system.test_real_data import psoup

pytestmark = [pytest.mark.process, pytest.mark.spark]

START = datetime(2026, 1, 5, 9, tzinfo=UTC)


def timed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"at": START + timedelta(seconds=row["at"])} for row in rows]


def at(second: int) -> dict[str, Any]:
    return {"as_of": START + timedelta(seconds=second), "knowledge": "today"}


def test_syncsql_2010_example_1(client: Client, running: RunningStore) -> None:
    """R(S) after each tagged tuple, as it stands and later with NOW set back."""
    client.define(keyed.SYNCSQL_SQL)
    query = client.register("SELECT room, temp, ts FROM rooms")

    def relation(**options: Any) -> set[tuple[Any, ...]]:
        rows = client.invoke(query, **options).rows
        return {(r["room"], r["temp"], (r["ts"] - START).seconds) for r in rows}

    for row, (second, expected) in zip(
        timed(keyed.room_rows()), keyed.RELATION.items(), strict=True
    ):
        client.publish("rooms", [row])
        assert relation() == expected, second
    running.wait_until_matched(client)
    for second, expected in keyed.RELATION.items():
        assert relation(**at(second)) == expected
    client.delete("rooms", [{"room": "b", "at": START + timedelta(seconds=5)}])
    assert relation() == {("a", 95, 4), ("c", 80, 3)}
    assert relation(**at(4)) == keyed.RELATION[4]


# ---- a week of car parks

PARKING = (
    "CREATE STREAM parking (ts TIMESTAMP, place_id TEXT, free_places BIGINT) "
    "KEY (place_id) ORDERED BY ts"
)
CURRENT = (
    "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY place_id ORDER BY ts DESC, row_id "
    "DESC) AS newest FROM file WHERE ts <= '{now}') WHERE newest = 1"
)
QUERIES = {
    "SELECT row_id, free_places FROM parking WHERE free_places < 10": (
        "SELECT row_id, free_places FROM current WHERE free_places < 10 ORDER BY ts, row_id"
    ),
    "SELECT count(*) AS n, sum(free_places) AS free, max(row_id) AS last FROM parking": (
        "SELECT count(*), sum(free_places)::BIGINT, max(row_id) FROM current"
    ),
    "SELECT place_id, free_places FROM parking ORDER BY free_places DESC, place_id LIMIT 10": (
        "SELECT place_id, free_places FROM current ORDER BY free_places DESC, place_id LIMIT 10"
    ),
    "SELECT row_id FROM parking WHERE free_places > 100 RANGE 10 MINUTES": (
        "SELECT row_id FROM current WHERE free_places > 100 "
        "AND ts > TIMESTAMP '{now}' - INTERVAL 10 MINUTE ORDER BY ts, row_id"
    ),
}


@pytest.fixture
def week(shared_data: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    path = shared_data / "parking" / "changes_week.csv.gz"
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE file AS SELECT *, row_number() OVER () - 1 AS row_id FROM "
            f"read_csv('{path}', header = true, columns = {{'ts': 'TIMESTAMP', "
            "'place_id': 'VARCHAR', 'free_places': 'BIGINT'}, parallel = false)"
        )
        yield connection


def test_a_week_of_car_parks(
    client: Client,
    tenant: str,
    running: RunningStore,
    shared_data: Path,
    week: duckdb.DuckDBPyConnection,
) -> None:
    client.define(PARKING)
    handles = {sql: client.register(sql) for sql in QUERIES}
    path = shared_data / "parking" / "changes_week.csv.gz"
    psoup(running.targets[0], tenant, "publish", "parking", str(path))
    assert client.stream("parking").row_count == 376_575
    ((last,),) = week.execute("SELECT max(ts) FROM file").fetchall()
    instants = [last - timedelta(hours=hours, seconds=7) for hours in (1, 30, 100, 160)]

    def check() -> None:
        for now in (last, *instants):
            options = (
                {} if now == last else {"as_of": now.replace(tzinfo=UTC), "knowledge": "today"}
            )
            week.execute(f"CREATE OR REPLACE VIEW current AS {CURRENT.format(now=now)}")
            for sql, judged in QUERIES.items():
                expected = week.execute(judged.format(now=now)).fetchall()
                answer = client.invoke(handles[sql], **options).rows
                assert [tuple(row.values()) for row in answer] == expected, (sql, now)

    check()
    running.wait_until_matched(client)
    check()
    places = [row["place_id"] for row in client.ask("SELECT place_id FROM parking ROWS 3").rows]
    ended = last.replace(tzinfo=UTC) + timedelta(seconds=1)
    client.delete("parking", [{"place_id": place, "ts": ended} for place in places])
    remaining = {row["place_id"] for row in client.ask("SELECT place_id FROM parking").rows}
    ((count,),) = week.execute("SELECT count(DISTINCT place_id) FROM file").fetchall()
    assert len(remaining) == count - 3 and not remaining & set(places)
