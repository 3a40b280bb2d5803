"""Own edits in own copies: what is shown, what pending says, and when an edit leaves."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from client_sdk import Copies, NotSynced, Retry
from client_sdk._client import Client
from client_sdk.copies._file.clock import DeviceClock, Uptime
from client_sdk.copies._file.home import FIRST_OWN_ROW
from tests.support.client_sdk.inside import InsideStore

ORDERS = "CREATE STREAM orders (id BIGINT, region TEXT, item TEXT) KEY (id)"
NORTH = "SELECT id, item FROM orders WHERE region = 'north'"
NOTES = "CREATE STREAM notes (text TEXT) RETAIN 1 DAY"


def order(id_: int, item: str, region: str = "north") -> dict[str, Any]:
    return {"id": id_, "region": region, "item": item}


@pytest.fixture
def orders(store: InsideStore, copies: Copies) -> Copies:
    """A copy of orders 1 and 2, and one of all notes."""
    store.client.define(ORDERS)
    store.client.define(NOTES)
    store.client.publish("orders", [order(1, "lamp"), order(2, "chair"), order(3, "bed", "south")])
    copies.keep("orders", NORTH, edits=True)
    copies.keep("notes", "SELECT text FROM notes RANGE 1 HOUR", edits=True)
    assert copies.sync(store.client).complete
    return copies


def items(copies: Copies, **options: Any) -> dict[int, str]:
    return {row["id"]: row["item"] for row in copies["orders"].rows(**options)}


def test_an_edit_is_there_at_once(orders: Copies) -> None:
    orders.publish("orders", [order(1, "two lamps"), order(4, "table")])
    orders.delete("orders", [{"id": 2}])
    assert items(orders) == {1: "two lamps", 4: "table"}
    assert items(orders, queued=False) == {1: "lamp", 2: "chair"}
    assert orders["orders"].pending == {1: "queued", 4: "queued", 2: "queued"}
    pending = orders["orders"].to_arrow(pending=True)
    assert pending.column("_pending").to_pylist() == ["queued", "queued"]
    sql = "SELECT item, _pending FROM orders ORDER BY id"
    assert [tuple(row.values()) for row in orders.query(sql)] == [
        ("two lamps", "queued"),
        ("table", "queued"),
    ]
    assert len(orders["orders"]) == 2
    batches = list(orders["orders"].batches(rows=1, pending=True))
    assert [batch.num_rows for batch in batches] == [1, 1]


def test_an_edit_that_leaves_the_answer(orders: Copies) -> None:
    orders.publish("orders", [order(1, "lamp", "south"), order(3, "bed")])
    assert items(orders) == {2: "chair", 3: "bed"}
    assert orders["orders"].pending == {1: "queued", 3: "queued"}


def test_the_last_edit_of_a_key_counts(orders: Copies) -> None:
    orders.publish("orders", [order(1, "one"), order(1, "two")])
    orders.delete("orders", [{"id": 1}])
    orders.publish("orders", [order(1, "three")])
    assert items(orders) == {1: "three", 2: "chair"}


def test_nothing_flickers_between_acknowledgement_and_sync(
    store: InsideStore, orders: Copies
) -> None:
    orders.publish("orders", [order(1, "two lamps")])
    orders.publish("notes", [{"text": "call back"}])
    orders.send(store.client)
    assert items(orders)[1] == "two lamps" and orders["orders"].pending == {1: "sent"}
    assert orders["notes"].rows() == [{"text": "call back"}]
    assert list(orders["notes"].pending.values()) == ["sent"]
    assert not orders.queued
    orders.sync(store.client, only=["orders"])
    assert orders["orders"].pending == {} and items(orders)[1] == "two lamps"
    assert list(orders["notes"].pending.values()) == ["sent"], "that copy does not have it yet"
    orders.sync(store.client)
    assert orders["notes"].pending == {} and orders["notes"].rows() == [{"text": "call back"}]


def test_an_edit_survives_a_restart_between_acknowledgement_and_sync(
    store: InsideStore, tmp_path: Path
) -> None:
    """The new process has seen no position: it asks for the one in the file."""
    store.client.define(ORDERS)
    with Copies(tmp_path / "phone.db", clock=store.now) as copies:
        copies.keep("orders", NORTH, edits=True)
        copies.sync(store.client)
        copies.publish("orders", [order(1, "lamp")])
        copies.send(store.client)
    position = store.client._session.position
    fresh = Client(transport=store.line, retry=Retry(attempts=3, first=0.0))
    with Copies(tmp_path / "phone.db", clock=store.now) as copies:
        assert items(copies) == {1: "lamp"} and copies["orders"].pending == {1: "sent"}
        store.line.calls.clear()
        copies.sync(fresh)
        (request,) = [request for method, request in store.line.calls if method == "Sync"]
        assert request.least_position == position
        assert items(copies) == {1: "lamp"} and copies["orders"].pending == {}


def test_a_session_that_has_seen_another_position_asks_twice(
    store: InsideStore, tmp_path: Path
) -> None:
    """Positions can't be compared, so both are asked for."""
    store.client.define(ORDERS)
    with Copies(tmp_path / "phone.db", clock=store.now) as copies:
        copies.keep("orders", NORTH, edits=True)
        copies.sync(store.client)
        copies.publish("orders", [order(1, "lamp")])
        copies.send(store.client)
        written = store.client._session.position
        second_client = Client(transport=store.line, retry=Retry(attempts=3, first=0.0))
        second_client.publish("orders", [order(2, "chair")])
        store.line.calls.clear()
        copies.sync(second_client)
        positions = [
            request.least_position for method, request in store.line.calls if method == "Sync"
        ]
        assert positions == [second_client._session.position, written]
        assert copies["orders"].pending == {} and items(copies) == {1: "lamp", 2: "chair"}


