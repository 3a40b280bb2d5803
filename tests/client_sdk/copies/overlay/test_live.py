"""Own edits and a watch of a running server: nothing is shown twice, and none stays for ever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from client_sdk import AsyncClient, Client, Copies
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process


@pytest.fixture
def copies(client: Client) -> Iterator[Copies]:
    client.define("CREATE STREAM orders (id BIGINT, item TEXT) KEY (id)")
    client.define("CREATE STREAM notes (text TEXT)")
    client.publish("orders", [{"id": 1, "item": "lamp"}])
    with Copies.in_memory() as copies:
        copies.keep("orders", "SELECT id, item FROM orders", edits=True)
        copies.keep("notes", "SELECT text FROM notes", edits=True)
        yield copies


@pytest.mark.parametrize("only", [None, ["notes"]])
def test_a_watch_is_opened_again_after_an_acknowledgement(
    client: Client, copies: Copies, only: list[str] | None
) -> None:
    copies.sync(client)
    watching = copies.watch(client, only=only)
    client.publish("notes", [{"text": "first"}])
    next(watching)
    copies.publish("notes", [{"text": "own"}])
    copies.send(client)
    texts = []
    # The row of another makes a round; the one before it may be that of the own row.
    client.publish("notes", [{"text": "last"}])
    for _ in watching:
        texts = [row["text"] for row in copies["notes"].rows()]
        assert texts.count("own") == 1
        if "last" in texts and not copies["notes"].pending:
            break
        client.publish("notes", [{"text": "last"}])
    watching.close()
    assert texts[:2] == ["first", "own"]


async def test_the_same_with_an_async_client(
    shared_server: ServerProcess, client: Client, copies: Copies
) -> None:
    async with AsyncClient(shared_server.address, tenant=client._session.tenant) as async_client:
        await copies.sync_async(async_client)
        copies.publish("orders", [{"id": 1, "item": "two lamps"}])
        assert copies["orders"].rows() == [{"id": 1, "item": "two lamps"}]
        await copies.send_async(async_client)
        assert copies["orders"].pending == {1: "sent"}
        await copies.sync_async(async_client)
        assert copies["orders"].pending == {}
        assert copies["orders"].rows() == [{"id": 1, "item": "two lamps"}]
