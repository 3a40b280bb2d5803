"""Changes with own edits: each is reported once, and one that is refused is taken back."""

from __future__ import annotations

from typing import Any

import pytest

from client_sdk import AnswerChange, Copies
from tests.client_sdk.copies.rooms import HOT, ROOMS
from tests.support.client_sdk.inside import InsideStore

NOTES = "CREATE STREAM notes (text TEXT) RETAIN 1 DAY"


@pytest.fixture
def hot(store: InsideStore, copies: Copies) -> Copies:
    store.client.define(ROOMS)
    store.client.define(NOTES)
    store.client.publish("rooms", [room("a", 90), room("b", 95)])
    copies.keep("hot", HOT, changes="with own", edits=True)
    copies.keep("plain", HOT, changes=True, edits=True)
    copies.keep("notes", "SELECT text FROM notes", changes="with own", edits=True)
    copies.sync(store.client)
    return copies


def room(name: str, temp: int) -> dict[str, Any]:
    return {"room": name, "temp": temp}


def read(copies: Copies, name: str = "hot") -> list[str]:
    """A change as the papers write it, and why."""
    with copies.changes(name) as batch:
        assert not batch.reset
        return sorted(map(_short, batch))


def _short(change: AnswerChange) -> str:
    values = " ".join(str(value) for value in (change.row or change.old or {}).values())
    return f"{change.tag}{values} {change.why}"


def test_an_accepted_edit_is_reported_once(store: InsideStore, hot: Copies) -> None:
    store.wait(1)
    hot.publish("rooms", [room("a", 91), room("c", 99), room("d", 20)])
    hot.delete("rooms", [{"room": "b"}])
    assert read(hot) == ["+c 99 own", "-b 95 own", "ua 91 own"]
    assert read(hot) == [] and read(hot, "plain") == []
    store.wait(1)
    hot.send(store.client)
    assert read(hot) == []
    store.wait(1)
    hot.sync(store.client)
    assert read(hot) == []
    assert read(hot, "plain") == ["+c 99 new", "-b 95 ended", "ua 91 changed"]


def test_a_row_without_a_key_is_reported_once(store: InsideStore, hot: Copies) -> None:
    hot.publish("notes", [{"text": "one"}, {"text": "two"}])
    assert read(hot, "notes") == ["+one own", "+two own"]
    hot.sync(store.client)
    assert read(hot, "notes") == []
    store.client.publish("notes", [{"text": "three"}])
    hot.sync(store.client)
    assert read(hot, "notes") == ["+three new"]


def test_edits_that_are_sent_before_they_are_read_are_new(store: InsideStore, hot: Copies) -> None:
    hot.publish("rooms", [room("a", 91)])
    hot.sync(store.client)
    assert read(hot) == ["ua 91 changed"]


def test_a_refused_edit_is_taken_back(store: InsideStore, hot: Copies) -> None:
    hot.publish("rooms", [room("a", 91), room("c", 99)])
    hot.delete("rooms", [{"room": "b"}])
    assert read(hot) == ["+c 99 own", "-b 95 own", "ua 91 own"]
    store.client.define("DROP STREAM rooms")
    hot.send(store.client)
    assert read(hot) == ["+b 95 new", "-c 99 own", "ua 90 own"]


def test_a_later_edit_of_another_is_a_change(store: InsideStore, hot: Copies) -> None:
    hot.publish("rooms", [room("a", 91)])
    assert read(hot) == ["ua 91 own"]
    hot.send(store.client)
    store.wait(1)
    store.client.publish("rooms", [room("a", 97)])
    hot.sync(store.client)
    assert read(hot) == ["ua 97 changed"]


def test_a_copy_without_edits_has_no_own_changes(copies: Copies) -> None:
    with pytest.raises(ValueError, match="edits=True"):
        copies.keep("hot", HOT, changes="with own")
