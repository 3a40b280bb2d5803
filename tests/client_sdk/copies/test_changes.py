"""What a program may rely on of changes, whether its copies are in a file or in memory."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from client_sdk import AnswerChange, Copies, UnknownCopy
from tests.client_sdk.copies.trades import DEAR, TRADES, trade
from tests.support.client_sdk.change_reader import ChangeReader
from tests.support.client_sdk.damage import rows_table
from tests.support.client_sdk.inside import InsideStore

ROOMS = "CREATE STREAM rooms (room TEXT, temp BIGINT) KEY (room) RETAIN 1 DAY"
MINUTE = timedelta(minutes=1)
HOT = "SELECT room, temp FROM rooms WHERE temp > 80"


def read(copies: Copies, name: str) -> list[AnswerChange]:
    with copies.changes(name) as batch:
        assert not batch.reset
        return list(batch)


def short(changes: list[AnswerChange]) -> list[str]:
    """A change as the papers write it: +<a, 99>, u<a, 95>, -<a, 95>."""
    return [
        f"{one.tag}{' '.join(str(value) for value in (one.row or one.old or {}).values())}"
        for one in changes
    ]


@pytest.fixture
def rooms(store: InsideStore, copies: Copies) -> Copies:
    """A copy of a keyed stream that has been synced, of no rows yet."""
    store.client.define(ROOMS)
    copies.keep("hot", HOT, changes=True)
    copies.sync(store.client)
    return copies


def measure(store: InsideStore, copies: Copies, room: str, temp: int) -> None:
    store.wait(1)
    store.client.publish("rooms", [{"room": room, "temp": temp}])
    copies.sync(store.client)


# ---- tags


def test_an_update_has_the_row_before_and_after(store: InsideStore, rooms: Copies) -> None:
    measure(store, rooms, "a", 99)
    measure(store, rooms, "a", 95)
    came, changed = read(rooms, "hot")
    assert (came.tag, came.row, came.old, came.why) == ("+", {"room": "a", "temp": 99}, None, "new")
    assert (changed.tag, changed.why) == ("u", "changed")
    assert (changed.row, changed.old) == ({"room": "a", "temp": 95}, {"room": "a", "temp": 99})
    assert changed.at == store.now() and came.at == store.now() - timedelta(seconds=1)


def test_a_key_that_ends(store: InsideStore, rooms: Copies) -> None:
    measure(store, rooms, "a", 99)
    measure(store, rooms, "b", 98)
    read(rooms, "hot")
    measure(store, rooms, "a", 20)
    store.client.delete("rooms", [{"room": "b"}])
    rooms.sync(store.client)
    assert [(one.tag, one.old, one.why) for one in read(rooms, "hot")] == [
        ("-", {"room": "a", "temp": 99}, "ended"),
        ("-", {"room": "b", "temp": 98}, "ended"),
    ]


def test_the_least_that_leads_from_one_sync_to_the_next(store: InsideStore, rooms: Copies) -> None:
    """Came and went: nothing. Updated twice: once, first to last. The same values: nothing."""
    measure(store, rooms, "a", 99)
    read(rooms, "hot")
    for room, temp in (("a", 90), ("b", 85), ("b", 10), ("a", 91)):
        store.client.publish("rooms", [{"room": room, "temp": temp}])
    rooms.sync(store.client)
    (only,) = read(rooms, "hot")
    assert (only.tag, only.old, only.row) == (
        "u",
        {"room": "a", "temp": 99},
        {"room": "a", "temp": 91},
    )
    store.client.publish("rooms", [{"room": "a", "temp": 70}, {"room": "a", "temp": 91}])
    rooms.sync(store.client)
    assert read(rooms, "hot") == []


def test_only_columns_that_are_selected_count(store: InsideStore, copies: Copies) -> None:
    store.client.define(ROOMS)
    copies.keep("names", "SELECT room FROM rooms WHERE temp > 80", changes=True)
    copies.sync(store.client)
    for temp in (99, 95, 70, 90):
        measure(store, copies, "a", temp)
    assert short(read(copies, "names")) == ["+a", "-a", "+a"]


def test_rows_of_a_stream_without_a_key_only_come_and_go(
    store: InsideStore, copies: Copies
) -> None:
    store.client.define(TRADES)
    copies.keep("newest", "SELECT symbol, price FROM trades ROWS 2", changes=True)
    copies.sync(store.client)
    for price in (1.0, 2.0, 3.0):
        store.client.publish("trades", [trade("IBM", price)])
        copies.sync(store.client)
    changes = read(copies, "newest")
    assert short(changes) == ["+IBM 1.0", "+IBM 2.0", "-IBM 1.0", "+IBM 3.0"]
    assert changes[2].why == "left"


def test_what_a_window_pushes_out_of_a_keyed_stream_left(
    store: InsideStore, copies: Copies
) -> None:
    store.client.define(ROOMS)
    copies.keep("newest", "SELECT room, temp FROM rooms ROWS 2", changes=True)
    copies.sync(store.client)
    for room, temp in (("a", 1), ("b", 2), ("c", 3), ("b", 4)):
        measure(store, copies, room, temp)
    changes = read(copies, "newest")
    assert short(changes) == ["+a 1", "+b 2", "-a 1", "+c 3", "ub 4"]
    assert changes[2].why == "left"


# ---- the papers' examples


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
    assert [one.at and one.at.timestamp() for one in changes] == [2, 2, 4, 4]


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
    assert "".join(one.tag for one in read(rooms, "hot")) == tags


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
    assert [one.why for one in changes] == ["new", "ended", "new", "ended"]
    measure(store, copies, "a", 30)
    store.wait(3600)
    assert [(one.tag, one.why) for one in read(copies, "warm")] == [("+", "new"), ("-", "left")]


# ---- time


def test_rows_leave_by_themselves_in_the_order_of_their_instants(
    store: InsideStore, kept: Copies
) -> None:
    kept.keep("dear", DEAR, changes=True)
    kept.sync(store.client)
    for price in (101.0, 103.0, 102.0):
        store.wait(60)
        store.client.publish("trades", [trade("IBM", price)])
        kept.sync(store.client)
    begun = store.now()
    read(kept, "dear")
    store.line.calls.clear()
    store.wait(500)
    assert [(one.tag, one.why) for one in read(kept, "dear")] == [("-", "left")]
    store.wait(600)
    left = read(kept, "dear")
    assert short(left) == ["-IBM 103.0", "-IBM 102.0"]
    assert [one.at and one.at - begun for one in left] == [9 * MINUTE, 10 * MINUTE]
    assert store.line.calls == [] and read(kept, "dear") == []
    kept.sync(store.client)
    assert read(kept, "dear") == []


def test_rows_enter_by_themselves(store: InsideStore, copies: Copies) -> None:
    store.client.define(TRADES)
    text = "SELECT symbol FROM trades BEGIN NOW - 10 MINUTES END NOW - 1 MINUTE"
    copies.keep("later", text, changes=True)
    copies.sync(store.client)
    store.client.publish("trades", [trade("IBM", 1.0)])
    copies.sync(store.client)
    assert read(copies, "later") == []
    published = store.now()
    store.wait(90)
    (entered,) = read(copies, "later")
    assert entered.tag == "+" and entered.at == published + timedelta(minutes=1)
    store.wait(3600)
    assert [one.tag for one in read(copies, "later")] == ["-"]


def test_what_entered_and_left_between_two_readings_is_not_told(
    store: InsideStore, copies: Copies
) -> None:
    store.client.define(TRADES)
    text = "SELECT symbol FROM trades BEGIN NOW - 10 MINUTES END NOW - 1 MINUTE"
    copies.keep("later", text, changes=True)
    store.client.publish("trades", [trade("IBM", 1.0)])
    copies.sync(store.client)
    store.wait(3600)
    assert read(copies, "later") == []


def test_without_those_that_leave(store: InsideStore, kept: Copies) -> None:
    kept.keep("dear", DEAR, changes="without left")
    kept.sync(store.client)
    store.client.publish("trades", [trade("IBM", 101.0)])
    kept.sync(store.client)
    store.wait(3600)
    assert [one.tag for one in read(kept, "dear")] == ["+"]
    kept.sync(store.client)
    assert read(kept, "dear") == []


def test_event_time_moves_with_the_sync(store: InsideStore, copies: Copies) -> None:
    store.client.define(
        "CREATE STREAM seen (who TEXT, at TIMESTAMP) ORDERED BY at RETAIN 1 DAY AHEAD 1 DAY"
    )
    copies.keep("now", "SELECT who FROM seen RANGE 1 MINUTE", changes=True)
    copies.sync(store.client)
    begun = store.now()
    for who, minutes in (("Ann", 0), ("Bob", 5)):
        at = begun + timedelta(minutes=minutes)
        store.client.publish("seen", [{"who": who, "at": at}])
        copies.sync(store.client)
    store.wait(3600)
    changes = read(copies, "now")
    assert short(changes) == ["+Ann", "-Ann", "+Bob"]
    assert [one.at and (one.at - begun).total_seconds() for one in changes] == [0, 60, 300]


# ---- once


def test_a_batch_that_failed_comes_again(store: InsideStore, rooms: Copies) -> None:
    measure(store, rooms, "a", 99)
    with pytest.raises(RuntimeError), rooms.changes("hot") as batch:
        first = list(batch)
        raise RuntimeError
    measure(store, rooms, "b", 98)
    again = read(rooms, "hot")
    assert again[:1] == first and short(again) == ["+a 99", "+b 98"]
    assert read(rooms, "hot") == []


def test_what_comes_while_a_batch_is_read_is_in_the_next(store: InsideStore, rooms: Copies) -> None:
    measure(store, rooms, "a", 99)
    with rooms.changes("hot") as batch:
        measure(store, rooms, "b", 98)
        assert short(list(batch)) == ["+a 99"]
    assert short(read(rooms, "hot")) == ["+b 98"]


def test_changes_outlive_the_process(store: InsideStore, tmp_path: Path) -> None:
    store.client.define(ROOMS)
    path = tmp_path / "phone.db"
    with Copies(path, clock=store.now) as copies:
        copies.keep("hot", HOT, changes=True)
        copies.sync(store.client)
        measure(store, copies, "a", 99)
    with Copies(path, clock=store.now) as copies:
        assert short(read(copies, "hot")) == ["+a 99"]
    with Copies(path, clock=store.now) as copies:
        assert read(copies, "hot") == []


# ---- on and off


def test_the_first_answer_has_no_changes(store: InsideStore, copies: Copies) -> None:
    store.client.define(ROOMS)
    store.client.publish("rooms", [{"room": "a", "temp": 99}])
    copies.keep("hot", HOT, changes=True)
    assert read(copies, "hot") == []
    copies.sync(store.client)
    assert read(copies, "hot") == [] and len(copies["hot"]) == 1


def test_turned_on_and_off(store: InsideStore, copies: Copies) -> None:
    store.client.define(ROOMS)
    copies.keep("hot", HOT)
    measure(store, copies, "a", 99)
    with pytest.raises(ValueError, match="changes=True"):
        read(copies, "hot")
    copies.keep("hot", HOT, changes=True)
    assert len(copies["hot"]) == 1
    synced = copies.sync(store.client)
    assert synced["hot"].whole and synced["hot"].reason == "OTHER_WINDOW"
    measure(store, copies, "a", 95)
    assert short(read(copies, "hot")) == ["ua 95"]
    measure(store, copies, "a", 96)
    copies.keep("hot", HOT, changes="without left")
    assert short(read(copies, "hot")) == ["ua 96"]
    copies.keep("hot", HOT)
    with pytest.raises(ValueError, match="no changes"):
        read(copies, "hot")
    copies.keep("hot", HOT, changes=True)
    copies.sync(store.client)
    assert read(copies, "hot") == []


def test_misuse(copies: Copies) -> None:
    with pytest.raises(ValueError, match="without left"):
        copies.keep("hot", HOT, changes="left")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="base_rows"):
        copies.keep("hot", HOT, changes=True, base_rows=True)
    with pytest.raises(UnknownCopy):
        read(copies, "hot")


# ---- whole answers


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
    """By whoever registered it: the copy only has the handle. Nothing of before is told."""
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
    """Changes are told when the copies are seen, and not before."""
    rooms.keep("counts", "SELECT count(*) AS n FROM rooms", changes=True)
    rooms.sync(store.client)
    read(rooms, "counts")
    store.client.publish("rooms", [{"room": room, "temp": 99} for room in "abcdefgh"])
    store.client.publish("rooms", [{"room": "a", "temp": 10}, {"room": "b", "temp": 98}])
    for _ in range(100):
        synced = rooms.sync(store.client, byte_budget=400, one_position=True)
        if synced.complete:
            break
        assert read(rooms, "hot") == read(rooms, "counts") == []
    assert len(read(rooms, "hot")) == 7
    assert short(read(rooms, "counts")) == ["u8"]
    store.client.publish("rooms", [{"room": "b", "temp": 10}])
    rooms.sync(store.client, one_position=True)
    assert [(one.tag, one.why) for one in read(rooms, "hot")] == [("-", "ended")]


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
    """Nothing is told before a sync has put the rows right."""
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
