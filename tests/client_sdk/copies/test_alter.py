"""A column that is added while devices are away: copies are not sent again, queues go on."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from client_sdk import Column, ConnectionFailed, Copies, RowProblem
from client_sdk.copies._file.home import stream_content, stream_from
from tests.support.client_sdk.inside import InsideStore

ORDERS = "CREATE STREAM orders (id BIGINT, item TEXT) KEY (id)"
ALL = "SELECT * FROM orders"


def rows_of(store: InsideStore, sql: str) -> list[dict[str, Any]]:
    return store.client.invoke(store.client.register(sql)).rows


def answers(store: InsideStore) -> list[dict[str, Any]]:
    return rows_of(store, "SELECT id, item, fee FROM orders ORDER BY id")


def test_a_device_that_was_away_goes_on(store: InsideStore, copies: Copies) -> None:
    client = store.client
    client.define(ORDERS)
    client.publish("orders", [{"id": 1, "item": "lamp"}])
    copies.keep("orders", ALL)
    copies.publish("orders", [{"id": 2, "item": "desk"}])
    copies.sync(client)
    copies.publish("orders", [{"id": 3, "item": "sofa"}, {"id": 1, "item": "two lamps"}])
    client.define("ALTER STREAM orders ADD COLUMN fee DOUBLE DEFAULT 1.5")
    # What the device knows is the stream of its last contact.
    with pytest.raises(RowProblem, match="unknown fee"):
        copies.publish("orders", [{"id": 4, "item": "rug", "fee": 2.0}])
    copies.delete("orders", [{"id": 2}])
    change = copies.sync(client)["orders"]
    assert not change.whole
    assert sorted(row["id"] for row in copies["orders"].rows()) == [1, 3]
    assert answers(store) == [
        {"id": 1, "item": "two lamps", "fee": 1.5},
        {"id": 3, "item": "sofa", "fee": 1.5},
    ]
    # The sync has learnt the column: rows may have it or not.
    stream = copies.known_stream("orders")
    assert stream is not None and stream.columns[2] == Column("fee", "DOUBLE", True, 1.5)
    copies.publish("orders", [{"id": 4, "item": "rug", "fee": 2.0}, {"id": 5, "item": "pen"}])
    copies.publish("orders", pa.table({"id": [6], "item": ["ink"]}))
    copies.sync(client)
    assert not copies.rejected
    assert [(row["id"], row["fee"]) for row in answers(store)][2:] == [(4, 2.0), (5, 1.5), (6, 1.5)]
    # The copy's text is as it was bound.
    assert {*copies["orders"].rows()[0]} == {"id", "item"}


def test_a_lost_acknowledgement_across_an_alter(
    store: InsideStore, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.client.define(ORDERS)
    copies.learn(store.client, "orders")
    copies.publish("orders", [{"id": 1, "item": "lamp"}])
    unary = store.line.unary

    def lose_acknowledgements(method: str, request: Any, timeout: float | None) -> Any:
        reply = unary(method, request, timeout)
        if method == "Publish":
            raise ConnectionFailed("the line was cut")
        return reply

    monkeypatch.setattr(store.line, "unary", lose_acknowledgements)
    with pytest.raises(ConnectionFailed):
        copies.send(store.client)
    monkeypatch.undo()
    store.client.define("ALTER STREAM orders ADD COLUMN fee DOUBLE")
    copies.send(store.client)
    assert not copies.rejected and not copies.doubtful and not copies.queued
    assert store.client.stream("orders").row_count == 1


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        ("TEXT", None),
        ("TEXT", ""),
        ("BIGINT", 0),
        ("BOOLEAN", False),
        ("DOUBLE", 0.0),
        ("DECIMAL(9,2)", decimal.Decimal("0.50")),
        ("TIMESTAMP", datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC)),
        ("DATE", datetime.date(2026, 1, 2)),
    ],
)
def test_a_file_keeps_defaults_exactly(store: InsideStore, type_: str, default: Any) -> None:
    store.client.define("CREATE STREAM s (a BIGINT)")
    written = "NULL" if default is None else repr(default)
    if isinstance(default, decimal.Decimal):
        written = str(default)
    elif isinstance(default, datetime.datetime):
        written = f"'{default.isoformat()}'"
    elif isinstance(default, datetime.date):
        written = f"DATE '{default}'"
    store.client.define(f"ALTER STREAM s ADD COLUMN b {type_} DEFAULT {written}")
    stream = store.client.stream("s")
    column = stream.columns[1]
    assert (column.optional, repr(column.default)) == (True, repr(default))
    again = stream_from(stream_content(stream))
    assert repr(again.columns) == repr(stream.columns)
    store.client.publish("s", [{"a": 1}, {"a": 2, "b": default}])
    assert [repr(row["b"]) for row in rows_of(store, "SELECT b FROM s")] == [repr(default)] * 2
