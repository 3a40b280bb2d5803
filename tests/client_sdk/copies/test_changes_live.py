"""Changes against a running server: with an event loop, and with a reader that is killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from client_sdk import AsyncClient, Client, Copies
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

ROOMS = "CREATE STREAM rooms (room TEXT, temp BIGINT) KEY (room)"
HOT = "SELECT room, temp FROM rooms WHERE temp > 80"

READER = """
import os, signal, sys
from client_sdk import Copies

with Copies(sys.argv[1]) as copies, copies.changes("hot") as batch:
    print([(change.number, change.tag) for change in batch], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_reader_that_is_killed_reads_the_same_again(client: Client, tmp_path: Path) -> None:
    client.define(ROOMS)
    path = tmp_path / "phone.db"
    with Copies(path) as copies:
        copies.keep("hot", HOT, changes=True)
        copies.sync(client)
        for temp in (99, 95):
            client.publish("rooms", [{"room": "a", "temp": temp}])
            copies.sync(client)
    script = tmp_path / "reader.py"
    script.write_text(READER)
    runs = [
        subprocess.run([sys.executable, script, path], capture_output=True, text=True, check=False)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout and runs[0].returncode == -9
    with Copies(path) as copies:
        with copies.changes("hot") as batch:
            assert str([(change.number, change.tag) for change in batch]) == runs[0].stdout.strip()
        with copies.changes("hot") as batch:
            assert list(batch) == []


def test_with_an_event_loop(shared_server: ServerProcess, client: Client, tmp_path: Path) -> None:
    client.define(ROOMS)

    async def follow() -> list[str]:
        changes: list[str] = []
        tenant = client._session.tenant
        async with AsyncClient(shared_server.address, tenant=tenant) as connected:
            with Copies(tmp_path / "phone.db") as copies:
                copies.keep("hot", HOT, changes=True)
                await copies.sync_async(connected)
                for temp in (99, 95, 20):
                    await connected.publish("rooms", [{"room": "a", "temp": temp}])
                    async for _ in copies.watch_async(connected):
                        break
                    with copies.changes("hot") as batch:
                        changes += [change.tag for change in batch]
        return changes

    assert asyncio.run(follow()) == ["+", "u", "-"]
