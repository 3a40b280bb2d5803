"""A fleet whose drivers edit orders on phones that are often offline.

    python examples/drivers.py localhost:7181 folder

1. Ann edits an order in a tunnel, and sees her edit at once.
2. Bob, in another tunnel, edits the same order. Whoever comes out second is told, and decides.
3. Both edit one order again, now with patches of what they change: there is nothing to decide.
4. While both are away, the office adds a column to the orders, and renames another one. The phones
   go on as they are: what waits in them has the old name, and is taken.
5. A customer has another name. Ann's phone has it beside each order, and notes one change of each.
6. Customer 7 asks for erasure while Bob is away: the name goes, and every order. His phone loses
   both, and his edits of them are refused.

The files of the phones are in the folder. Run it again: the orders begin anew.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

from client_sdk import Client, Copies, EditConflict, NotFound

ORDERS = """CREATE STREAM orders
    (id BIGINT, vehicle TEXT, item TEXT, done BOOLEAN, customer BIGINT) KEY (id)"""
CUSTOMERS = "CREATE STREAM customers (id BIGINT, name TEXT) KEY (id)"
MINE = "SELECT id, vehicle, item, done, customer FROM orders WHERE vehicle = 'van 7' ORDER BY id"
DOORS = """SELECT o.id, o.item, c.name FROM orders AS o JOIN customers AS c ON c.id = o.customer
    WHERE o.vehicle = 'van 7'"""


def main(target: str, folder: str) -> int:
    with Client(target) as client, contextlib.ExitStack() as stack:
        for stream, statement in (("orders", ORDERS), ("customers", CUSTOMERS)):
            with contextlib.suppress(NotFound):
                client.define(f"DROP STREAM {stream}")
            client.define(statement)
        client.publish("customers", [{"id": 7, "name": "Jansen"}, {"id": 8, "name": "Smit"}])
        client.publish("orders", [order(1, "a lamp"), order(2, "a chair")])
        ann, bob = (
            stack.enter_context(phone(client, Path(folder) / f"{name}.db"))
            for name in ("ann", "bob")
        )
        see_at_once(ann)
        meet(client, ann, bob)
        patch(client, ann, bob)
        alter_the_orders(client, ann)
        rename_a_customer(client, ann)
        erase_a_customer(client, bob, 7)
    return 0


def order(number: int, item: str, done: bool = False) -> dict[str, Any]:
    customer = 7 if number == 1 else 8
    return {"id": number, "vehicle": "van 7", "item": item, "done": done, "customer": customer}


def phone(client: Client, path: Path) -> Copies:
    """Return the copies of a phone that has the orders of van 7."""
    path.unlink(missing_ok=True)
    copies = Copies(path)
    copies.keep("mine", MINE, edits=True)
    copies.keep("doors", DOORS, changes=True)
    copies.sync(client)
    return copies


def see_at_once(ann: Copies) -> None:
    """Edit an order without a connection: the copy shows it, and says that it waits."""
    ann.publish("orders", [order(1, "a lamp", done=True)], expected="seen")
    print("Ann, in a tunnel:", shown(ann))
    print("  waiting:", list(ann["mine"].pending.values()))


def meet(client: Client, ann: Copies, bob: Copies) -> None:
    """Let two drivers edit one order offline. The second to come out decides."""
    bob.publish("orders", [order(1, "two lamps")], expected="seen")
    ann.sync(client)
    bob.sync(client, on_conflict=merged)
    ann.sync(client)
    print("Ann, after both are out:", shown(ann))


def merged(conflict: EditConflict) -> list[dict[str, Any]]:
    """Return an order with what each of the two has changed."""
    mine, base, theirs = conflict.mine, conflict.base or {}, conflict.theirs or {}
    changed = {name: value for name, value in mine.items() if value != base.get(name)}
    print("Bob changed", changed, "and Ann", {n: theirs[n] for n in mine if theirs[n] != base[n]})
    return [{name: changed.get(name, theirs[name]) for name in mine}]


def patch(client: Client, ann: Copies, bob: Copies) -> None:
    """Let two drivers change different columns of one order offline. Both changes count."""
    bob.sync(client)
    ann.patch("orders", [{"id": 2, "done": True}])
    bob.patch("orders", [{"id": 2, "item": "a blue chair"}])
    print("Bob, in a tunnel again:", shown(bob))
    for copies in (ann, bob, ann):
        copies.sync(client)
    print("Ann, after both patches:", shown(ann))


def alter_the_orders(client: Client, ann: Copies) -> None:
    """Add a column, and rename one, while a phone is away. What it queued before is accepted."""
    ann.publish("orders", [order(2, "a red chair", done=True)], expected="seen")
    client.define("ALTER STREAM orders ADD COLUMN floor BIGINT DEFAULT 0")
    client.define("ALTER STREAM orders RENAME COLUMN item TO goods")
    client.publish("orders", [order(3, "a table") | {"floor": 4}])
    synced = ann.sync(client)
    print("Ann, after the orders were altered:", shown(ann), f"({synced.sent.rows} row sent)")
    for row in client.ask("SELECT id, goods, floor FROM orders ORDER BY id").rows:
        print(f"  order {row['id']}: {row['goods']}, floor {row['floor']}")


def rename_a_customer(client: Client, ann: Copies) -> None:
    """Give a customer another name: one change of each order of theirs, and of no other."""
    with ann.changes("doors"):
        pass  # What changed before is of no interest here.
    client.publish("customers", [{"id": 8, "name": "Smit-de Boer"}])
    ann.sync(client)
    with ann.changes("doors") as batch:
        notes = [
            (change.row["id"], change.tag, change.old["name"], change.row["name"])
            for change in batch
            if change.row and change.old
        ]
    for number, tag, before, name in sorted(notes):
        print(f"Ann's phone notes: {tag} order {number}, {before} is now {name}")


def erase_a_customer(client: Client, bob: Copies, number: int) -> None:
    """Erase a customer and the orders of that customer for good. A phone that was away loses them,
    and may not bring them back."""
    bob.sync(client)
    bob.publish("orders", [order(1, "three lamps")])
    bob.publish("customers", [{"id": number, "name": "Jansen-Bos"}])
    # Each stream with rows of a person is erased by its own key. The orders come first: afterwards
    # no row says whose they were.
    orders = client.ask(f"SELECT id FROM orders WHERE customer = {number}").rows
    for row in orders:
        client.define(f"ERASE FROM orders WHERE id = {row['id']}")
    client.define(f"ERASE FROM customers WHERE id = {number}")
    print("The office erased customer", number, "and orders", [row["id"] for row in orders])
    synced = bob.sync(client)
    print("Bob, after that:", shown(bob))
    print("  doors:", sorted((row["id"], row["name"]) for row in bob["doors"].rows()))
    for rejected in synced.sent.rejected:
        print(f"  refused: {rejected.stream}, {rejected.reason}, {rejected.row_count} rows left")
    names = client.ask("SELECT name FROM customers ORDER BY id").rows
    print("In the store:", [row["name"] for row in names])


def shown(copies: Copies) -> str:
    rows = copies["mine"].rows()
    return "; ".join(f"{row['id']} {row['item']}{' (done)' * row['done']}" for row in rows)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
