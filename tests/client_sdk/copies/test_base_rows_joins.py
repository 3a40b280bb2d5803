"""Copies of the base rows of joins: offline they are what the store answers at each instant,
whatever was cut, killed or damaged before; and who may not read all rows gets none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from client_sdk import Copies, NotComputable, PermissionDenied
from client_sdk.copies._query import compute
from psoup.access.principal import Principal
from tests.support.client_sdk.damage import flip_in_rows, flip_in_state, lose_row
from tests.support.client_sdk.inside import InsideStore
from tests.support.lengths import short_first
from tests.support.server.callers import acting_as

STREAMS = (
    "CREATE STREAM orders (customer BIGINT, item TEXT, amount DECIMAL(10,2)) RETAIN 1 HOUR",
    "CREATE STREAM customers (id BIGINT, region TEXT) KEY (id)",
    "CREATE STREAM prices (item TEXT, price DOUBLE)",
)
PER_REGION = (
    "SELECT c.region, count(*) AS n, sum(o.amount) AS total FROM orders AS o "
    "WINDOW(RANGE 20 SECONDS) JOIN customers AS c ON o.customer = c.id GROUP BY c.region"
)
QUERIES = {
    "regions": PER_REGION,
    "quiet": "SELECT c.id, count(o.customer) AS n FROM customers AS c LEFT JOIN orders AS o "
    "WINDOW(RANGE 15 SECONDS) ON o.customer = c.id GROUP BY c.id ORDER BY n, c.id LIMIT 3",
    "three": "SELECT c.region, sum(p.price) AS worth, first(o.item) AS item FROM orders AS o "
    "WINDOW(BEGIN NOW - 25 SECONDS END NOW - 2 SECONDS), customers AS c, prices AS p "
    "WINDOW(ROWS 1 PARTITION BY item) WHERE o.customer = c.id AND o.item = p.item "
    "AND c.region <> :region GROUP BY c.region HAVING count(*) > 1",
    "idle": "SELECT id FROM customers WHERE NOT EXISTS (SELECT 1 FROM orders AS o "
    "WINDOW(RANGE 10 SECONDS) WHERE o.customer = customers.id) ORDER BY id DESC",
    "pairs": "SELECT DISTINCT a.item FROM orders AS a WINDOW(RANGE 30 SECONDS), orders AS b "
    "WINDOW(ROWS 6) WHERE a.item = b.item",
    "days": "SELECT date_trunc('hour', o.ts, 'Asia/Kolkata') AS hour, c.region, "
    "count(*) AS n FROM orders AS o WINDOW(RANGE 20 SECONDS), customers AS c "
    "WHERE o.customer = c.id GROUP BY hour, c.region",
    "busiest": "SELECT max(n) AS n FROM (SELECT customer, count(*) AS n FROM orders "
    "WINDOW(RANGE 20 SECONDS) GROUP BY customer) AS each",
}
EU = Principal("main", "eu", frozenset({"field"}), {"region": "eu"})


@pytest.mark.parametrize("seed", short_first(range(6)))
def test_offline_they_are_what_the_store_answers(
    store: InsideStore, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    for sql in STREAMS:
        store.client.define(sql)
    path = tmp_path / "phone.db" if seed % 2 == 0 else None
    copies = _open(path, store)
    for name, sql in QUERIES.items():
        parameters = {"region": "x"} if name == "three" else None
        copies.keep(name, sql, parameters=parameters, base_rows=True)
    for _ in range(6):
        for _ in range(chance.randrange(4)):
            _publish(store, chance)
        if chance.random() < 0.2:
            _damage(copies, chance)
        store.line.cuts = [chance.randrange(12)] if chance.random() < 0.3 else []
        synced = copies.sync(store.client, one_position=chance.random() < 0.2)
        assert synced.complete, [change.error for change in synced.values()]
        for seconds in (0, 1, 6, 9, chance.choice((0, 12, 40))):
            store.wait(seconds)
            if path is not None and chance.random() < 0.2:
                copies.close()
                copies = _open(path, store)
            _check(store, copies)
    copies.close()


def _check(store: InsideStore, copies: Copies) -> None:
    for name in QUERIES:
        answer = store.client.invoke(copies[name].handle or b"")
        table = copies[name].to_arrow()
        assert copies[name].state.slides and table.schema == answer.to_arrow().schema
        assert copies[name].rows() == answer.rows, name
    counted = copies.query("SELECT count(*) AS n FROM regions JOIN idle ON 1")
    assert counted[0]["n"] == len(copies["regions"]) * len(copies["idle"])


def _open(path: Path | None, store: InsideStore) -> Copies:
    if path is None:
        return Copies.in_memory(clock=store.now)
    return Copies(path, clock=store.now)


def _publish(store: InsideStore, chance: random.Random) -> None:
    match chance.choice(("orders", "orders", "customers", "prices", "delete")):
        case "orders":
            orders = [
                {"customer": chance.randrange(5), "item": chance.choice("abc"), "amount": n}
                for n in range(chance.randrange(1, 5))
            ]
            store.client.publish("orders", orders)
        case "customers":
            row = {"id": chance.randrange(5), "region": chance.choice("xyz")}
            store.client.publish("customers", [row])
        case "prices":
            price = {"item": chance.choice("abc"), "price": chance.randrange(8) / 4}
            store.client.publish("prices", [price])
        case _:
            store.client.delete("customers", [{"id": chance.randrange(5)}])
    store.wait(chance.choice((0, 0, 3)))


def _damage(copies: Copies, chance: random.Random) -> None:
    name = chance.choice(list(QUERIES))
    if not copies[name].synced:
        return
    match chance.choice(("row", "lost", "state")):
        case "row":
            flip_in_rows(copies, name, chance)
            copies.verify([name])
        case "lost":
            lose_row(copies, name, chance)
        case _:
            flip_in_state(copies, name, chance, "state")


# ---- who may have them


def _shop(store: InsideStore) -> None:
    for sql in STREAMS:
        store.client.define(sql)
    for name in ("orders", "customers"):
        store.client.define(f"GRANT read, register ON {name} TO ROLE field")
    customers = [{"id": n, "region": "eu" if n % 2 else "us"} for n in range(4)]
    store.client.publish("customers", customers)
    orders = [{"customer": n, "item": "a", "amount": n} for n in range(4)]
    store.client.publish("orders", orders)


def test_only_who_may_read_all_rows_of_every_stream_has_them(
    store: InsideStore, copies: Copies
) -> None:
    _shop(store)
    copies.keep("regions", PER_REGION, base_rows=True)
    with acting_as(EU):
        assert not store.client.register(PER_REGION).notes
        assert copies.sync(store.client)["regions"].rows == 8
        whole = copies["regions"].rows()
        assert len(whole) == 2
    store.client.define("CREATE POLICY mine ON customers USING (region = claim('region'))")
    with acting_as(EU):
        emptied = copies.sync(store.client)["regions"]
        assert (emptied.reason, emptied.whole) == ("PERMISSION", True)
        assert copies["regions"].rows() == [] and copies.query("SELECT * FROM regions") == []
        refused = copies.sync(store.client)["regions"].error
        assert isinstance(refused, PermissionDenied) and "row policy" in str(refused)
        (note,) = store.client.register(PER_REGION, key="again").notes
        assert "row policy" in note
        copies.keep("results", PER_REGION)
        assert copies.sync(store.client)["results"].status == "changed"
        assert [row["region"] for row in copies["results"]] == ["eu"]
    store.client.define("DROP POLICY mine ON customers")
    with acting_as(EU):
        assert copies.sync(store.client)["regions"].reason == "PERMISSION"
        assert copies["regions"].rows() == whole


# ---- what is refused


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{PER_REGION} REFRESH EVERY 5 SECONDS", "it has REFRESH"),
        (
            "SELECT count(*) AS n FROM orders AS o JOIN prices AS p ON o.amount < p.price",
            "other conditions than equality",
        ),
        (
            "SELECT c.region, count(*) AS n FROM orders AS o JOIN customers AS OF o.ts AS c "
            "ON c.id = o.customer GROUP BY c.region",
            "AS OF looks up rows",
        ),
        (
            "SELECT count(*) AS n FROM orders AS o JOIN customers AS c ON o.customer = c.id "
            "WHERE o.ts < NOW",
            "it computes with NOW",
        ),
        (
            "SELECT count(*) AS n FROM (SELECT item FROM orders WINDOW(UNBOUNDED)) AS o "
            "WINDOW(RANGE 5 SECONDS) JOIN prices AS p ON o.item = p.item",
            "NOW moves a window over a query",
        ),
    ],
)
def test_what_rows_of_the_legs_do_not_tell_is_refused(
    store: InsideStore, copies: Copies, text: str, why: str
) -> None:
    for sql in STREAMS:
        store.client.define(sql)
    copies.keep("no", text, base_rows=True)
    copies.keep("yes", text)
    synced = copies.sync(store.client)
    assert synced["yes"].status == "changed" and synced["no"].status == "refused"
    error = synced["no"].error
    assert isinstance(error, NotComputable) and why in str(error)
    assert error.detail is not None and "without base_rows" in error.detail.hint
    assert any(why in note for note in store.client.register(text).notes)


def test_views_and_own_edits_are_refused(store: InsideStore, copies: Copies) -> None:
    _shop(store)
    store.client.define("CREATE VIEW eu AS SELECT id FROM customers WHERE region = 'eu'")
    text = "SELECT count(*) AS n FROM orders AS o JOIN eu ON o.customer = eu.id"
    copies.keep("viewed", text, base_rows=True)
    copies.keep("edited", PER_REGION, base_rows=True, edits=True)
    synced = copies.sync(store.client)
    assert "eu is a view" in str(synced["viewed"].error)
    assert "the rows of one stream" in str(synced["edited"].error)
    copies.publish("orders", [{"customer": 1, "item": "a", "amount": 1}])
    assert sum(row["n"] for row in copies["edited"]) == 4, "it is kept without edits"


def test_a_join_of_too_many_pairs_is_an_error(
    store: InsideStore, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    _shop(store)
    copies.keep("regions", PER_REGION, base_rows=True)
    copies.sync(store.client)
    monkeypatch.setattr(compute, "_MOST_PAIRS", 3)
    with pytest.raises(NotComputable, match="4 pairs of rows to look at, at most 3"):
        copies["regions"].rows()