def test_the_end_of_a_resumed_transfer_does_not_count(store: InsideStore, orders: Copies) -> None:
    """Its target was fixed before the edit was acknowledged."""
    many = [order(number, "x" * 40) for number in range(100, 160)]
    store.client.publish("orders", many)
    orders.sync(store.client, byte_budget=500, only=["orders"])
    assert orders["orders"].staged
    orders.publish("orders", [order(1, "two lamps")])
    orders.send(store.client)
    line = store.line
    line.calls.clear()
    while orders["orders"].staged:
        orders.sync(store.client, byte_budget=500, only=["orders"])
        assert items(orders)[1] == "two lamps"
        if not orders["orders"].staged:
            break
        assert orders["orders"].pending == {1: "sent"}
    orders.sync(store.client)
    assert orders["orders"].pending == {} and items(orders)[1] == "two lamps"


def test_rejected_edits_are_shown_on_request(store: InsideStore, orders: Copies) -> None:
    orders.publish("orders", [order(1, "two lamps")])
    store.client.define("DROP STREAM orders")
    assert len(orders.send(store.client).rejected) == 1
    assert items(orders) == {1: "lamp", 2: "chair"}
    assert items(orders, rejected=True) == {1: "two lamps", 2: "chair"}
    assert orders["orders"].pending == {1: "rejected"}
    rows = orders.query("SELECT item FROM orders WHERE _pending = 'rejected'", rejected=True)
    assert rows == [{"item": "two lamps"}]
    orders.requeue()
    assert items(orders) == {1: "two lamps", 2: "chair"}
    assert orders["orders"].pending == {1: "queued"}
    orders.send(store.client)
    orders.discard()
    assert items(orders, rejected=True) == {1: "lamp", 2: "chair"}
    assert orders["orders"].pending == {}


def test_rows_without_a_key_have_ids_that_ascend(store: InsideStore, copies: Copies) -> None:
    store.client.define(NOTES)
    copies.keep("notes", "SELECT row_id, text FROM notes", edits=True)
    copies.sync(store.client)
    copies.publish("notes", [{"text": "a"}, {"text": "b"}])
    copies.publish("notes", [{"text": "c"}])
    rows = copies["notes"].rows()
    assert [row["text"] for row in rows] == ["a", "b", "c"]
    ids = [row["row_id"] for row in rows]
    assert ids == [FIRST_OWN_ROW, FIRST_OWN_ROW + 1, FIRST_OWN_ROW + 2]
    assert copies["notes"].pending == dict.fromkeys(ids, "queued")


