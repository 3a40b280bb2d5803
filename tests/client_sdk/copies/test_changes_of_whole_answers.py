"""Changes of answers that were sent whole: compared, or begun again."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from client_sdk import Copies
from client_sdk.copies._file.catalog import find
from tests.client_sdk.copies.rooms import HOT, ROOMS, measure, read, short
from tests.support.client_sdk.change_reader import ChangeReader
from tests.support.client_sdk.damage import rows_table
from tests.support.client_sdk.inside import InsideStore


def test_a_registration_made_again_is_compared(store: InsideStore, rooms: Copies) -> None:
    for room, temp in (("a", 99), ("b", 98), ("c", 97)):
        measure(store, rooms, room, temp)
    read(rooms, "hot")
    handle = rooms["hot"].handle
    assert handle is not None
    store.client.unregister(handle)
    for room, temp in (("a", 95), ("c", 10), ("d", 96)):
        store.client.publish("rooms", [{"room": room, "temp": temp}])
    synced = rooms.sync(store.client)
    assert synced["hot"].whole
    assert short(read(rooms, "hot")) == ["-c 97", "ua 95", "+d 96"]


def test_results_that_can_t_be_told_apart_are_compared(store: InsideStore, copies: Copies) -> None:
    """The whole answer comes because rows of the old one have passed the retention."""
    store.client.define("CREATE STREAM few (a TEXT, n BIGINT) RETAIN 10 SECONDS")
    copies.keep("sums", "SELECT a, sum(n) AS n FROM few GROUP BY a", changes=True)
    copies.sync(store.client)
    store.client.publish("few", [{"a": "x", "n": 1}, {"a": "y", "n": 2}])
    copies.sync(store.client)
    store.wait(3600)
    store.client.publish("few", [{"a": "x", "n": 5}])
    copies.sync(store.client)
    assert short(read(copies, "sums")) == ["+x 1", "+y 2", "-y 2", "ux 5"]


def test_other_columns_reset(store: InsideStore, copies: Copies) -> None:
    """A stream of the same name with other columns: there is nothing to compare."""
    store.client.define(ROOMS)
    copies.keep("all", "SELECT * FROM rooms", changes=True)
    copies.sync(store.client)
    measure(store, copies, "a", 99)
    store.client.define("DROP STREAM rooms")
    store.client.define("CREATE STREAM rooms (room TEXT, warm BOOLEAN) KEY (room)")
    store.client.publish("rooms", [{"room": "a", "warm": True}])
    copies.sync(store.client)
    with copies.changes("all") as batch:
        assert batch.reset and list(batch) == [] and batch.answer is not None
        assert [row["warm"] for row in batch.answer] == [True]
    assert read(copies, "all") == []


def test_a_text_that_was_replaced_resets(store: InsideStore, copies: Copies) -> None:
    """By its owner: the copy only has the handle. Nothing of before is reported."""
    store.client.define(ROOMS)
    handle = store.client.register(HOT, key="hot")
    copies.keep("hot", handle=handle, changes=True)
    measure(store, copies, "a", 99)
    measure(store, copies, "a", 95)
    store.client.register("SELECT room, temp FROM rooms WHERE temp < 50", key="hot", replace=True)
    measure(store, copies, "b", 20)
    with copies.changes("hot") as batch:
        assert (batch.reset, list(batch)) == ("REPLACED", [])
        assert batch.answer == ({"room": "b", "temp": 20},)
    measure(store, copies, "a", 10)
    assert short(read(copies, "hot")) == ["+a 10"]


def test_another_text_of_one_s_own_resets(store: InsideStore, rooms: Copies) -> None:
    measure(store, rooms, "a", 99)
    rooms.keep("hot", "SELECT room, temp FROM rooms WHERE temp < 50", changes=True)
    assert read(rooms, "hot") == []
    measure(store, rooms, "b", 20)
    with rooms.changes("hot") as batch:
        assert (batch.reset, list(batch)) == ("REPLACED", [])


def test_all_copies_at_one_position(store: InsideStore, rooms: Copies) -> None:
    """Changes are reported when the copies are visible, and not before."""
    rooms.keep("counts", "SELECT count(*) AS n FROM rooms", changes=True)
    rooms.sync(store.client)
    read(rooms, "counts")
    store.client.publish("rooms", [{"room": room, "temp": 99} for room in "abcdefgh"])
    store.client.publish("rooms", [{"room": "a", "temp": 10}, {"room": "b", "temp": 98}])
    for _ in range(100):
        rooms.sync(store.client, byte_budget=400, one_position=True)
        if rooms["counts"].rows() != [{"n": 0}]:
            break
        assert read(rooms, "hot") == read(rooms, "counts") == []
    assert len(read(rooms, "hot")) == 7
    assert short(read(rooms, "counts")) == ["u8"]
    store.client.publish("rooms", [{"room": "b", "temp": 10}])
    rooms.sync(store.client, one_position=True)
    assert [(change.tag, change.why) for change in read(rooms, "hot")] == [("-", "ended")]


def test_an_answer_that_was_complete_and_not_visible_is_reported(
    store: InsideStore, rooms: Copies
) -> None:
    """A sync at one position ends before its second copy; a plain sync goes on from there."""
    reader = ChangeReader("hot")
    reader.check(rooms)
    rooms.keep("hot", HOT, changes=True, priority=9)
    rooms.keep("all", "SELECT * FROM rooms")
    rooms.sync(store.client)
    store.client.publish("rooms", [{"room": room, "temp": 99} for room in "abcdefgh"])
    for _ in range(100):
        rooms.sync(store.client, byte_budget=1, one_position=True)
        with rooms._file.reading() as connection:
            following = find(connection, "hot").following
        if following is not None:
            break
    assert following is not None and rooms["hot"].rows() == []
    store.client.publish("rooms", [{"room": "a", "temp": 98}])
    rooms.sync(store.client, only=["hot"])
    reader.read(rooms)


def test_a_transfer_in_pieces_is_one_change(store: InsideStore, rooms: Copies) -> None:
    reader = ChangeReader("hot", lambda row: row["room"])
    reader.check(rooms)
    for temps in (range(81, 99), range(99, 81, -1)):
        rows = [{"room": f"room {number}", "temp": temp} for number, temp in enumerate(temps)]
        store.client.publish("rooms", rows)
        while not rooms.sync(store.client, byte_budget=60).complete:
            pass
        assert len(reader.read(rooms, syncs=1)) >= 17


def test_recovered_files_reset(store: InsideStore, tmp_path: Path) -> None:
    store.client.define(ROOMS)
    path = tmp_path / "phone.db"
    with Copies(path, clock=store.now) as copies:
        copies.keep("hot", HOT, changes=True)
        measure(store, copies, "a", 99)
    Copies.recover(path)
    with Copies(path, clock=store.now) as copies:
        assert read(copies, "hot") == []
        copies.sync(store.client)
        with copies.changes("hot") as batch:
            assert batch.reset == "DAMAGED"
            assert batch.answer == ({"room": "a", "temp": 99},)


def test_values_of_all_types(store: InsideStore, copies: Copies) -> None:
    columns = "k TEXT, b BOOLEAN, d DOUBLE, m DECIMAL(10,2), t TIMESTAMP, y DATE"
    store.client.define(f"CREATE STREAM many ({columns}) KEY (k)")
    copies.keep("all", "SELECT * FROM many", changes=True)
    copies.sync(store.client)
    rows: list[dict[str, Any]] = [
        {"k": "a", "b": True, "d": float("inf"), "m": None, "t": store.now(), "y": None},
        {
            "k": "a",
            "b": None,
            "d": float("nan"),
            "m": Decimal("1.50"),
            "t": None,
            "y": store.now().date(),
        },
    ]
    reader = ChangeReader("all", lambda row: row["k"])
    reader.check(copies)
    for row in rows:
        store.client.publish("many", [row])
        copies.sync(store.client)
        reader.read(copies, syncs=1)


def test_what_was_told_and_rows_are_damaged(store: InsideStore, rooms: Copies) -> None:
    """Nothing is reported before a sync has put the rows right."""
    for room in ("a", "b", "c", "d"):
        measure(store, rooms, room, 99)
    table = rows_table(rooms, "hot")
    with rooms._file.writing() as connection:
        connection.execute("UPDATE _psoup_copies SET told = 'x'")
        connection.execute(f"UPDATE {table} SET c1 = 12 WHERE row_id = 1")
    assert read(rooms, "hot") == []
    rooms.sync(store.client)
    with rooms.changes("hot") as batch:
        assert (batch.reset, list(batch)) == ("DAMAGED", [])
        assert batch.answer is not None and {row["temp"] for row in batch.answer} == {99}
