"""SyncSQL (2010): the examples that are about views, through a running store.

One time unit is a second; rows stand at whole seconds and everything is asked at whole seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest

from client_sdk import Client, Copies
from datastem.instants import SECOND, from_micros
from tests.support.server.process import ServerProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

# Rows (room, temperature) of example 1, by their instants.
READINGS = {1: ("a", 99), 2: ("b", 75), 3: ("c", 80), 4: ("a", 95)}
ROOMS = {
    1: [("a", 99, 1)],
    2: [("a", 99, 1), ("b", 75, 2)],
    3: [("a", 99, 1), ("b", 75, 2), ("c", 80, 3)],
    4: [("a", 95, 4), ("b", 75, 2), ("c", 80, 3)],
}


@pytest.fixture
def client(shared_server: ServerProcess, tenant: str) -> Iterator[Client]:
    with Client(shared_server.address, tenant=tenant) as opened:
        yield opened


def at(second: int) -> datetime:
    return from_micros(second * SECOND)


def stream(client: Client, name: str, columns: str, key: str = "") -> None:
    keyed = f" KEY ({key})" if key else ""
    client.define(f"CREATE STREAM {name} ({columns}, at TIMESTAMP){keyed} ORDERED BY at")


def rooms(client: Client, key: str = "room", name: str = "rooms") -> None:
    stream(client, name, "room TEXT, temp BIGINT", key)


def publish(client: Client, second: int, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Publishes the rows of an instant, then a heartbeat for each stream."""
    for name, stream_rows in rows.items():
        if stream_rows:
            client.publish(name, [{**row, "at": at(second)} for row in stream_rows])
    for name in rows:
        client.heartbeat(name, at(second))


def reading(second: int) -> list[dict[str, Any]]:
    room, temp = READINGS[second]
    return [{"room": room, "temp": temp}]


def values(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows)


def test_example_1_one_stream_read_in_two_ways(client: Client) -> None:
    """The newest row of each room of a plain stream is what a key makes of it."""
    rooms(client)
    rooms(client, key="", name="readings")
    client.define("CREATE VIEW roomtemp AS SELECT * FROM readings ROWS 1 PARTITION BY room")
    for second, expected in ROOMS.items():
        publish(client, second, {"rooms": reading(second), "readings": reading(second)})
        relation = [(room, temp, at(ts)) for room, temp, ts in expected]
        assert values(client.ask("SELECT room, temp, ts FROM rooms").rows) == relation
        assert values(client.ask("SELECT room, temp, ts FROM roomtemp").rows) == relation


