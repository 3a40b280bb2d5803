"""What a program may rely on of changes, whether its copies are in a file or in memory."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from client_sdk import Copies, UnknownCopy
from tests.client_sdk.copies.rooms import HOT, ROOMS, measure, read, short
from tests.client_sdk.copies.trades import TRADES, trade
from tests.support.client_sdk.inside import InsideStore

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
    assert [(change.tag, change.old, change.why) for change in read(rooms, "hot")] == [
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
