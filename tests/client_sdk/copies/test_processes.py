"""Copies and a server that are processes: killed in the middle, several on one file, watching."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk import AsyncClient, Change, Client, Copies, Retry, UnknownCopy
from tests.support.server.process import ROOT, ServerProcess

pytestmark = pytest.mark.process

STREAM = "CREATE STREAM s (a BIGINT, b TEXT) RETAIN 1 DAY"
ALL = "SELECT a, b FROM s RANGE 1 HOUR"
SUMS = "SELECT b, sum(a) AS total FROM s GROUP BY b RANGE 1 HOUR"


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"a": number, "b": f"text {number % 10}"} for number in range(first, first + count)]


@pytest.fixture
def copies(client: Client, tmp_path: Path) -> Iterator[Copies]:
    client.define(STREAM)
    with Copies(tmp_path / "copies.db") as copies:
        copies.keep("all", ALL)
        copies.keep("sums", SUMS)
        yield copies


def check(client: Client, copies: Copies) -> None:
    for name in copies:
        handle = copies[name].handle
        assert handle is not None
        assert copies[name].to_arrow().equals(client.invoke(handle).to_arrow())


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


_SLOW_SYNC = """
import sys, time
from client_sdk import Client, Copies
from client_sdk.copies._sync import items, opening

class Slow(items.Item):
    def _stage(self, resume):
        super()._stage(resume)
        print("staged", flush=True)
        time.sleep(0.05)

opening.Item = Slow
address, tenant, path = sys.argv[1:]
with Client(address, tenant=tenant) as client, Copies(path) as copies:
    copies.sync(client)
    print("done", flush=True)
"""


def test_killed_in_the_middle_of_a_sync(
    shared_server: ServerProcess, client: Client, copies: Copies, tmp_path: Path
) -> None:
    """The old answer is seen, and what was staged need not be sent again."""
    client.publish("s", rows(0, 10))
    copies.sync(client)
    many = [{"a": number, "b": os.urandom(200).hex()} for number in range(12_000)]
    client.publish("s", many)
    path = str(tmp_path / "copies.db")
    child = start(_SLOW_SYNC, shared_server.address, client._session.tenant, path)
    assert child.stdout is not None
    assert child.stdout.readline() == "staged\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert len(copies["all"]) == 10
    synced = copies.sync(client)
    assert synced.complete and 0 < synced["all"].rows < 12_000
    check(client, copies)


_SYNC_OFTEN = """
import sys
from client_sdk import Client, Copies
address, tenant, path = sys.argv[1:]
with Client(address, tenant=tenant) as client, Copies(path) as copies:
    for _ in range(15):
        assert copies.sync(client).complete
        total = sum(row["total"] for row in copies["sums"])
        copies.query("SELECT count(*) FROM [all]")
print("done", flush=True)
"""


def test_several_processes_on_one_file(
    shared_server: ServerProcess, client: Client, copies: Copies, tmp_path: Path
) -> None:
    path, tenant = str(tmp_path / "copies.db"), client._session.tenant
    children = [start(_SYNC_OFTEN, shared_server.address, tenant, path) for _ in range(2)]
    for turn in range(20):
        client.publish("s", rows(turn * 100, 100))
        copies.keep("sums", SUMS, priority=turn)
    assert [child.communicate()[0] for child in children] == ["done\n"] * 2
    assert copies.sync(client).complete
    assert len(copies["all"]) == 2000
    check(client, copies)


# ---- watching


def test_watch_yields_once_per_round(client: Client, copies: Copies) -> None:
    client.publish("s", rows(0, 3))
    watching = copies.watch(client)
    first = next(watching)
    assert sorted(first.changed) == ["all", "sums"]
    assert first["all"].whole and first["all"].rows == 3
    for turn in range(1, 4):
        client.publish("s", rows(3 * turn, 3))
        synced = next(watching)
        assert sorted(synced.changed) == ["all", "sums"] and synced["all"].rows == 3
    watching.close()
    check(client, copies)
    assert copies.sync(client).complete


def test_a_round_has_the_copies_that_stayed_the_same(client: Client, copies: Copies) -> None:
    copies.keep("none", "SELECT a FROM s WHERE a < 0")
    watching = copies.watch(client)
    next(watching)
    client.publish("s", rows(0, 3))
    synced = next(watching)
    assert sorted(synced) == ["all", "none", "sums"] and sorted(synced.changed) == ["all", "sums"]
    assert synced["none"] == Change("unchanged")
    assert synced.get("typo") is None
    with pytest.raises(UnknownCopy, match="'typo' was not part of this sync, which had all, sums"):
        synced["typo"]
    watching.close()


def test_watch_goes_on_when_another_has_synced(client: Client, copies: Copies) -> None:
    watching = copies.watch(client, only=["all"])
    next(watching)
    client.publish("s", rows(0, 3))
    copies.sync(client)
    client.publish("s", rows(3, 3))
    while len(copies["all"]) < 6:
        next(watching)
    watching.close()
    check(client, copies) if copies.sync(client).complete else None


def test_watch_survives_a_server_that_is_started_again(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store")
    port = server.address.rpartition(":")[2]
    retry = Retry(attempts=100, first=0.05, longest=0.2)
    with Client(server.address, retry=retry) as client, Copies.in_memory() as copies:
        client.define(STREAM)
        copies.keep("all", ALL)
        watching = copies.watch(client)
        next(watching)
        server.stop()
        server = ServerProcess(tmp_path / "store", "--port", port)
        client.publish("s", rows(0, 5))
        next(watching)
        assert len(copies["all"]) == 5
        handle = copies["all"].handle
        assert handle is not None
        client.unregister(handle)
        while copies["all"].handle == handle:
            next(watching)
        watching.close()
        check(client, copies)
    server.stop()


def test_a_watch_ends_when_it_is_closed_elsewhere(client: Client, copies: Copies) -> None:
    """Ctrl-C: the line is left, and the copies can be used."""
    copies.sync(client)
    ended = threading.Event()

    def interrupt() -> None:
        # Python drops an interrupt that meets a finaliser, so there may have to be another.
        while not ended.wait(2.0):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            for _ in copies.watch(client):
                pass
    finally:
        ended.set()
        thread.join()
    client.publish("s", rows(0, 2))
    copies.sync(client)
    check(client, copies)


async def test_the_same_on_an_event_loop(
    shared_server: ServerProcess, client: Client, copies: Copies
) -> None:
    await asyncio.to_thread(client.publish, "s", rows(0, 5))
    async with AsyncClient(shared_server.address, tenant=client._session.tenant) as async_client:
        both = await asyncio.gather(
            copies.sync_async(async_client), copies.sync_async(async_client)
        )
        assert all(synced.complete for synced in both)
        assert len(copies["all"]) == 5
        watching = copies.watch_async(async_client, only=["all"])
        await async_client.publish("s", rows(5, 5))
        assert (await anext(watching))["all"].rows == 5
        await watching.aclose()  # type: ignore[attr-defined]
    check(client, copies) if copies.sync(client).complete else None
