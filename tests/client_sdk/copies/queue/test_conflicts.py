"""Edits that expect a row: refused edits are kept, decided about, and sent again; none is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk import Copies, EditConflict, LimitExceeded, RowProblem
from client_sdk.copies._queue.batches import Room
from psoup.write.draft import RecentBatches
from tests.support.client_sdk.inside import InsideStore

ORDERS = "CREATE STREAM orders (id BIGINT, item TEXT) KEY (id)"
QUERY = "SELECT id, item FROM orders"

Open = Callable[[str], Copies]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[InsideStore]:
    store = InsideStore(tmp_path)
    store.client.define(ORDERS)
    yield store
    store.close()


@pytest.fixture
def phone(store: InsideStore, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens the file of a phone, which has a copy of all orders."""
    files: list[Copies] = []

    def opened(name: str) -> Copies:
        copies = Copies(tmp_path / f"{name}.db")
        files.append(copies)
        copies.keep("orders", QUERY, edits=True)
        copies.sync(store.client)
        return copies

    yield opened
    for copies in files:
        copies.close()


def order(id_: int, item: str, **more: Any) -> dict[str, Any]:
    return {"id": id_, "item": item, **more}


def items(store: InsideStore) -> dict[int, str]:
    rows = store.client.invoke(store.client.register(QUERY))
    return {row["id"]: row["item"] for row in rows}


def test_the_second_of_two_editors_is_told(store: InsideStore, phone: Open) -> None:
    store.client.publish("orders", [order(1, "lamp")])
    ann, bob = phone("ann"), phone("bob")
    ann.publish("orders", [order(1, "two lamps")], expected="seen")
    bob.publish("orders", [order(1, "red lamp")], expected="seen")
    assert ann.sync(store.client).sent.rows == 1
    sent = bob.sync(store.client).sent
    assert (sent.rows, [rejected.reason for rejected in sent.rejected]) == (0, ["CONFLICT_ROW"])
    [conflict] = bob.conflicts
    assert conflict.mine == order(1, "red lamp") and conflict.base == order(1, "lamp")
    assert conflict.theirs is not None and conflict.theirs["item"] == "two lamps"
    assert conflict.theirs["row_id"] == conflict.theirs_id == 1
    assert bob.rejected[0].batch == conflict.batch and items(store) == {1: "two lamps"}
    bob.resolve(conflict.batch, [order(1, "two red lamps")])
    assert not bob.conflicts and bob.sync(store.client).sent.rows == 1
    assert items(store) == {1: "two red lamps"}
    assert bob["orders"].rows() == [order(1, "two red lamps")]


def test_edits_of_one_key_follow_each_other_offline(store: InsideStore, phone: Open) -> None:
    ann = phone("ann")
    for number in range(4):
        ann.publish("orders", [order(1, f"lamp {number}")], expected="seen")
    ann.publish("orders", [{"id": 1, "_op": "delete"}], expected="seen")
    ann.publish("orders", [order(1, "again")], expected="seen")
    sent = ann.send(store.client)
    assert (sent.batches, sent.rejected) == (6, ()) and items(store) == {1: "again"}
    # Acknowledged and not synced yet: the copy shows the own row, and that is what was seen.
    ann.publish("orders", [order(1, "and again")], expected="seen")
    assert ann.send(store.client).batches == 1
    ann.sync(store.client)
    ann.publish("orders", [order(1, "at last")], expected="seen")
    assert ann.sync(store.client).sent.batches == 1 and not ann.rejected
    assert items(store) == {1: "at last"}


