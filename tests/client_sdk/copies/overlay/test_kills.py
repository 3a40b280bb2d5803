"""A device that is killed at every transaction: its edits are shown all the time, and sent once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from client_sdk import Copies
from tests.support.client_sdk.file_kills import Killed, KillingConnection, kill
from tests.support.client_sdk.inside import InsideStore

ORDERS = "CREATE STREAM orders (id BIGINT, item TEXT) KEY (id)"
NOTES = "CREATE STREAM notes (id BIGINT)"

# More than the transactions of all steps together.
MOST_COMMITS = 60


class Device:
    """A file that is copied from a synced one, and the edits of one life in it."""

    def __init__(self, store: InsideStore, path: Path, life: int) -> None:
        self.store, self.path = store, path
        self.changed, self.deleted, self.added = 10 * life, 10 * life + 1, 10 * life + 2
        self.open()

    def open(self) -> None:
        self.copies = Copies(self.path, clock=self.store.now)

    def kill(self) -> None:
        kill(self.copies)

    @property
    def steps(self) -> list[Callable[[], object]]:
        copies, client = self.copies, self.store.client
        rows = [{"id": self.changed, "item": "new"}, {"id": self.added, "item": "new"}]
        return [
            lambda: copies.publish("orders", rows),
            lambda: copies.delete("orders", [{"id": self.deleted}]),
            lambda: copies.publish("notes", [{"id": self.added}]),
            lambda: copies.send(client),
            lambda: copies.sync(client, only=["orders"]),
            lambda: copies.sync(client),
        ]

    def shown(self) -> tuple[dict[int, str], int]:
        """The own orders, and how many own notes there are."""
        ids = (self.changed, self.deleted, self.added)
        orders = {row["id"]: row["item"] for row in self.copies["orders"].rows()}
        notes = [row["id"] for row in self.copies["notes"].rows()]
        return {id_: orders[id_] for id_ in ids if id_ in orders}, notes.count(self.added)

    def expected(self, edits: int) -> tuple[dict[int, str], int]:
        """What is shown after so many edits."""
        orders = {self.changed: "old", self.deleted: "old"}
        if edits >= 1:
            orders |= {self.changed: "new", self.added: "new"}
        if edits >= 2:
            del orders[self.deleted]
        return orders, int(edits >= 3)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_transaction(tmp_path: Path, after: bool) -> None:
    store = InsideStore(tmp_path, sync_bytes=1 << 20)
    try:
        kill_everywhere(tmp_path, store, after)
    finally:
        store.close()


def kill_everywhere(tmp_path: Path, store: InsideStore, after: bool) -> None:
    store.client.define(ORDERS)
    store.client.define(NOTES)
    ids = [10 * life + place for life in range(MOST_COMMITS) for place in (0, 1)]
    store.client.publish("orders", [{"id": id_, "item": "old"} for id_ in ids])
    template = tmp_path / "template.db"
    with Copies(template, clock=store.now) as copies:
        copies.keep("orders", "SELECT id, item FROM orders", edits=True)
        copies.keep("notes", "SELECT id FROM notes", edits=True)
        assert copies.sync(store.client).complete
    for commit in range(1, MOST_COMMITS):
        path = tmp_path / f"{commit}.db"
        shutil.copy(template, path)
        device = Device(store, path, commit)
        if not live_and_die(device, commit, after):
            return
    raise AssertionError("there are more transactions than lives")


def live_and_die(device: Device, commit: int, after: bool) -> bool:
    """Edit, send and sync, killed once on the way. Return whether it was killed."""
    file = device.copies._file
    file._connection = KillingConnection(file._connection, commit, after)  # type: ignore[assignment]
    done = 0
    try:
        for step in device.steps:
            step()
            done += 1
            assert device.shown() == device.expected(done)
    except Killed:
        device.kill()
        device.open()
    else:
        device.copies.close()
        return False
    # An edit whose transaction was committed is queued, whether its process saw that or not.
    edits = min(done + after, 3)
    assert device.shown() == device.expected(edits), (commit, done)
    for step in device.steps[edits:]:
        step()
        edits += 1
        assert device.shown() == device.expected(edits), (commit, edits)
    for name in device.copies:
        assert device.copies[name].pending == {}
    handle = device.copies["notes"].handle
    assert handle is not None
    rows = device.store.client.invoke(handle).rows
    assert [row["id"] for row in rows].count(device.added) == 1, "it is in the store once"
    device.copies.close()
    return True