def test_a_row_that_waits_stays_in_a_window_of_time(store: InsideStore, orders: Copies) -> None:
    """It is as if the store took it now; once it is sent, its hour runs."""
    orders.publish("notes", [{"text": "call back"}])
    store.wait(2 * 3600)
    assert len(orders["notes"]) == 1
    assert orders["notes"].rows(store.now() + timedelta(hours=1)) == []
    orders.send(store.client)
    store.wait(3599)
    assert len(orders["notes"]) == 1
    store.wait(2)
    assert len(orders["notes"]) == 0


def test_a_fast_clock_does_not_keep_a_row_longer(store: InsideStore, tmp_path: Path) -> None:
    """Of a device whose clock is 20 minutes ahead: the store's NOW counts."""
    store.client.define(NOTES)

    def fast() -> Any:
        return store.now() + timedelta(minutes=20)

    clock = DeviceClock(fast, lambda: Uptime("boot", store.clock))
    with Copies(tmp_path / "phone.db", clock=clock) as copies:
        copies.keep("notes", "SELECT text, ts FROM notes RANGE 1 HOUR", edits=True)
        copies.sync(store.client)
        copies.publish("notes", [{"text": "call back"}])
        assert copies["notes"].rows() == [{"text": "call back", "ts": store.now()}]
        copies.send(store.client)
        sent_at = store.now()
        store.wait(3599)
        assert copies["notes"].rows() == [{"text": "call back", "ts": sent_at}]
        store.wait(1)
        assert copies["notes"].rows() == []


def test_a_batch_for_an_unknown_stream_is_unchecked(store: InsideStore, tmp_path: Path) -> None:
    store.client.define(ORDERS)
    with Copies(tmp_path / "phone.db", clock=store.now) as copies:
        copies.publish("ORDERS", [order(1, "lamp")])
        copies.keep("orders", NORTH, edits=True)
        with pytest.raises(NotSynced):
            copies["orders"].rows()
        copies.sync(store.client, send=False)
        assert items(copies) == {} and copies["orders"].pending == {1: "unchecked"}
        copies.send(store.client)
        assert items(copies) == {1: "lamp"} and copies["orders"].pending == {1: "sent"}
        copies.sync(store.client)
        assert items(copies) == {1: "lamp"} and copies["orders"].pending == {}


def test_what_waited_before_the_copy_was_kept_is_shown(store: InsideStore, orders: Copies) -> None:
    orders.publish("orders", [order(4, "table")])
    orders.keep("all", "SELECT id FROM orders", edits=True)
    orders.sync(store.client, send=False)
    assert [row["id"] for row in orders["all"].rows()] == [1, 2, 3, 4]
    orders.keep("all", "SELECT item FROM orders", edits=True)
    orders.sync(store.client, send=False)
    assert [row["item"] for row in orders["all"].rows()] == ["lamp", "chair", "bed", "table"]
    orders.keep("all", "SELECT item FROM orders")
    assert len(orders["all"].rows()) == 3 and orders["all"].pending == {}


