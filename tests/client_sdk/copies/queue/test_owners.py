"""A file whose credential is now another owner's: nothing is stored twice, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from client_sdk import Copies, PermissionDenied, Timeout
from psoup.access.principal import Principal
from tests.support.client_sdk.inside import InsideStore
from tests.support.server.callers import acting_as

ALICE, BOB = (Principal("main", name, frozenset({"developer"})) for name in ("alice", "bob"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[InsideStore]:
    store = InsideStore(tmp_path)
    store.client.define("CREATE STREAM s (a BIGINT)")
    yield store
    store.close()


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    with Copies(tmp_path / "phone.db") as copies:
        yield copies


def rows_of(store: InsideStore) -> list[int]:
    handle = store.client.register("SELECT a FROM s").handle
    return [row["a"] for row in store.client.invoke(handle)]


def lose_answer(store: InsideStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose the answers of the next Publish calls, though the store takes the batches."""
    unary = store.line.unary

    def lost(method: str, request: Message, timeout: float | None) -> Any:
        reply = unary(method, request, timeout)
        if method == "Publish":
            raise Timeout("the answer was lost")
        return reply

    monkeypatch.setattr(store.line, "unary", lost)


@pytest.mark.parametrize("acknowledged", [0, 1])
def test_a_piece_that_was_tried_is_doubtful_for_another_owner(
    store: InsideStore, copies: Copies, monkeypatch: pytest.MonkeyPatch, acknowledged: int
) -> None:
    """With nothing acknowledged the next sequence is 1, which the new owner has free, too."""
    with acting_as(ALICE):
        for number in range(acknowledged):
            copies.publish("s", [{"a": number}])
        copies.send(store.client)
        with monkeypatch.context() as patch:
            lose_answer(store, patch)
            copies.publish("s", [{"a": 10}])
            copies.publish("s", [{"a": 11}])
            with pytest.raises(Timeout):
                copies.send(store.client)
    with acting_as(BOB):
        sent = copies.send(store.client)
    assert sent.batches == 1 and [batch.reason for batch in sent.doubtful] == ["OTHER_OWNER"]
    (doubtful,) = copies.doubtful
    assert doubtful.content.to_pylist() == [{"a": 10}]
    assert rows_of(store) == [*range(acknowledged), 10, 11]


def test_what_was_not_tried_goes_on_under_a_new_name(store: InsideStore, copies: Copies) -> None:
    for number, caller in enumerate((ALICE, BOB, ALICE)):
        copies.publish("s", [{"a": number}])
        with acting_as(caller):
            sent = copies.send(store.client)
        assert (sent.batches, sent.doubtful) == (1, ())
    assert rows_of(store) == [0, 1, 2]
    publishers = store.core.follower.state.publishers
    assert [owner for _, owner, _ in publishers] == ["alice", "bob", "alice"]


def test_a_credential_that_changes_during_a_send_sends_nothing(
    store: InsideStore, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The credential may be read again after the store was asked who the caller is."""
    copies.publish("s", [{"a": 1}])
    unary = store.line.unary

    def changing(method: str, request: Message, timeout: float | None) -> Any:
        with acting_as(BOB if method == "Publish" else ALICE):
            return unary(method, request, timeout)

    with monkeypatch.context() as patch:
        patch.setattr(store.line, "unary", changing)
        with pytest.raises(PermissionDenied):
            copies.send(store.client)
    assert copies.queued.rows == 1 and not store.core.follower.state.publishers


def test_a_tried_piece_whose_publisher_was_forgotten_is_doubtful(
    store: InsideStore, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acting_as(ALICE):
        copies.publish("s", [{"a": 1}])
        copies.send(store.client)
        copies.publish("s", [{"a": 2}])
        with monkeypatch.context() as patch:
            lose_answer(store, patch)
            with pytest.raises(Timeout):
                copies.send(store.client)
        (publisher,) = store.client.publishers()
        assert (publisher.owner, publisher.sequence) == ("alice", 2)
        store.client.forget_publishers([publisher.name])
        copies.publish("s", [{"a": 3}])
        sent = copies.send(store.client)
    assert sent.batches == 1 and [doubtful.reason for doubtful in sent.doubtful] == ["SEQUENCE_GAP"]
    assert rows_of(store) == [1, 2, 3]
