"""Changes of joins whose streams all have keys: a combination is identified by the keys of its
rows, as in a naive model of orders, customers and drivers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from client_sdk import AnswerChange, Copies
from tests.client_sdk.copies.rooms import read
from tests.support.client_sdk.change_reader import ChangeReader, values
from tests.support.client_sdk.damage import flip_in_rows, lose_row
from tests.support.client_sdk.inside import InsideStore
from tests.support.lengths import short_first

STREAMS = (
    "CREATE STREAM orders (id BIGINT, customer BIGINT, driver TEXT, item TEXT) KEY (id) "
    "RETAIN 1 HOUR",
    "CREATE STREAM customers (id BIGINT, name TEXT) KEY (id)",
    "CREATE STREAM drivers (van TEXT, driver TEXT, day BIGINT) KEY (van, day)",
)
KEYS = {"orders": ("id",), "customers": ("id",), "drivers": ("van", "day")}
NAMES = "SELECT o.id, c.name, o.item FROM orders o, customers c WHERE o.customer = c.id"
QUERIES = {
    "names": NAMES,
    "hidden": "SELECT c.name, o.item FROM orders o, customers c WHERE o.customer = c.id",
    "three": "SELECT o.item, c.name, d.van FROM orders o, customers c, drivers d "
    "WHERE o.customer = c.id AND o.driver = d.driver",
    "left": "SELECT o.id, o.item, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id",
    "inside": f"SELECT item, name FROM ({NAMES}) AS named WHERE item <> 'c'",
    "exists": f"{NAMES} AND EXISTS (SELECT 1 FROM drivers d WHERE d.driver = o.driver)",
    "union": "SELECT item AS text FROM orders UNION ALL SELECT name AS text FROM customers",
    "first": f"{NAMES} ORDER BY o.id LIMIT 3",
}
Row = dict[str, Any]
Answer = dict[Any, tuple[Any, ...]]


@dataclass
class Model:
    """The current rows of each stream by their keys."""

    rows: dict[str, dict[Any, Row]] = field(default_factory=lambda: {name: {} for name in KEYS})

    def put(self, stream: str, row: Row) -> None:
        self.rows[stream][_key(stream, row)] = row

    def delete(self, stream: str, row: Row) -> None:
        self.rows[stream].pop(_key(stream, row), None)

    def answer(self, name: str) -> Answer:
        """Return the answer of a query: the values of each row by the keys it is made of."""
        if name == "first":
            return dict(sorted(self.answer("names").items())[:3])
        return dict(getattr(self, f"_{name}")())

    def _pairs(self) -> Iterator[tuple[Any, Row, Row]]:
        for number, order in self.rows["orders"].items():
            for customer_id, customer in self.rows["customers"].items():
                if order["customer"] == customer["id"]:
                    yield (number, customer_id), order, customer

    def _names(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        for key, order, customer in self._pairs():
            yield key, (order["id"], customer["name"], order["item"])

    def _hidden(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        for key, order, customer in self._pairs():
            yield key, (customer["name"], order["item"])

    def _three(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        for key, order, customer in self._pairs():
            for van, driver in self.rows["drivers"].items():
                if driver["driver"] == order["driver"]:
                    yield (*key, van), (order["item"], customer["name"], driver["van"])

    def _left(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        partnered = {}
        for key, order, customer in self._pairs():
            partnered[key[0]] = key, (order["id"], order["item"], customer["name"])
        for number, order in self.rows["orders"].items():
            yield partnered.get(number, ((number, None), (order["id"], order["item"], None)))

    def _inside(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        for key, order, customer in self._pairs():
            if order["item"] != "c":
                yield key, (order["item"], customer["name"])

    def _exists(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        drivers = {row["driver"] for row in self.rows["drivers"].values()}
        for key, order, customer in self._pairs():
            if order["driver"] in drivers:
                yield key, (order["id"], customer["name"], order["item"])

    def _union(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        for key, order in self.rows["orders"].items():
            yield ("order", key), (order["item"],)
        for key, customer in self.rows["customers"].items():
            yield ("customer", key), (customer["name"],)


def _key(stream: str, row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEYS[stream])


def expected_changes(before: Answer, after: Answer) -> Counter[Any]:
    """Return the tags with the values before and after: an update of each key that stays, and equal
    rows of other keys cancel."""
    updates = Counter(
        ("u", before[key], after[key])
        for key in before.keys() & after.keys()
        if before[key] != after[key]
    )
    removed = Counter(before[key] for key in before.keys() - after.keys())
    added = Counter(after[key] for key in after.keys() - before.keys())
    removals = Counter({("-", row, None): n for row, n in (removed - added).items()})
    return (
        updates + removals + Counter({("+", None, row): n for row, n in (added - removed).items()})
    )


def told(changes: list[AnswerChange]) -> Counter[Any]:
    return Counter(
        (change.tag, change.old and values(change.old), change.row and values(change.row))
        for change in changes
    )


@pytest.mark.parametrize("seed", short_first(range(40), 2))
def test_random_changes_are_those_of_the_model(
    store: InsideStore, filed: Copies, seed: int
) -> None:
    chance, model = random.Random(seed), Model()
    for sql in STREAMS:
        store.client.define(sql)
    readers = {name: ChangeReader(name) for name in QUERIES}
    for name, sql in QUERIES.items():
        filed.keep(name, sql, changes=True)
    answers: dict[str, Answer] = {}
    tags: Counter[str] = Counter()
    for step in range(20):
        for _ in range(chance.randrange(1, 12 if chance.random() < 0.1 else 4)):
            _publish(store, model, chance)
        # Away for longer than ended orders are retained: the answers are sent whole.
        if chance.random() < 0.1:
            store.wait(2 * 3600)
        store.wait(chance.choice((0, 1, 60)))
        if chance.random() < 0.1:
            name = chance.choice(list(QUERIES))
            chance.choice((flip_in_rows, lose_row))(filed, name, chance)
            filed.verify([name])
        store.line.cuts = [chance.randrange(8)] if chance.random() < 0.2 else []
        assert filed.sync(store.client, one_position=chance.random() < 0.2).complete
        for name, reader in readers.items():
            changes, answer = reader.read(filed), model.answer(name)
            assert reader.rows == Counter(answer.values()), (name, step)
            if step:
                assert told(changes) == expected_changes(answers[name], answer), (name, step)
            answers[name] = answer
            tags.update(change.tag for change in changes)
    assert not any(reader.resets for reader in readers.values())
    assert tags["u"] and tags["+"] and tags["-"]


def _publish(store: InsideStore, model: Model, chance: random.Random) -> None:
    stream = chance.choice(("orders", "orders", "customers", "drivers"))
    row: Row = {
        "orders": lambda: {
            "id": chance.randrange(6),
            "customer": chance.randrange(3),
            "driver": chance.choice("xyz"),
            "item": chance.choice("abc"),
        },
        "customers": lambda: {"id": chance.randrange(3), "name": chance.choice("pqr")},
        "drivers": lambda: {
            "van": chance.choice("vw"),
            "driver": chance.choice("xyz"),
            "day": chance.randrange(2),
        },
    }[stream]()
    if chance.random() < 0.25:
        store.client.delete(stream, [{name: row[name] for name in KEYS[stream]}])
        model.delete(stream, row)
    else:
        store.client.publish(stream, [row])
        model.put(stream, row)


def test_a_renamed_customer_is_one_update_of_each_order(store: InsideStore, copies: Copies) -> None:
    for sql in STREAMS:
        store.client.define(sql)
    rows = [{"id": n, "customer": 1, "driver": "x", "item": f"item {n}"} for n in range(3)]
    store.client.publish("orders", rows)
    store.client.publish("customers", [{"id": 1, "name": "Miller"}])
    copies.keep("names", NAMES, changes=True)
    copies.sync(store.client)
    store.client.publish("customers", [{"id": 1, "name": "Smith"}])
    copies.sync(store.client)
    changes = read(copies, "names")
    assert [(change.tag, change.why) for change in changes] == [("u", "changed")] * 3
    assert {(change.old or {})["name"] for change in changes} == {"Miller"}
    assert {(change.row or {})["name"] for change in changes} == {"Smith"}
    store.client.delete("customers", [{"id": 1}])
    copies.sync(store.client)
    assert [(change.tag, change.why) for change in read(copies, "names")] == [("-", "ended")] * 3


def test_a_stream_without_a_key_among_them_has_no_updates(
    store: InsideStore, copies: Copies
) -> None:
    store.client.define("CREATE STREAM visits (customer BIGINT)")
    store.client.define(STREAMS[1])
    store.client.publish("visits", [{"customer": 1}])
    store.client.publish("customers", [{"id": 1, "name": "Miller"}])
    sql = "SELECT c.name FROM visits v, customers c WHERE v.customer = c.id"
    copies.keep("visitors", sql, changes=True)
    copies.sync(store.client)
    store.client.publish("customers", [{"id": 1, "name": "Smith"}])
    copies.sync(store.client)
    assert [change.tag for change in read(copies, "visitors")] == ["-", "+"]


def test_an_order_that_leaves_by_time_and_a_renamed_customer(
    store: InsideStore, copies: Copies
) -> None:
    for sql in STREAMS:
        store.client.define(sql)
    sql = NAMES.replace("orders o", "orders o WINDOW(RANGE 30 SECONDS)")
    copies.keep("names", sql, changes=True)
    store.client.publish("customers", [{"id": 1, "name": "Miller"}])
    for number in range(2):
        row = {"id": number, "customer": 1, "driver": "x", "item": "a"}
        store.client.publish("orders", [row])
        store.wait(20)
    copies.sync(store.client)
    read(copies, "names")
    store.client.publish("customers", [{"id": 1, "name": "Smith"}])
    store.wait(5)
    copies.sync(store.client)
    assert [(change.tag, change.why) for change in read(copies, "names")] == [("u", "changed")]
    store.wait(10)
    assert [(change.tag, change.why) for change in read(copies, "names")] == [("-", "left")]
