"""Edits of a key that was erased: its values leave the queue and what was put aside, byte by byte.
Edits of other keys stay, also those of the same batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk import Copies
from tests.support.client_sdk.inside import InsideStore
from tests.support.engine.leftovers import leftovers

PEOPLE = "CREATE STREAM people (id BIGINT, name TEXT) KEY (id)"
QUERY = "SELECT id, name FROM people"
BASE, MINE, THEIRS = "Annabella-base", "Annabella-mine", "Annabella-theirs"
ERASE = "ERASE FROM people WHERE id = 1"


def person(id_: int, name: str) -> dict[str, Any]:
    return {"id": id_, "name": name}


def traces(path: Path, *texts: str) -> list[str]:
    """Return where texts are in the files of a device; some columns have them in hexadecimal."""
    return leftovers(path.parent, *texts, *(text.encode().hex() for text in texts))


def names(store: InsideStore) -> set[str]:
    return {row["name"] for row in store.client.ask(QUERY).rows}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[InsideStore]:
    store = InsideStore(tmp_path)
    store.client.define(PEOPLE)
    store.client.publish("people", [person(1, BASE), person(2, "Bob"), person(3, "Cy")])
    yield store
    store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "phone" / "copies.db"
    path.parent.mkdir()
    return path


def opened(store: InsideStore, path: Path) -> Copies:
    copies = Copies(path, clock=store.now)
    copies.keep("people", QUERY, edits=True)
    return copies


def test_a_conflict_forgets_the_erased_key(store: InsideStore, path: Path) -> None:
    with opened(store, path) as copies:
        copies.sync(store.client)
        copies.publish("people", [person(1, MINE), person(2, "Robert")], expected="seen")
        copies.publish("people", [person(1, MINE * 2)], expected="seen")
        store.client.publish("people", [person(1, THEIRS)])
        copies.sync(store.client)
        assert {conflict.reason for conflict in copies.rejected} == {"CONFLICT_ROW", "BEHIND"}
    for text in (BASE, MINE, THEIRS):
        assert traces(path, text)
    store.client.define(ERASE)
    with opened(store, path) as copies:
        copies.sync(store.client)
        both, single = copies.rejected
        assert both.reason == single.reason == "ERASED" and not copies.conflicts
        assert both.content.column("name").to_pylist() == ["Robert"] and both.row_count == 1
        assert single.row_count == 0 and single.content.num_rows == 0
        assert {row["name"] for row in copies["people"].rows()} == {"Bob", "Cy"}
        assert {row["name"] for row in copies["people"].rows(rejected=True)} == {"Robert", "Cy"}
    assert not traces(path, BASE, MINE, THEIRS)
    with opened(store, path) as copies:
        assert copies.requeue() == 2
        assert copies.sync(store.client).complete
        assert names(store) == {"Robert", "Cy"} and not copies.rejected
        copies.log_out(store.client)


def test_a_batch_that_waits_loses_the_erased_key_only(store: InsideStore, path: Path) -> None:
    with opened(store, path) as copies:
        copies.sync(store.client)
        copies.publish("people", [person(3, "Cyd"), person(1, MINE), person(2, "Robert")])
        copies.publish("people", [person(1, MINE)])
    store.client.define(ERASE)
    with opened(store, path) as copies:
        sent = copies.sync(store.client).sent
        assert [rejected.reason for rejected in sent.rejected] == ["ERASED", "ERASED"]
        first, second = copies.rejected
        assert first.content.column("name").to_pylist() == ["Cyd", "Robert"]
        assert second.row_count == 0
    assert not traces(path, MINE, BASE)
    with opened(store, path) as copies:
        copies.requeue(first.batch)
        assert copies.sync(store.client).sent.rows == 2
        assert names(store) == {"Cyd", "Robert"}
        # What has no rows any more is no reason to stay.
        assert copies.log_out(store.client).cleared.discarded_rows == 0


def test_a_conflict_about_another_key_stays_one(store: InsideStore, path: Path) -> None:
    with opened(store, path) as copies:
        copies.sync(store.client)
        copies.publish("people", [person(1, MINE), person(2, "Robert")], expected="seen")
        store.client.publish("people", [person(2, "Bobby")])
        copies.sync(store.client)
        store.client.define(ERASE)
        store.wait(3600)
        copies.sync(store.client)
        [conflict] = copies.conflicts
        assert conflict.row == 0 and conflict.mine["name"] == "Robert"
        assert conflict.theirs is not None and conflict.theirs["name"] == "Bobby"
        assert conflict.base is not None and conflict.base["name"] == "Bob"
        copies.resolve(conflict.batch, [person(2, "Rob")])
        copies.sync(store.client)
        assert names(store) == {"Rob", "Cy"}
    assert not traces(path, MINE)


def test_a_key_that_was_only_deleted_keeps_its_edits(store: InsideStore, path: Path) -> None:
    with opened(store, path) as copies:
        copies.sync(store.client)
        copies.publish("people", [person(1, MINE)], expected="seen")
        store.client.delete("people", [{"id": 1}])
        copies.sync(store.client)
        store.wait(3600)
        copies.sync(store.client)
        [conflict] = copies.conflicts
        assert conflict.mine["name"] == MINE and conflict.theirs_id == -1
        assert names(store) == {"Bob", "Cy"}, "a question is no edit"


def test_the_store_is_asked_at_times(store: InsideStore, path: Path) -> None:
    def publishes() -> int:
        return sum(method == "Publish" for method, _ in store.line.calls)

    with opened(store, path) as copies:
        copies.sync(store.client)
        copies.publish("people", [person(1, MINE)], expected="seen")
        store.client.publish("people", [person(1, THEIRS)])
        copies.sync(store.client)
        count = publishes()
        for _ in range(3):
            copies.sync(store.client)
            copies.send(store.client)
        assert publishes() == count
        store.wait(3600)
        copies.sync(store.client)
        assert publishes() == count + 1