def test_a_registration_with_another_text(store: InsideStore, orders: Copies) -> None:
    """Another device, or the program itself, has replaced the query."""
    orders.publish("orders", [order(4, "table", "south")])
    (key,) = [
        request.client_key
        for method, request in store.line.calls
        if method == "Register" and "orders" in request.sql
    ]
    text = "SELECT id, item FROM orders WHERE region = 'south'"
    store.client.register(text, key=key, replace=True)
    orders.sync(store.client, send=False)
    assert items(orders) == {3: "bed", 4: "table"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "SELECT o.item, p.item AS other FROM orders AS o JOIN orders AS p ON o.id = p.id",
            "more than the rows of one stream",
        ),
        ("SELECT count(*) AS n FROM orders", "base_rows=True"),
        ("SELECT item FROM orders LIMIT 3", "base_rows=True"),
        ("SELECT item FROM orders REFRESH EVERY 5 SECONDS", "REFRESH"),
        ("SELECT item FROM orders REFRESH ON orders", "REFRESH"),
        ("SELECT item FROM orders REFRESH ON notes", "refresh"),
        ("SELECT item FROM orders WHERE id > 1 ROWS 5", "WHERE"),
        ("SELECT item FROM orders ROWS 1 PARTITION BY region", "select region"),
        ("SELECT item FROM orders RANGE 1 HOUR SLIDE 1 MINUTE", "SLIDE"),
        ("SELECT text FROM notes ROWS 5 SLIDE 2", "SLIDE"),
        ("SELECT item FROM orders BEGIN ROW 1 END ROW LAST", "row ids"),
        ("SELECT item FROM orders WHERE row_id > 3", "row_id"),
        ("SELECT item FROM orders WHERE id IN (SELECT id FROM orders)", "rows of one stream"),
    ],
)
def test_edits_that_can_t_be_shown(store: InsideStore, copies: Copies, text: str, why: str) -> None:
    """The first sync says why, and the copy is kept without."""
    store.client.define(ORDERS)
    store.client.define(NOTES)
    store.client.publish("orders", [order(1, "lamp")])
    copies.keep("c", text, edits=True)
    change = copies.sync(store.client)["c"]
    assert change.status == "refused" and change.error is not None
    assert change.error.reason == "NOT_COMPUTABLE" and why in str(change.error)
    before = copies["c"].rows()
    copies.publish("orders", [order(1, "two lamps")])
    assert copies["c"].rows() == before and copies["c"].pending == {}
    assert copies.sync(store.client).complete
    copies.keep("c", text, edits=True)
    assert copies.sync(store.client)["c"].rows == 0, "declared again, it is not sent whole"


def test_a_stream_that_was_made_again_with_other_columns(
    store: InsideStore, orders: Copies
) -> None:
    orders.publish("orders", [order(4, "table")])
    store.client.define("DROP STREAM orders")
    store.client.define(
        "CREATE STREAM orders (id BIGINT, region TEXT, item TEXT, n BIGINT) KEY (id)"
    )
    store.client.publish("orders", [{**order(7, "sofa"), "n": 1}])
    orders.sync(store.client, send=False)
    assert items(orders) == {7: "sofa"} and orders["orders"].pending == {4: "unchecked"}
    assert len(orders.sync(store.client).sent.rejected) == 1
    assert items(orders) == {7: "sofa"} and orders["orders"].pending == {4: "rejected"}


def test_a_column_that_was_added_while_the_device_was_away(
    store: InsideStore, orders: Copies
) -> None:
    """Rows that were queued without it have its default."""
    orders.publish("orders", [order(4, "table")])
    store.client.define("ALTER STREAM orders ADD COLUMN fee BIGINT DEFAULT 7")
    orders.keep("fees", "SELECT id, fee FROM orders", edits=True)
    orders.sync(store.client, send=False)
    fees = [{"id": id_, "fee": 7} for id_ in (1, 2, 3, 4)]
    assert orders["fees"].rows() == fees and items(orders)[4] == "table"
    orders.publish("orders", [{**order(5, "rug"), "fee": 9}])
    assert items(orders)[5] == "rug"
    orders.sync(store.client)
    assert orders["fees"].rows() == [*fees, {"id": 5, "fee": 9}]


def test_damaged_own_rows_are_evaluated_again(store: InsideStore, orders: Copies) -> None:
    orders.publish("orders", [order(4, "table")])
    with orders._file.writing() as connection:
        connection.execute("UPDATE _psoup_overlay_1 SET c1 = 'damaged'")
        connection.execute("UPDATE _psoup_copies SET sound = NULL")
    orders.sync(store.client, send=False)
    assert items(orders)[4] == "table"


def test_groups_over_base_rows(store: InsideStore, orders: Copies) -> None:
    text = "SELECT region, count(*) AS n FROM orders GROUP BY region"
    orders.keep("counts", text, base_rows=True, edits=True)
    orders.sync(store.client)
    orders.publish("orders", [order(1, "lamp", "south"), order(5, "rug", "west")])
    rows = {row["region"]: row["n"] for row in orders["counts"].rows()}
    assert rows == {"north": 1, "south": 2, "west": 1}
    statuses = orders.query("SELECT region, _pending FROM counts ORDER BY region")
    assert [tuple(row.values()) for row in statuses] == [
        ("north", None),
        ("south", "queued"),
        ("west", "queued"),
    ]
    orders.keep(
        "first", "SELECT item FROM orders ORDER BY item LIMIT 2", base_rows=True, edits=True
    )
    orders.sync(store.client, send=False)
    answer = orders["first"].to_arrow(pending=True)
    assert answer.to_pylist() == [
        {"item": "bed", "_pending": None},
        {"item": "chair", "_pending": None},
    ]
    orders.publish("orders", [order(9, "apple")])
    answer = orders["first"].to_arrow(pending=True)
    assert answer.to_pylist()[0] == {"item": "apple", "_pending": "queued"}