def test_example_5_a_view_that_is_refreshed_every_2(client: Client) -> None:
    rooms(client)
    client.define("CREATE VIEW synced AS SELECT room, temp FROM rooms REFRESH EVERY 2 SECONDS")
    client.define(
        "CREATE STREAMED VIEW hotrooms2 AS"
        " SELECT room, temp FROM rooms WHERE temp > 80 REFRESH EVERY 2 SECONDS"
    )
    everything = {1: [], 2: [("a", 99), ("b", 75)], 3: [("a", 99), ("b", 75)],
                  4: [("a", 95), ("b", 75), ("c", 80)]}  # fmt: skip
    hot = {1: [], 2: [("a", 99)], 3: [("a", 99)], 4: [("a", 95)]}
    for second in READINGS:
        publish(client, second, {"rooms": reading(second)})
        assert values(client.ask("SELECT * FROM synced").rows) == everything[second]
        answer = client.ask("SELECT * FROM hotrooms2")
        assert values(answer.rows) == hot[second]
        assert answer.refreshed_at == at(second // 2 * 2)
        assert values(client.ask("SELECT * FROM synced WHERE temp > 80").rows) == hot[second]


def test_example_6_a_synchronisation_stream_out_of_a_clock(client: Client) -> None:
    rooms(client)
    stream(client, "clockstr", "timepoint BIGINT")
    client.define(
        "CREATE STREAMED VIEW sync2 AS SELECT timepoint FROM clockstr WHERE timepoint % 2 = 0"
    )
    for second in range(7):
        rows = reading(second) if second in READINGS else []
        publish(client, second, {"rooms": rows, "clockstr": [{"timepoint": second}]})
        by_rows = client.ask("SELECT room, temp FROM rooms REFRESH ON sync2")
        by_time = client.ask("SELECT room, temp FROM rooms REFRESH EVERY 2 SECONDS")
        assert values(by_rows.rows) == values(by_time.rows)
        assert by_rows.refreshed_at == by_time.refreshed_at == at(second // 2 * 2)


ENTERED = {1: ("v1", "car"), 2: ("v2", "bus"), 3: ("v3", "car"), 5: ("p1", "police"),
           6: ("v4", "truck")}  # fmt: skip
LEFT = {4: ("v1", "car"), 7: ("v3", "car"), 8: ("p1", "police")}


def lot(second: int, rows: Mapping[int, tuple[str, str]]) -> list[dict[str, Any]]:
    return [dict(zip(("vid", "vtype"), rows[second], strict=True))] if second in rows else []


def test_example_7_a_view_whose_rows_refresh(client: Client) -> None:
    """P6: the cars in the lot whenever a police car has come."""
    for name in ("s1", "s2"):
        stream(client, name, "vid TEXT, vtype TEXT")
    client.define("CREATE STREAMED VIEW policesync AS SELECT ts FROM s1 WHERE vtype = 'police'")
    client.define(
        "CREATE VIEW parklot AS SELECT vid, vtype FROM s1 EXCEPT ALL SELECT vid, vtype FROM s2"
    )
    through = "SELECT vtype, count(*) AS n FROM parklot GROUP BY vtype REFRESH ON policesync"
    plain = through.replace("policesync", "s1 WHERE vtype = 'police'")
    handle = client.register(through).handle
    for second in range(1, 10):
        publish(client, second, {"s1": lot(second, ENTERED), "s2": lot(second, LEFT)})
        expected = [("bus", 1), ("car", 1), ("police", 1)] if second >= 5 else []
        assert values(client.invoke(handle).rows) == expected
        assert client.ask(plain).rows == client.ask(through).rows
    plain_handle = client.register(plain).handle
    assert client.explain(plain_handle).registration_count == 2
    narrowed = "SELECT count(*) AS n FROM s2 REFRESH ON policesync WHERE ts < '1970-01-01 00:00:03'"
    assert client.ask(narrowed).refreshed_at is None


def test_example_8_a_copy_of_a_view_changes_at_its_points(client: Client) -> None:
    rooms(client)
    client.define("CREATE VIEW synced AS SELECT room, temp FROM rooms REFRESH EVERY 2 SECONDS")
    expected = {1: [], 2: [("a", 99), ("b", 75)], 3: [("a", 99), ("b", 75)],
             4: [("a", 95), ("b", 75), ("c", 80)]}  # fmt: skip
    came = {1: 0, 2: 2, 3: 0, 4: 2}
    with Copies.in_memory() as copies:
        copies.keep("rooms", "SELECT room, temp FROM synced")
        for second in READINGS:
            publish(client, second, {"rooms": reading(second)})
            synced = copies.sync(client)["rooms"]
            assert values(copies["rooms"].rows()) == expected[second]
            assert synced.rows == came[second]


def test_example_9_a_join_of_views_refreshed_every_2_and_every_3(client: Client) -> None:
    for name in ("s2", "s3"):
        stream(client, name, "id BIGINT, v TEXT")
        every = f"REFRESH EVERY {name[1]} SECONDS"
        client.define(f"CREATE VIEW r{name[1]} AS SELECT * FROM {name} {every}")
    through = "SELECT a.id, a.v, b.v AS w FROM r2 AS a, r3 AS b WHERE a.id = b.id"
    inside = (
        "SELECT a.id, a.v, b.v AS w FROM s2 WINDOW(UNBOUNDED REFRESH EVERY 2 SECONDS) AS a,"
        " s3 WINDOW(UNBOUNDED REFRESH EVERY 3 SECONDS) AS b WHERE a.id = b.id"
    )
    points, full, counts = [], [], []
    for second in range(1, 10):
        row = [{"id": second, "v": f"v{second}"}]
        publish(client, second, {"s2": row, "s3": row})
        answer = client.ask(through)
        assert answer.rows == client.ask(inside).rows
        points.append(answer.refreshed_at)
        full.append(answer.full_at)
        counts.append(len(answer.rows))
    assert counts == [0, 0, 2, 3, 3, 6, 6, 6, 8]
    assert points == [at(second) for second in (0, 2, 3, 4, 4, 6, 6, 8, 9)]
    assert full == [None] * 5 + [at(6)] * 4


def test_example_11_every_4_out_of_a_view_that_is_refreshed_every_2(client: Client) -> None:
    """temp > 100 every 4 can be answered through the view temp > 80 every 2, and is what it is
    computed alone."""
    rooms(client)
    client.define(
        "CREATE VIEW hotrooms2 AS"
        " SELECT room, temp FROM rooms WHERE temp > 80 REFRESH EVERY 2 SECONDS"
    )
    through = "SELECT room, temp FROM hotrooms2 WHERE temp > 100 REFRESH EVERY 4 SECONDS"
    alone = "SELECT room, temp FROM rooms WHERE temp > 100 REFRESH EVERY 4 SECONDS"
    temps = [99, 101, 120, 79, 130, 105, 81, 140, 102, 150, 90, 160]
    for second, temp in enumerate(temps, 1):
        publish(client, second, {"rooms": [{"room": "abc"[second % 3], "temp": temp}]})
        assert values(client.ask(through).rows) == values(client.ask(alone).rows)
        assert client.ask(through).notes == ()


@pytest.mark.parametrize(
    ("temps", "hot"),
    [
        ((89, 87, 79, 78), (True, True, False, False)),
        ((89, 79, 87, 78), (True, False, True, False)),
    ],
)
def test_section_10_3_2_rooms_in_a_view_of_the_hot_ones(
    client: Client, temps: tuple[int, ...], hot: tuple[bool, ...]
) -> None:
    rooms(client)
    client.define("CREATE VIEW hotrooms AS SELECT room, temp FROM rooms WHERE temp > 80")
    with Copies.in_memory() as copies:
        copies.keep("hot", "SELECT room, temp FROM hotrooms")
        for second, (temp, is_hot) in enumerate(zip(temps, hot, strict=True), 1):
            publish(client, second, {"rooms": [{"room": "a", "temp": temp}]})
            copies.sync(client)
            expected = [("a", temp)] if is_hot else []
            assert values(copies["hot"].rows()) == expected
            assert values(client.ask("SELECT room, temp FROM hotrooms").rows) == expected


def test_section_8_what_comes_and_goes_between_two_points_is_never_seen(client: Client) -> None:
    rooms(client)
    client.define("CREATE VIEW synced AS SELECT room, temp FROM rooms REFRESH EVERY 4 SECONDS")
    with Copies.in_memory() as copies:
        copies.keep("rooms", "SELECT room, temp FROM synced")
        publish(client, 1, {"rooms": [{"room": "a", "temp": 70}, {"room": "b", "temp": 60}]})
        publish(client, 2, {"rooms": [{"room": "b", "temp": 65}]})
        client.delete("rooms", [{"room": "a", "at": at(3)}])
        copies.sync(client)
        assert copies["rooms"].rows() == []
        publish(client, 4, {"rooms": [{"room": "b", "temp": 66}]})
        assert copies.sync(client)["rooms"].rows == 1
        assert values(copies["rooms"].rows()) == [("b", 66)]