def test_what_was_queued_behind_a_conflict_waits_with_it(store: InsideStore, phone: Open) -> None:
    store.client.publish("orders", [order(1, "lamp"), order(2, "chair")])
    ann = phone("ann")
    first = ann.publish("orders", [order(1, "a"), order(2, "b")], expected="seen")
    ann.publish("orders", [order(2, "c")], expected="seen")
    ann.publish("orders", [order(3, "d")], expected="seen")
    ann.publish("orders", [order(2, "e")])
    store.client.publish("orders", [order(1, "theirs")])
    sent = ann.send(store.client)
    assert [rejected.reason for rejected in sent.rejected] == ["CONFLICT_ROW", "BEHIND", "BEHIND"]
    assert items(store) == {1: "theirs", 2: "chair", 3: "d"}
    assert not ann.queued and [conflict.batch for conflict in ann.conflicts] == [first]
    # The other row of the batch still expects what it did.
    ann.resolve(ann.conflicts[0].batch, [order(1, "both"), order(2, "b")])
    assert ann.queued.batches == 3 and not ann.rejected
    sent = ann.send(store.client)
    assert (sent.batches, [rejected.reason for rejected in sent.rejected]) == (
        1,
        ["CONFLICT_ROW", "BEHIND"],
    )
    assert items(store) == {1: "both", 2: "b", 3: "d"}
    [conflict] = ann.conflicts
    assert (conflict.mine, conflict.base) == (order(2, "c"), order(2, "b"))
    assert (conflict.theirs or {})["item"] == "b", "it never saw what was decided"


def test_a_callback_brings_one_edit_after_the_other_up_to_date(
    store: InsideStore, phone: Open
) -> None:
    store.client.publish("orders", [order(1, "lamp")])
    ann = phone("ann")
    for item in ("lamp a", "lamp a b", "lamp a b c"):
        ann.publish("orders", [order(1, item)], expected="seen")
    store.client.publish("orders", [order(1, "red lamp")])

    def decide(conflict: EditConflict) -> Any:
        """Put what was added to the base behind theirs."""
        assert conflict.base is not None and conflict.theirs is not None
        added = conflict.mine["item"].removeprefix(conflict.base["item"])
        return [order(1, conflict.theirs["item"] + added)]

    sent = ann.sync(store.client, on_conflict=decide).sent
    assert (sent.batches, sent.rejected) == (3, ()) and not ann.rejected
    assert items(store) == {1: "red lamp a b c"}


def test_a_dropped_edit_leaves_those_behind_it_in_conflict(store: InsideStore, phone: Open) -> None:
    store.client.publish("orders", [order(1, "lamp")])
    ann = phone("ann")
    ann.publish("orders", [order(1, "a")], expected="seen")
    ann.publish("orders", [order(1, "b")], expected="seen")
    ann.publish("orders", [order(1, "c")], expected="seen")
    store.client.publish("orders", [order(1, "theirs")])
    ann.send(store.client)
    for item in "abc":
        [conflict] = ann.conflicts
        assert (conflict.mine["item"], (conflict.theirs or {})["item"]) == (item, "theirs")
        ann.take_theirs(conflict.batch)
        ann.send(store.client)
    assert not ann.conflicts and not ann.rejected and not ann.queued
    assert items(store) == {1: "theirs"}


def test_a_row_that_was_deleted_is_a_conflict(store: InsideStore, phone: Open) -> None:
    store.client.publish("orders", [order(1, "lamp")])
    ann = phone("ann")
    ann.publish("orders", [order(1, "mine")], expected="seen")
    store.client.delete("orders", [{"id": 1}])
    ann.send(store.client)
    [conflict] = ann.conflicts
    assert (conflict.theirs, conflict.theirs_id) == (None, -1)
    ann.resolve(conflict.batch, [order(1, "mine, again")])
    ann.send(store.client)
    assert items(store) == {1: "mine, again"}


def test_a_callback_decides_in_the_sync(store: InsideStore, phone: Open) -> None:
    store.client.publish("orders", [order(n, "lamp") for n in range(3)])
    ann = phone("ann")
    for number in range(3):
        ann.publish("orders", [order(number, "mine")], expected="seen")
    store.client.publish("orders", [order(n, "theirs") for n in range(3)])
    ids: list[int] = []

    def decide(conflict: EditConflict) -> Any:
        number = conflict.mine["id"]
        ids.append(number)
        their_item = (conflict.theirs or {})["item"]
        return ([order(number, f"mine and {their_item}")], [], None)[number]

    sent = ann.sync(store.client, on_conflict=decide).sent
    assert ids == [0, 1, 2]
    assert (sent.batches, [rejected.batch for rejected in sent.rejected]) == (1, [3])
    assert items(store) == {0: "mine and theirs", 1: "theirs", 2: "theirs"}
    assert [conflict.mine["id"] for conflict in ann.conflicts] == [2]