@pytest.fixture
def states(store: InsideStore, copies: Copies) -> Iterator[Copies]:
    store.client.define(
        "CREATE STREAM states (id BIGINT, v TEXT, at TIMESTAMP) KEY (id) ORDERED BY at"
    )
    store.client.publish("states", [state(store, 1, "a", -10), state(store, 2, "b", -5)])
    copies.keep("states", "SELECT id, v FROM states WHERE v <> 'x' RANGE 1 MINUTE", edits=True)
    copies.sync(store.client)
    yield copies


def state(store: InsideStore, id_: int, v: str, seconds: float) -> dict[str, Any]:
    return {"id": id_, "v": v, "at": store.now() + timedelta(seconds=seconds)}


def values(copies: Copies) -> dict[int, str]:
    return {row["id"]: row["v"] for row in copies["states"].rows()}


def test_a_late_row_is_not_current(store: InsideStore, states: Copies) -> None:
    states.publish("states", [state(store, 1, "late", -11), state(store, 2, "level", -5)])
    assert values(states) == {1: "a", 2: "level"}


def test_what_the_copy_can_t_know_is_unchecked(store: InsideStore, states: Copies) -> None:
    """Key 3 may have a later row that the query hides, or a delete."""
    states.publish("states", [state(store, 3, "new", -8), state(store, 4, "newer", -1)])
    assert values(states) == {1: "a", 2: "b", 3: "new", 4: "newer"}
    assert states["states"].pending == {3: "unchecked", 4: "queued"}
    pending = states["states"].to_arrow(pending=True).column("_pending").to_pylist()
    assert sorted(filter(None, pending)) == ["queued", "unchecked"]


def test_own_rows_move_now(store: InsideStore, states: Copies) -> None:
    states.publish("states", [state(store, 4, "later", 51)])
    assert values(states) == {2: "b", 4: "later"}
    states.heartbeat("states", store.now() + timedelta(seconds=56))
    assert values(states) == {4: "later"}
    assert states["states"].pending == {4: "queued"}


def test_a_doubtful_edit_is_shown(store: InsideStore, tmp_path: Path) -> None:
    """Of a file that was copied: both may have sent it."""
    store.client.define(ORDERS)
    path, clone = tmp_path / "phone.db", tmp_path / "clone.db"
    with Copies(path, clock=store.now) as copies:
        copies.keep("orders", NORTH, edits=True)
        copies.sync(store.client)
        copies.publish("orders", [order(1, "lamp")])
    shutil.copy(path, clone)
    with Copies(clone, clock=store.now) as copies:
        copies.publish("orders", [order(2, "chair")])
        copies.send(store.client)
    with Copies(path, clock=store.now) as copies:
        with copies._file.writing() as connection:
            connection.execute("UPDATE _psoup_queue SET tried = 'another 1'")
        assert len(copies.send(store.client).doubtful) == 1
        assert items(copies) == {1: "lamp"} and copies["orders"].pending == {1: "sent"}
        copies.sync(store.client)
        assert items(copies) == {1: "lamp", 2: "chair"}
        copies.discard(copies.doubtful[0].batch)
        assert copies["orders"].pending == {}


def test_a_restored_store_forgets_the_position(store: InsideStore, orders: Copies) -> None:
    """The store does not know the acknowledgement: nothing is waited for."""
    orders.publish("orders", [order(1, "two lamps")])
    orders.send(store.client)
    with orders._file.writing() as connection:
        connection.execute("UPDATE _psoup_queue SET position = ?", (b"\x01" * 20,))
    fresh = Client(transport=store.line, retry=Retry(attempts=3, first=0.0))
    orders.sync(fresh)
    assert orders["orders"].pending == {}
