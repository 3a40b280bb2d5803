"""Copies of queries with NOW in WHERE, offline: what the store answers at the same instant."""

from __future__ import annotations

from datetime import timedelta

from client_sdk import Copies, NotComputable
from tests.client_sdk.copies.rooms import read, short
from tests.support.client_sdk.inside import InsideStore

ORDERS = "CREATE STREAM orders (name TEXT, due TIMESTAMP, done BOOLEAN) KEY (name)"
OVERDUE = "SELECT name, due FROM orders WHERE due < NOW AND NOT done ORDER BY name"
SOON = "SELECT name FROM orders WHERE due - NOW < INTERVAL '1' HOUR AND due > NOW"
COUNTED = "SELECT count(*) AS n, min(due) AS first FROM orders WHERE due < NOW AND NOT done"
TEXTS = {"overdue": OVERDUE, "soon": SOON, "counted": COUNTED}
MINUTES = (-90, -1, 0, 1, 30, 59, 60, 61, 240)


def publish(store: InsideStore, first: int) -> None:
    rows = [
        {
            "name": f"o{(first + number) % 12}",
            "due": store.now() + timedelta(minutes=minutes),
            "done": (first + number) % 5 == 0,
        }
        for number, minutes in enumerate(MINUTES)
    ]
    store.client.publish("orders", rows)


def test_a_copy_offline_is_the_answer_of_every_instant(store: InsideStore, copies: Copies) -> None:
    store.client.define(ORDERS)
    handles = {name: store.client.register(text) for name, text in TEXTS.items()}
    for name, text in TEXTS.items():
        copies.keep(name, text, base_rows=name == "counted")
    for first in (0, 5, 9):
        publish(store, first)
        copies.sync(store.client)
        for seconds in (0, 1, 60, 1800, 3600, 30):
            store.wait(seconds)
            for name, handle in handles.items():
                assert copies[name].rows() == store.client.invoke(handle).rows, (name, first)
    assert copies["overdue"].rows()


def test_rows_become_overdue_by_themselves(store: InsideStore, copies: Copies) -> None:
    store.client.define(ORDERS)
    copies.keep("overdue", OVERDUE, changes=True)
    due = store.now() + timedelta(minutes=5)
    store.client.publish("orders", [{"name": "o1", "due": due, "done": False}])
    copies.sync(store.client)
    assert read(copies, "overdue") == []
    store.line.calls.clear()
    store.wait(301)
    (change,) = read(copies, "overdue")
    assert change.tag == "+" and change.at == due + timedelta(microseconds=1)
    assert store.line.calls == []
    store.client.publish("orders", [{"name": "o1", "due": due, "done": True}])
    copies.sync(store.client)
    assert [text[:1] for text in short(read(copies, "overdue"))] == ["-"]


def test_own_edits_become_overdue_offline(store: InsideStore, copies: Copies) -> None:
    store.client.define(ORDERS)
    copies.keep("overdue", OVERDUE, edits=True)
    copies.keep("counted", COUNTED, base_rows=True, edits=True)
    publish(store, 0)
    copies.sync(store.client)
    soon, later = (store.now() + timedelta(minutes=minutes) for minutes in (10, 20))
    copies.publish(
        "orders",
        [
            {"name": "own", "due": soon, "done": False},
            {"name": "o1", "due": later, "done": False},
            {"name": "o3", "due": later, "done": True},
        ],
    )
    seen = []
    for minutes in (0, 10, 10, 60):
        store.wait(minutes * 60 + 1)
        seen.append([copies[name].rows() for name in ("overdue", "counted")])
    names = [[row["name"] for row in overdue] for overdue, _ in seen]
    assert [("own" in rows, "o1" in rows, "o3" in rows) for rows in names] == [
        (False, False, False),
        (True, False, False),
        (True, True, False),
        (True, True, False),
    ]
    handles = {name: store.client.register(TEXTS[name]) for name in ("overdue", "counted")}
    copies.send(store.client)
    answers = [store.client.invoke(handle).rows for handle in handles.values()]
    assert answers == seen[-1]
    copies.sync(store.client)
    assert [copies[name].rows() for name in handles] == answers


def test_own_edits_are_not_shown_where_now_is_computed_with(
    store: InsideStore, copies: Copies
) -> None:
    store.client.define(ORDERS)
    copies.keep("late", "SELECT name FROM orders WHERE due < NOW OR done", edits=True)
    error = copies.sync(store.client)["late"].error
    assert isinstance(error, NotComputable) and "computes with NOW" in str(error)


def test_edits_are_ordered_by_a_time_that_the_copy_must_have(
    store: InsideStore, copies: Copies
) -> None:
    store.client.define(
        "CREATE STREAM states (id BIGINT, due TIMESTAMP, at TIMESTAMP) KEY (id) ORDERED BY at"
    )
    copies.keep("without", "SELECT id FROM states WHERE due < NOW", edits=True)
    copies.keep("with", "SELECT id, at FROM states WHERE due < NOW", edits=True)
    results = copies.sync(store.client)
    assert isinstance(error := results["without"].error, NotComputable)
    assert "select at too" in str(error) and results["with"].error is None


def test_notes_of_a_registration(store: InsideStore) -> None:
    store.client.define(ORDERS)
    assert not store.client.register(OVERDUE).notes
    (note,) = store.client.register("SELECT name, due < NOW AS late FROM orders").notes
    assert "REFRESH" in note
