"""Columns that are renamed and dropped while devices are away: queues, patches, expected edits and
own edits in copies go on, before and after the device has heard of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from client_sdk import Client, ConnectionFailed, Copies, RowProblem
from tests.support.client_sdk.inside import InsideStore

ORDERS = "CREATE STREAM orders (id BIGINT, item TEXT, note TEXT, region TEXT) KEY (id)"
TEXT = "SELECT id, item, region FROM orders WHERE region = 'north'"


def order(number: int, item: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "item": item, "note": "n", "region": "north", **more}


def items(copies: Copies) -> dict[int, str]:
    return {row["id"]: row["item"] for row in copies["mine"].rows()}


def stored(client: Client, columns: str) -> list[tuple[Any, ...]]:
    rows = client.invoke(client.register(f"SELECT {columns} FROM orders ORDER BY id")).rows
    return [tuple(row.values()) for row in rows]


def rename(client: Client) -> None:
    client.define("ALTER STREAM orders RENAME COLUMN item TO goods")
    client.define("ALTER STREAM orders RENAME COLUMN region TO area")
    client.define("ALTER STREAM orders DROP COLUMN note")


@pytest.mark.parametrize("base_rows", [False, True])
def test_a_device_with_queued_edits(store: InsideStore, copies: Copies, base_rows: bool) -> None:
    client = store.client
    client.define(ORDERS)
    client.publish("orders", [order(1, "lamp"), order(2, "desk"), order(3, "sofa")])
    copies.keep("mine", TEXT, edits=True, base_rows=base_rows)
    copies.sync(client)
    copies.publish("orders", [order(1, "two lamps")], expected="seen")
    copies.publish("orders", [{"id": 2, "item": "two desks", "_op": "patch"}])
    copies.publish("orders", [{"id": 3, "note": "new", "_op": "patch"}, {"id": 9, "_op": "delete"}])
    edited = {1: "two lamps", 2: "two desks", 3: "sofa"}
    assert items(copies) == edited
    rename(client)
    copies.publish("orders", [order(4, "rug")])
    change = copies.sync(client)["mine"]
    assert not change.whole and not copies.rejected and not copies.queued
    assert items(copies) == {**edited, 4: "rug"}
    expected = [(1, "two lamps"), (2, "two desks"), (3, "sofa"), (4, "rug")]
    assert stored(client, "id, goods") == expected
    # The device has heard of it: old names and new ones both do, but not at once.
    known = copies.known_stream("orders")
    assert known is not None and [c.name for c in known.columns] == ["id", "goods", "area"]
    assert known.columns[1].former == ("item",) and known.dropped == ("note",)
    copies.publish("orders", [order(5, "pen")])
    copies.publish("orders", pa.table({"id": [6], "goods": ["ink"], "area": ["north"]}))
    copies.publish("orders", [{"id": 4, "goods": "two rugs", "_op": "patch"}])
    with pytest.raises(RowProblem, match="names of one column"):
        copies.publish("orders", [order(7, "x", goods="y")])
    now = {**edited, 4: "two rugs", 5: "pen", 6: "ink"}
    assert items(copies) == now
    copies.sync(client)
    assert not copies.rejected and items(copies) == now
    assert dict(stored(client, "id, goods")) == now


@pytest.mark.parametrize(
    "text", [TEXT, "SELECT * FROM orders", "SELECT item, count(*) AS n FROM orders GROUP BY item"]
)
def test_base_rows_are_those_of_the_text(store: InsideStore, copies: Copies, text: str) -> None:
    """A copy of a registration from before the RENAME is learnt after it."""
    client = store.client
    client.define(ORDERS)
    client.publish("orders", [order(1, "lamp"), order(2, "desk")])
    query = client.register(text, key="mine")
    client.define("ALTER STREAM orders RENAME COLUMN item TO goods")
    client.define("ALTER STREAM orders ADD COLUMN fee DOUBLE")
    client.publish("orders", [order(3, "lamp")])
    copies.keep("mine", handle=query.handle, base_rows=True)
    copies.sync(client)
    assert copies["mine"].to_arrow().to_pylist() == client.invoke(query).rows


def test_three_devices(store: InsideStore, tmp_path: Path) -> None:
    client = store.client
    client.define(ORDERS)
    client.publish("orders", [order(n, "first") for n in range(3)])
    devices = [Copies(tmp_path / f"{n}.copies") for n in range(3)]
    for number, device in enumerate(devices):
        device.keep("mine", TEXT, edits=True)
        device.sync(client)
        device.publish("orders", [{"id": number, "item": f"by {number}", "_op": "patch"}])
    rename(client)
    for device in (*devices, *devices):
        device.sync(client)
        assert not device.rejected
    for device in devices:
        assert items(device) == {number: f"by {number}" for number in range(3)}
        device.close()


def test_a_lost_acknowledgement_across_both(
    store: InsideStore, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = store.client
    client.define(ORDERS)
    copies.learn(client, "orders")
    copies.publish("orders", [order(1, "lamp")])
    unary = store.line.unary

    def lose_acknowledgements(method: str, request: Any, timeout: float | None) -> Any:
        reply = unary(method, request, timeout)
        if method == "Publish":
            raise ConnectionFailed("the line was cut")
        return reply

    monkeypatch.setattr(store.line, "unary", lose_acknowledgements)
    with pytest.raises(ConnectionFailed):
        copies.send(client)
    monkeypatch.undo()
    rename(client)
    copies.send(client)
    assert not copies.rejected and not copies.doubtful and not copies.queued
    assert client.stream("orders").row_count == 1
