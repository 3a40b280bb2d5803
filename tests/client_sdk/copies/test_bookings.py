"""Copies of streams with a validity, offline: what the store answers at the same instant. What the
store refuses of such streams."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from client_sdk import Copies, InvalidRequest, NotComputable, QueryProblem
from tests.client_sdk.copies.rooms import read, short
from tests.support.client_sdk.inside import InsideStore

BOOKINGS = (
    "CREATE STREAM bookings (id BIGINT, room TEXT, starts TIMESTAMP, ends TIMESTAMP) KEY (id)"
    " VALID FROM starts UNTIL ends RETAIN 1 DAY"
)
BOOKED = "SELECT id, room FROM bookings ORDER BY id"
SOON = "SELECT id, room FROM bookings ORDER BY id BEGIN NOW END NOW + 1 HOUR"
COUNTED = "SELECT room, count(*) AS n FROM bookings GROUP BY room"
ALL = "SELECT id, starts FROM bookings ORDER BY id UNBOUNDED"
TEXTS = {"booked": BOOKED, "soon": SOON, "counted": COUNTED, "all": ALL}


def booking(store: InsideStore, id_: int, begin: float, hours: float | None) -> dict[str, Any]:
    starts = store.now() + timedelta(hours=begin)
    ends = None if hours is None else starts + timedelta(hours=hours)
    return {"id": id_, "room": f"room {id_ % 2}", "starts": starts, "ends": ends}


def answer(store: InsideStore, text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = store.client.invoke(store.client.register(text).handle).rows
    return rows


def test_a_copy_offline_is_the_answer_of_every_instant(store: InsideStore, copies: Copies) -> None:
    store.client.define(BOOKINGS)
    handles = {name: store.client.register(text) for name, text in TEXTS.items()}
    for name, text in TEXTS.items():
        copies.keep(name, text)
    sizes = set()
    for first in (0, 4, 7):
        spans = [(-2, 1), (-1, None), (0, 1), (0.5, 2), (1, 0.01), (3, 1), (30, 5)]
        rows = [booking(store, (first + n) % 9, *span) for n, span in enumerate(spans)]
        store.client.publish("bookings", rows)
        copies.sync(store.client)
        for seconds in (0, 1, 1799, 1, 1800, 86_400):
            store.wait(seconds)
            if not copies["counted"].state.fresh(store.now()):
                copies.sync(store.client, only=["counted"])
            for name, handle in handles.items():
                copied = copies[name].rows()
                assert copied == store.client.invoke(handle).rows, (name, first, seconds)
                sizes.add(len(copied))
    assert len(sizes) > 4


def test_moved_and_cancelled_bookings(store: InsideStore, copies: Copies) -> None:
    store.client.define(BOOKINGS)
    copies.keep("booked", BOOKED, changes=True)
    store.client.publish("bookings", [booking(store, 1, 5, 1), booking(store, 2, 2, 1)])
    copies.sync(store.client)
    assert read(copies, "booked") == []
    # Moved to an earlier time: the row that was sent ahead is removed unseen.
    store.client.publish("bookings", [booking(store, 1, 1, 1)])
    store.client.publish("bookings", [{"id": 2, "_op": "delete"}])
    copies.sync(store.client)
    store.wait(3600)
    assert [row["id"] for row in copies["booked"].rows()] == [1]
    assert [text[:1] for text in short(read(copies, "booked"))] == ["+"]
    store.wait(3600)
    assert [text[:1] for text in short(read(copies, "booked"))] == ["-"]
    store.wait(5 * 3600)
    assert copies["booked"].rows() == []


def test_rows_that_are_never_valid_are_refused(store: InsideStore) -> None:
    store.client.define(BOOKINGS)
    good, empty = booking(store, 1, 0, 1), booking(store, 2, 1, 0)
    for bad, reason in (
        (empty, "NEVER_VALID"),
        (booking(store, 2, 1, -1), "NEVER_VALID"),
        (empty | {"starts": None}, "NULL_START"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            store.client.publish("bookings", [good, bad])
        assert caught.value.detail.reason == reason and caught.value.detail.row == 1
    store.client.publish("bookings", [good])
    # A patch makes a whole row, which may not be empty either.
    late = {"id": 1, "ends": good["starts"], "_op": "patch"}
    with pytest.raises(InvalidRequest) as caught:
        store.client.publish("bookings", [late])
    assert caught.value.detail.reason == "NEVER_VALID"
    store.client.publish("bookings", [late | {"ends": None}])
    assert answer(store, "SELECT id FROM bookings WHERE ends IS NULL") == [{"id": 1}]
    store.client.publish("bookings", [{"id": 1, "_op": "delete"}])
    assert answer(store, "SELECT id FROM bookings UNBOUNDED") == []


def test_what_is_not_there_yet(store: InsideStore, copies: Copies) -> None:
    store.client.define(BOOKINGS)
    for statement, reason in (
        ("ALTER STREAM bookings SET RETAIN 2 DAYS", "NOT_YET"),
        ("ALTER STREAM bookings SET AHEAD 2 DAYS", "NOT_YET"),
        ("ALTER STREAM bookings DROP COLUMN ends", "NOT_SUPPORTED"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            store.client.define(statement)
        assert caught.value.detail.reason == reason
    joined = "SELECT b.id FROM bookings AS b LEFT JOIN bookings AS c ON b.id = c.id"
    handle = store.client.register(joined)
    with pytest.raises(QueryProblem) as refused:
        store.client.invoke(handle, window="RANGE 1 HOUR")
    assert refused.value.detail.reason == "NOT_YET"
    copies.keep("base", COUNTED, base_rows=True)
    copies.keep("own", ALL, edits=True)
    errors = copies.sync(store.client)
    assert "base rows" in str(errors["base"].error)
    assert isinstance(errors["own"].error, NotComputable)


def test_a_brought_window_takes_the_place_of_now(store: InsideStore) -> None:
    store.client.define(BOOKINGS)
    handle = store.client.register(BOOKED)
    store.client.publish("bookings", [booking(store, 1, 0, 1), booking(store, 2, 3, 1)])
    store.wait(1)
    assert [row["id"] for row in store.client.invoke(handle).rows] == [1]
    ahead = store.client.invoke(handle, window="BEGIN NOW END NOW + 4 HOURS")
    assert [row["id"] for row in ahead.rows] == [1, 2]
    everything = store.client.invoke(handle, window="UNBOUNDED")
    assert [row["id"] for row in everything.rows] == [1, 2]


def test_a_view_shows_what_is_valid_now_and_takes_no_window(store: InsideStore) -> None:
    store.client.define(BOOKINGS)
    store.client.define("CREATE VIEW booked AS SELECT id FROM bookings WHERE room = 'room 1'")
    store.client.define("CREATE VIEW counted AS SELECT count(*) AS n FROM bookings")
    store.client.publish("bookings", [booking(store, 1, 0, 1), booking(store, 3, 3, 1)])
    store.wait(1)
    handle = store.client.register("SELECT id FROM booked")
    assert store.client.invoke(handle).rows == [{"id": 1}]
    for text in ("SELECT id FROM booked RANGE 1 HOUR", "SELECT id FROM booked WINDOW(UNBOUNDED)"):
        with pytest.raises(QueryProblem) as refused:
            store.client.register(text)
        assert refused.value.detail.reason == "NOT_YET"
    with pytest.raises(QueryProblem):
        store.client.invoke(handle, window="UNBOUNDED")
    assert answer(store, "SELECT n FROM counted") == [{"n": 1}]
