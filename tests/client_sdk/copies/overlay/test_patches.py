"""Queued patches: both of two devices survive, and copies show them as the store will."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk import Copies, RowProblem
from tests.support.client_sdk.inside import InsideStore
from tests.support.lengths import short_first

PLACES = "CREATE STREAM places (id BIGINT, a BIGINT, b TEXT, c TEXT) KEY (id)"
STATES = (
    "CREATE STREAM states (id BIGINT, a BIGINT, b TEXT, c TEXT, at TIMESTAMP) KEY (id) "
    "ORDERED BY at"
)
# Answers, and whether they come with base rows.
ANSWERS = [
    ("SELECT id, a, b, c FROM {}", False),
    ("SELECT id, a * 2 AS double, a, b FROM {} WHERE a > 4", False),
    ("SELECT id, b FROM {} WHERE a > 4 ORDER BY c", False),
    ("SELECT b, count(*) AS n, sum(a) AS total FROM {} GROUP BY b", True),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[InsideStore]:
    store = InsideStore(tmp_path)
    store.client.define(PLACES)
    store.client.define(STATES)
    yield store
    store.close()


def opened(store: InsideStore, path: Path, stream: str) -> Copies:
    copies = Copies(path, clock=store.now)
    for number, (text, base_rows) in enumerate(ANSWERS):
        copies.keep(f"c{number}", text.format(stream), base_rows=base_rows, edits=True)
    copies.sync(store.client)
    return copies


def edits(chance: random.Random, store: InsideStore, stream: str) -> list[dict[str, Any]]:
    ids = chance.sample(range(6), 2)
    values: dict[str, Any] = {
        "a": chance.randrange(10),
        "b": chance.choice("xyz"),
        "c": chance.choice((None, "u", "v")),
    }
    if stream == "states":
        values["at"] = store.now()
    if chance.random() < 0.3:
        op = chance.choice(("row", "row", "delete"))
        return [{"id": id_, **values, "_op": op} for id_ in ids]
    names = chance.sample(("a", "b", "c"), chance.randint(1, 3))
    names += ["at"] if stream == "states" and chance.random() < 0.5 else []
    return [{"id": id_, "_op": "patch", **{n: values[n] for n in names}} for id_ in ids]


def content(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows), key=repr)


@pytest.mark.parametrize("stream", ["places", "states"])
@pytest.mark.parametrize("seed", short_first(range(20)))
def test_oracle_copies_show_queued_patches_as_the_store_will(
    store: InsideStore, tmp_path: Path, stream: str, seed: int
) -> None:
    chance = random.Random(seed)
    compared = unchecked = patched = 0
    with opened(store, tmp_path / "device.db", stream) as device:
        for _ in range(8):
            store.client.publish(
                stream,
                [
                    {"id": id_, "a": chance.randrange(10), "b": "x", "c": None}
                    | ({"at": store.now()} if stream == "states" else {})
                    for id_ in chance.sample(range(6), 2)
                ],
            )
            device.sync(store.client)
            for _ in range(chance.randint(1, 4)):
                batch = edits(chance, store, stream)
                patched += any(row["_op"] == "patch" for row in batch)
                device.publish(stream, batch)
            shown = {name: content(device[name].rows()) for name in ("c0", "c1", "c2", "c3")}
            doubtful = {name for name in shown if "unchecked" in device[name].pending.values()}
            sent = device.send(store.client)
            assert {batch.reason for batch in sent.rejected} <= {"NO_CURRENT_ROW", "NOT_CURRENT"}
            for name, (text, _) in zip(shown, ANSWERS, strict=True):
                if name in doubtful or sent.rejected:
                    unchecked += 1
                    continue
                compared += 1
                answer = store.client.invoke(store.client.register(text.format(stream)))
                assert shown[name] == content(answer), (name, seed)
            device.discard()
            device.sync(store.client)
    assert compared and unchecked and patched


def test_patches_of_different_columns_from_two_devices_both_survive(
    store: InsideStore, tmp_path: Path
) -> None:
    store.client.publish("places", [{"id": 1, "a": 1, "b": "x", "c": "u"}])
    with (
        opened(store, tmp_path / "ann.db", "places") as ann,
        opened(store, tmp_path / "bob.db", "places") as bob,
    ):
        ann.patch("places", [{"id": 1, "a": 2}])
        ann.patch("places", [{"id": 1, "c": None}])
        bob.patch("places", [{"id": 1, "b": "y"}])
        assert content(ann["c0"].rows()) == [(1, 2, "x", None)]
        assert content(bob["c0"].rows()) == [(1, 1, "y", "u")]
        assert ann["c0"].pending == {1: "queued"}
        for device in (ann, bob, ann):
            assert not device.sync(store.client).sent.rejected
        for device in (ann, bob):
            assert content(device["c0"].rows()) == [(1, 2, "y", None)]


def test_a_patch_is_unchecked_if_the_copy_lacks_what_the_query_reads(
    store: InsideStore, tmp_path: Path
) -> None:
    store.client.publish("places", [{"id": 1, "a": 9, "b": "x", "c": "u"}])
    with opened(store, tmp_path / "ann.db", "places") as ann:
        ann.patch("places", [{"id": 1, "b": "y"}])
        # The condition reads a, which the answer does not have.
        assert ann["c2"].pending == {1: "unchecked"}
        assert content(ann["c2"].rows()) == [(1, "x")]
        ann.patch("places", [{"id": 1, "a": 1, "b": "y", "c": "v"}])
        assert ann["c2"].pending == {1: "unchecked"}, "what is beneath it is not known"
        ann.patch("places", [{"id": 7, "b": "y"}])
        assert ann["c0"].pending == {1: "queued", 7: "unchecked"}


def test_a_refused_patch_does_not_stop_the_queue(store: InsideStore, tmp_path: Path) -> None:
    store.client.publish("places", [{"id": 1, "a": 1, "b": "x", "c": "u"}])
    with opened(store, tmp_path / "ann.db", "places") as ann:
        store.client.delete("places", [{"id": 1}])
        ann.patch("places", [{"id": 1, "a": 2}])
        ann.publish("places", [{"id": 2, "a": 1, "b": "x", "c": "u"}])
        sent = ann.send(store.client)
        assert [batch.reason for batch in sent.rejected] == ["NO_CURRENT_ROW"]
        assert sent.rows == 1 and ann.rejected[0].content.column_names == ["id", "a", "_op"]


def test_a_patch_may_expect_the_row_that_was_seen(store: InsideStore, tmp_path: Path) -> None:
    store.client.publish("places", [{"id": 1, "a": 1, "b": "x", "c": "u"}])
    with opened(store, tmp_path / "ann.db", "places") as ann:
        ann.patch("places", [{"id": 1, "a": 2}], expected="seen")
        ann.patch("places", [{"id": 1, "b": "y"}], expected="seen")
        assert not ann.sync(store.client).sent.rejected
        assert content(ann["c0"].rows()) == [(1, 2, "y", "u")]
        ann.patch("places", [{"id": 1, "a": 3}], expected="seen")
        store.client.patch("places", [{"id": 1, "c": "v"}])
        ann.sync(store.client)
        [conflict] = ann.conflicts
        assert conflict.mine == {"id": 1, "a": 3, "_op": "patch"}
        ann.resolve(conflict.batch, [conflict.mine])
        assert not ann.sync(store.client).sent.rejected
        assert content(ann["c0"].rows()) == [(1, 3, "y", "v")]


def test_patches_of_a_batch_set_the_same_columns(store: InsideStore, tmp_path: Path) -> None:
    with opened(store, tmp_path / "ann.db", "places") as ann:
        wrong: list[list[dict[str, Any]]] = [
            [{"id": 1, "a": 1}, {"id": 2, "b": "x"}],
            [{"a": 1}],
            [{"id": 1, "z": 1}],
        ]
        for rows in wrong:
            with pytest.raises(RowProblem) as caught:
                ann.patch("places", rows)
            assert caught.value.reason == "WRONG_COLUMNS"


def test_patches_that_are_unchecked_leave_their_rows_as_they_are(
    store: InsideStore, tmp_path: Path
) -> None:
    rows = [{"id": id_, "a": 9, "b": "x", "c": "u"} for id_ in range(4)]
    store.client.publish("places", rows)
    with opened(store, tmp_path / "ann.db", "places") as ann:
        ann.publish("places", [{"id": 1, "a": 9, "b": "y", "c": "u"}])
        ann.patch("places", [{"id": 2, "b": "y"}])
        ann.publish("places", [{"id": 3, "c": "v", "_op": "patch"}, {"id": 0, "_op": "delete"}])
        assert content(ann["c2"].rows()) == [(1, "y"), (2, "x"), (3, "x")]
        assert ann["c2"].pending == {1: "queued", 0: "queued", 2: "unchecked", 3: "unchecked"}
