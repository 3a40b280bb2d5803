"""Offline edits meet captive portals, and files that were cloned, with real servers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from client_sdk import AsyncClient, Client, Copies, ForeignAnswer, OtherStore, PsoupError, Retry
from tests.support.client_sdk.portal import PORTALS, portal
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

ONCE = Retry(attempts=1)
NOT_OURS = ("UNIMPLEMENTED", "INVALID_ARGUMENT", "OUT_OF_RANGE", "NOT_FOUND", "http2", "http2-bad")


def client_of(target: str, tenant: str) -> Client:
    return Client(target, tenant=tenant, retry=ONCE, timeout=120)


def values(server: ServerProcess, tenant: str) -> list[int]:
    with client_of(server.address, tenant) as client:
        return [row["a"] for row in client.ask("SELECT a FROM s ORDER BY row_id")]


@pytest.mark.parametrize("kind", PORTALS)
def test_an_edit_outlives_whatever_answers(
    shared_server: ServerProcess, tenant: str, tmp_path: Path, kind: str
) -> None:
    with (
        client_of(shared_server.address, tenant) as client,
        Copies(tmp_path / "phone.db") as copies,
    ):
        client.define("CREATE STREAM s (a BIGINT)")
        copies.keep("all", "SELECT a FROM s")
        copies.sync(client)
        copies.publish("s", [{"a": 1}])
        copies.publish("s", [{"a": 2}])
        with portal(kind) as target, client_of(target, tenant) as stored:
            for attempt in (copies.send, copies.sync):
                with pytest.raises(PsoupError) as caught:
                    attempt(stored)
                if kind in NOT_OURS:
                    assert isinstance(caught.value, ForeignAnswer)
                    assert "this is not a PSoup store" in str(caught.value)
            assert (copies.queued.rows, copies.rejected, copies.doubtful) == (2, [], [])
        assert copies.sync(client).sent.rows == 2
        assert [row["a"] for row in copies["all"].rows()] == [1, 2]


async def test_the_async_client_tells_a_portal_too() -> None:
    with portal("UNIMPLEMENTED") as target:
        async with AsyncClient(target, retry=ONCE) as client:
            with pytest.raises(ForeignAnswer, match="this is not a PSoup store"):
                await client.streams()


def test_a_clone_of_a_file_neither_loses_nor_doubles(tmp_path: Path) -> None:
    """A server that was started again knows the last sequence of a publisher only."""
    store = tmp_path / "store"
    first = ServerProcess(store)
    phone, clone = tmp_path / "phone.db", tmp_path / "clone.db"
    with client_of(first.address, "main") as client, Copies(phone) as copies:
        client.define("CREATE STREAM s (a BIGINT)")
        for number in (1, 2):
            copies.publish("s", [{"a": number}])
    shutil.copy(phone, clone)
    with client_of(first.address, "main") as client:
        with Copies(phone) as copies:
            copies.publish("s", [{"a": 3}])
            assert copies.send(client).rows == 3
        with Copies(clone) as copies:
            copies.publish("s", [{"a": 4}])
            sent = copies.send(client)
            assert (sent.duplicates, sent.doubtful, copies.queued.batches) == (2, (), 0)
    assert values(first, "main") == [1, 2, 3, 4]
    first.stop()


def test_a_file_does_not_go_to_another_store_unasked(
    shared_server: ServerProcess, tenant: str, tmp_path: Path
) -> None:
    second = ServerProcess(tmp_path / "other")
    try:
        with (
            client_of(shared_server.address, tenant) as first_client,
            client_of(second.address, tenant) as second_client,
            Copies(tmp_path / "phone.db") as copies,
        ):
            for client in (first_client, second_client):
                client.define("CREATE STREAM s (a BIGINT)")
            copies.keep("all", "SELECT a FROM s")
            copies.sync(first_client)
            copies.publish("s", [{"a": 1}])
            for attempt in (copies.send, copies.sync):
                with pytest.raises(OtherStore):
                    attempt(second_client)
            with pytest.raises(OtherStore):
                copies.sync(second_client, send=False)
            assert copies.sync(first_client).sent.rows == 1
            assert copies.sync(second_client).complete and copies["all"].rows() == []
            assert copies.store_id == second_client.status().store_id
            copies.publish("s", [{"a": 2}])
            copies.move(first_client)
            assert copies.sync(first_client).sent.rows == 1
            assert [row["a"] for row in copies["all"].rows()] == [1, 2]
    finally:
        second.stop()
