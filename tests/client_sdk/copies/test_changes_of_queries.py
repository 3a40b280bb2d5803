"""The changes of queries from the papers, of groups and of joins."""

from __future__ import annotations

import pytest

from client_sdk import Copies
from tests.client_sdk.copies.rooms import HOT, ROOMS, measure, read, short
from tests.support.client_sdk.inside import InsideStore


def test_example_8(store: InsideStore, copies: Copies) -> None:
    """SyncSQL: the relation is refreshed at the points 2 and 4, and so are the changes."""
    store.clock = 0
    store.client.define("CREATE STREAM roomtemp (room TEXT, temp BIGINT) KEY (room)")
    text = "SELECT room, temp FROM roomtemp REFRESH EVERY 2 SECONDS"
    copies.keep("rooms", text, changes=True)
    copies.sync(store.client)
    readings: dict[int, tuple[str, int]] = {1: ("a", 99), 2: ("b", 75), 3: ("c", 80), 4: ("a", 95)}
    for second in range(1, 6):
        store.clock = second * 1_000_000
        if second in readings:
            room, temp = readings[second]
            store.client.publish("roomtemp", [{"room": room, "temp": temp}])
        copies.sync(store.client)
    changes = read(copies, "rooms")
    assert short(changes) == ["+a 99", "+b 75", "+c 80", "ua 95"]
    assert changes[3].old == {"room": "a", "temp": 99}
    assert [change.at and change.at.timestamp() for change in changes] == [2, 2, 4, 4]


def test_section_8(store: InsideStore, copies: Copies) -> None:
    """The prototype's query: rooms above 80, each change with its tag, and a second query over the
    same readings.
    """
    store.client.define(ROOMS)
    copies.keep("hot", HOT, changes=True)
    copies.keep("all", "SELECT room, temp FROM rooms", changes=True)
    copies.sync(store.client)
    for room, temp in (("a", 99), ("b", 75), ("c", 82), ("a", 95), ("b", 85), ("c", 70)):
        measure(store, copies, room, temp)
    assert short(read(copies, "hot")) == ["+a 99", "+c 82", "ua 95", "+b 85", "-c 82"]
    assert short(read(copies, "all")) == ["+a 99", "+b 75", "+c 82", "ua 95", "ub 85", "uc 70"]


@pytest.mark.parametrize(
    ("readings", "tags"), [((89, 87, 79, 78), "+u-"), ((89, 79, 87, 78), "+-+-")]
)
def test_section_10_3_2(
    store: InsideStore, rooms: Copies, readings: tuple[int, ...], tags: str
) -> None:
    for temp in readings:
        measure(store, rooms, "r", temp)
    assert "".join(change.tag for change in read(rooms, "hot")) == tags


@pytest.mark.parametrize("readings", [(89, 87, 79, 78), (89, 79, 87, 78)])
def test_section_10_3_2_with_one_sync_at_the_end(
    store: InsideStore, rooms: Copies, readings: tuple[int, ...]
) -> None:
    for temp in readings:
        store.client.publish("rooms", [{"room": "r", "temp": temp}])
    rooms.sync(store.client)
    assert read(rooms, "hot") == []


def test_groups_change_and_empty(store: InsideStore, copies: Copies) -> None:
    """How many cars of each type there are: a count that changes, a group that empties."""
    store.client.define("CREATE STREAM lot (vid TEXT, vtype TEXT) KEY (vid)")
    text = "SELECT vtype, count(*) AS n FROM lot GROUP BY vtype"
    copies.keep("types", text, changes=True)
    copies.sync(store.client)
    for batch in ([("1", "car")], [("2", "car"), ("3", "bus")], [("3", "")]):
        rows = [{"vid": vid, "vtype": vtype} for vid, vtype in batch if vtype]
        if rows:
            store.client.publish("lot", rows)
        else:
            store.client.delete("lot", [{"vid": vid} for vid, _ in batch])
        copies.sync(store.client)
    changes = read(copies, "types")
    assert short(changes) == ["+car 1", "+bus 1", "ucar 2", "-bus 1"]
    assert changes[2].old == {"vtype": "car", "n": 1} and changes[3].why == "gone"


def test_distinct_and_the_first_so_many(store: InsideStore, copies: Copies) -> None:
    store.client.define(ROOMS)
    copies.keep("temps", "SELECT DISTINCT temp FROM rooms", changes=True)
    copies.keep(
        "top", "SELECT room, temp FROM rooms ORDER BY temp DESC, room LIMIT 1", changes=True
    )
    copies.sync(store.client)
    for room, temp in (("a", 1), ("b", 1), ("a", 2), ("b", 2), ("b", 3)):
        measure(store, copies, room, temp)
    assert short(read(copies, "temps")) == ["+1", "+2", "-1", "+3"]
    assert short(read(copies, "top")) == ["+a 1", "ua 2", "-a 2", "+b 3"]


def test_joins_come_and_go(store: InsideStore, copies: Copies) -> None:
    store.client.define(ROOMS)
    store.client.define("CREATE STREAM people (person TEXT, room TEXT) RETAIN 1 DAY")
    copies.keep(
        "warm",
        "SELECT p.person, r.temp FROM people AS p WINDOW(RANGE 1 HOUR), "
        "rooms AS r WINDOW(UNBOUNDED) WHERE p.room = r.room AND r.temp > 20",
        changes=True,
    )
    copies.sync(store.client)
    measure(store, copies, "a", 25)
    store.client.publish("people", [{"person": "Ann", "room": "a"}])
    copies.sync(store.client)
    measure(store, copies, "a", 26)
    measure(store, copies, "a", 10)
    changes = read(copies, "warm")
    assert short(changes) == ["+Ann 25", "-Ann 25", "+Ann 26", "-Ann 26"]
    assert [change.why for change in changes] == ["new", "ended", "new", "ended"]
    measure(store, copies, "a", 30)
    store.wait(3600)
    assert [(change.tag, change.why) for change in read(copies, "warm")] == [
        ("+", "new"),
        ("-", "left"),
    ]