def test_a_send_ends_although_others_edit_all_the_time(
    store: InsideStore, phone: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client_sdk.copies._queue.outbox._MOST_DECISIONS", 5)
    store.client.publish("orders", [order(1, "lamp")])
    ann = phone("ann")
    ann.publish("orders", [order(1, "mine")], expected="seen")
    store.client.publish("orders", [order(1, "theirs 0")])
    conflicts: list[EditConflict] = []

    def decide(conflict: EditConflict) -> Any:
        conflicts.append(conflict)
        store.client.publish("orders", [order(1, f"theirs {len(conflicts)}")])
        return [conflict.mine]

    ann.send(store.client, on_conflict=decide)
    assert len(conflicts) == 5 and len(ann.conflicts) == 1
    assert items(store) == {1: "theirs 5"}


def test_an_edit_made_from_a_refused_one_is_not_sent(store: InsideStore, phone: Open) -> None:
    """Refused for another reason than a conflict: the rows behind it have nothing to expect."""
    ann = phone("ann")
    ann.publish("orders", [order(1, "a")], expected="seen")
    ann.publish("orders", [order(1, "b")], expected="seen")
    store.client.define("DROP STREAM orders")
    store.client.define("CREATE STREAM orders (id BIGINT, item TEXT, more TEXT) KEY (id)")
    sent = ann.send(store.client)
    assert [rejected.reason for rejected in sent.rejected] == ["MISSING_COLUMN", "BEHIND"]
    assert "batch 1" in sent.rejected[1].message and not ann.conflicts
    assert ann.requeue(1) == 1 and ann.queued.batches == 2
    ann.send(store.client)
    assert ann.discard(ann.rejected[0].batch) == 1 and ann.queued.batches == 1


def test_an_explicit_row_id_needs_no_copy(store: InsideStore, tmp_path: Path) -> None:
    first = store.client.publish("orders", [order(1, "lamp")]).first_row_id
    with Copies(tmp_path / "file.db") as copies:
        copies.publish("orders", [order(1, "mine", _expected=first), order(2, "new", _expected=-1)])
        assert copies.send(store.client).rows == 2
        copies.learn(store.client, "orders")
        copies.publish("orders", [order(1, "late", _expected=first)])
        copies.send(store.client)
        [conflict] = copies.conflicts
        assert conflict.base is None and conflict.mine == order(1, "late")
        with pytest.raises(RowProblem):
            copies.publish("orders", [order(1, "late", _expected=-5)])


def test_what_can_not_be_expected_is_refused_at_once(
    store: InsideStore, phone: Open, tmp_path: Path
) -> None:
    with Copies(tmp_path / "file.db") as copies:
        with pytest.raises(ValueError, match="are not known"):
            copies.publish("orders", [order(1, "a")], expected="seen")
        copies.learn(store.client, "orders")
        with pytest.raises(ValueError, match="edits=True"):
            copies.publish("orders", [order(1, "a")], expected="seen")
        with pytest.raises(ValueError, match="'seen' or None"):
            copies.publish("orders", [order(1, "a")], expected="known")  # type: ignore[arg-type]
    ann = phone("ann")
    assert ann.publish("orders", [], expected="seen") is None
    for change in (ann.take_theirs, lambda batch: ann.resolve(batch, [order(1, "a")])):
        with pytest.raises(ValueError, match="batch 7 is no conflict; those that are: none"):
            change(7)


def test_a_batch_that_expects_rows_is_never_cut(
    store: InsideStore, phone: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = phone("ann")
    rows = [order(number, "x" * 50_000) for number in range(100)]
    ann.publish("orders", rows, expected="seen")
    assert ann.queued.batches == 1, "5 MB, of which others would make two batches"
    assert ann.send(store.client).batches == 1
    ann.publish("orders", [order(number, "y") for number in range(3)], expected="seen")
    monkeypatch.setattr(Room, "of", classmethod(lambda cls, *_: cls(bytes=100_000, rows=2)))
    for batch_rows in ([{**row, "_expected": -1} for row in rows], rows):
        with pytest.raises(LimitExceeded, match="it is not cut"):
            expected = None if "_expected" in batch_rows[0] else "seen"
            ann.publish("orders", batch_rows, expected=expected)  # type: ignore[arg-type]
    [rejected] = ann.send(store.client).rejected
    assert rejected.reason == "BATCH_TOO_LARGE"


def test_ids_of_a_stream_that_was_dropped_mean_nothing_in_the_next(
    store: InsideStore, phone: Open
) -> None:
    """The same key may have the same row id there."""
    store.client.publish("orders", [order(1, "lamp")])
    ann = phone("ann")
    ann.publish("orders", [order(1, "mine")], expected="seen")
    ann.publish("orders", [order(1, "mine, too")], expected="seen")
    store.client.define("DROP STREAM orders")
    store.client.define(ORDERS)
    store.client.publish("orders", [order(1, "another lamp")])
    ann.send(store.client)
    [conflict] = ann.conflicts
    assert conflict.base == order(1, "lamp") and conflict.theirs_id == 0
    assert items(store) == {1: "another lamp"}
    ann.resolve(conflict.batch, [order(1, "both")])
    assert ann.send(store.client).batches == 1 and items(store) == {1: "both"}
    assert [(c.mine["item"], (c.theirs or {})["item"]) for c in ann.conflicts] == [
        ("mine, too", "both")
    ]


def test_ids_of_another_store_mean_nothing(store: InsideStore, phone: Open, tmp_path: Path) -> None:
    store.client.publish("orders", [order(1, "lamp")])
    ann = phone("ann")
    ann.publish("orders", [order(1, "mine")], expected="seen")
    (tmp_path / "other").mkdir()
    second_store = InsideStore(tmp_path / "other")
    second_store.client.define(ORDERS)
    second_store.client.publish("orders", [order(1, "of another store")])
    ann.move(second_store.client)
    ann.send(second_store.client)
    assert ann.conflicts[0].theirs_id == 0 and items(second_store) == {1: "of another store"}
    second_store.close()


def test_an_edit_made_from_a_doubtful_one_waits_for_the_decision(
    store: InsideStore, phone: Open, tmp_path: Path
) -> None:
    """The copy shows a doubtful edit, so that is what was seen."""
    store.core.follower.recent = RecentBatches(capacity=0)
    ann = phone("ann")
    ann.publish("orders", [order(1, "a")], expected="seen")
    ann.close()
    shutil.copy(tmp_path / "ann.db", tmp_path / "clone.db")
    with Copies(tmp_path / "ann.db") as ann:
        ann.publish("orders", [order(2, "b")], expected="seen")
        ann.send(store.client)
    with Copies(tmp_path / "clone.db") as clone:
        clone.send(store.client)
        [doubtful] = clone.doubtful
        clone.publish("orders", [order(1, "c")], expected="seen")
        clone.send(store.client)
        assert [aside.reason for aside in clone.rejected] == ["BEHIND"]
        # It is in the store after all. The edit behind it was not made from that row, as far as is
        # known: its editor decides.
        clone.discard(doubtful.batch)
        clone.send(store.client)
        [conflict] = clone.conflicts
        assert (conflict.mine, conflict.base) == (order(1, "c"), order(1, "a"))
        assert (conflict.theirs or {})["item"] == "a"
        clone.resolve(conflict.batch, [conflict.mine])
        clone.send(store.client)
    assert items(store) == {1: "c", 2: "b"}
