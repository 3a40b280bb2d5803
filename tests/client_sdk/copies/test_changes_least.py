"""Changes are the least also if a query stands inside the query, and of joins."""

from __future__ import annotations

import pytest

from client_sdk import Copies
from tests.client_sdk.copies.rooms import read, short
from tests.support.client_sdk.inside import InsideStore

INSIDE = {
    "exists": "SELECT k, v FROM n WHERE EXISTS (SELECT 1 FROM m WHERE m.k = n.k)",
    "not exists": "SELECT k, v FROM n WHERE NOT EXISTS (SELECT 1 FROM m WHERE m.k = n.k + 100)",
    "in": "SELECT k, v FROM n WHERE k IN (SELECT k FROM m)",
    "scalar": "SELECT k, v FROM n WHERE k < (SELECT max(k) + 1 FROM m)",
    "selected": "SELECT k, v, (SELECT max(w) FROM m WHERE m.k = n.k) AS w FROM n WHERE k < 9",
}
JOINS = {
    "join": "SELECT n.k, n.v, m.w FROM n, m WHERE n.k = m.k",
    "left": "SELECT n.k, n.v, m.w FROM n LEFT JOIN m ON n.k = m.k",
    "union": "SELECT k, v FROM n UNION ALL SELECT k, w AS v FROM m",
    "lookup": "SELECT e.a, n.v FROM e, n AS OF e.ts WHERE e.a = n.k",
}


def _open(store: InsideStore, copies: Copies, sql: str) -> None:
    store.client.define("CREATE STREAM n (k BIGINT, v BIGINT, other BIGINT) KEY (k)")
    store.client.define("CREATE STREAM m (k BIGINT, w BIGINT) KEY (k)")
    store.client.define("CREATE STREAM e (a BIGINT)")
    store.client.publish("m", [{"k": k, "w": 5} for k in (1, 2, 3)])
    store.client.publish("e", [{"a": 1}, {"a": 1}])
    copies.keep("answer", sql, changes=True)
    _put(store, copies, 1, 10)
    _put(store, copies, 2, 20)
    read(copies, "answer")


def _put(store: InsideStore, copies: Copies, k: int, v: int, row: int = 0) -> None:
    store.wait(1)
    store.client.publish("n", [{"k": k, "v": v, "other": row}])
    assert copies.sync(store.client).complete


@pytest.mark.parametrize("name", INSIDE)
def test_a_row_beside_a_query_is_the_update_of_the_one_with_its_key(
    store: InsideStore, copies: Copies, name: str
) -> None:
    _open(store, copies, INSIDE[name])
    _put(store, copies, 1, 10, row=7)
    assert read(copies, "answer") == [], "an update to equal values is no change"
    _put(store, copies, 1, 11)
    (change,) = read(copies, "answer")
    assert (change.tag, change.why) == ("u", "changed")
    assert change.row is not None and change.old is not None
    assert (change.old["v"], change.row["v"]) == (10, 11)
    store.client.delete("n", [{"k": 1}])
    copies.sync(store.client)
    (change,) = read(copies, "answer")
    assert (change.tag, change.why) == ("-", "ended")
    assert copies.verify()["answer"].sound


def test_a_row_that_the_query_inside_no_longer_lets_through_is_gone(
    store: InsideStore, copies: Copies
) -> None:
    _open(store, copies, INSIDE["exists"])
    store.client.delete("m", [{"k": 1}])
    copies.sync(store.client)
    (change,) = read(copies, "answer")
    assert (change.tag, change.why, change.old) == ("-", "gone", {"k": 1, "v": 10})


@pytest.mark.parametrize("name", JOINS)
def test_equal_rows_of_joins_are_not_told_to_go_and_come(
    store: InsideStore, copies: Copies, name: str
) -> None:
    _open(store, copies, JOINS[name])
    _put(store, copies, 1, 10, row=7)
    assert read(copies, "answer") == []
    rows = copies["answer"].rows()
    _put(store, copies, 1, 11)
    changes = read(copies, "answer")
    if name != "lookup":
        assert [(change.tag, change.why) for change in changes] == [("u", "changed")]
        assert [row["v"] for row in copies["answer"].rows() if row not in rows] == [11]
    assert copies.verify()["answer"].sound


def test_they_cancel_as_often_as_they_are_in_both(store: InsideStore, copies: Copies) -> None:
    store.client.define("CREATE STREAM e (a BIGINT)")
    store.client.define("CREATE STREAM n (k BIGINT, v BIGINT) KEY (k)")
    copies.keep("answer", "SELECT e.a, n.v FROM e WINDOW(ROWS 2), n", changes=True)
    store.client.publish("e", [{"a": 1}, {"a": 1}])
    store.client.publish("n", [{"k": 1, "v": 5}, {"k": 2, "v": 5}])
    copies.sync(store.client)
    store.client.publish("e", [{"a": 1}])
    store.client.publish("n", [{"k": 3, "v": 5}])
    copies.sync(store.client)
    assert short(read(copies, "answer")) == ["+1 5", "+1 5"], "four equal rows became six"


def test_rows_that_left_by_time_are_told_beside_equal_ones_that_came(
    store: InsideStore, copies: Copies
) -> None:
    store.client.define("CREATE STREAM e (a BIGINT)")
    store.client.define("CREATE STREAM n (k BIGINT, v BIGINT) KEY (k)")
    sql = "SELECT e.a, n.v FROM e WINDOW(RANGE 10 SECONDS), n"
    copies.keep("all", sql, changes=True)
    copies.keep("came", sql, changes="without left")
    store.client.publish("n", [{"k": 1, "v": 5}])
    store.client.publish("e", [{"a": 1}])
    copies.sync(store.client)
    store.wait(60)
    store.client.publish("e", [{"a": 1}])
    copies.sync(store.client)
    assert short(read(copies, "all")) == ["-1 5", "+1 5"]
    assert short(read(copies, "came")) == ["+1 5"]
