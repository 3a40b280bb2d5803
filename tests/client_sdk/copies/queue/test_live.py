"""The queue against a running store: servers and senders are killed, and two send at once."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from client_sdk import Client, ConnectionFailed, Retry
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._queue.outbox import Outbox
from tests.support.server.process import ROOT, ServerProcess

pytestmark = pytest.mark.process

SENDER = """
import sys
from client_sdk import Client
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._queue.outbox import Outbox
print("ready", flush=True)
sys.stdin.readline()
with Client(sys.argv[2]) as client:
    Outbox(CopyFile(sys.argv[1])).send(client)
"""


def sender(path: Path, address: str) -> subprocess.Popen[str]:
    """A process that sends the file's queue on request."""
    command = [sys.executable, "-c", SENDER, str(path), address]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def end(process: subprocess.Popen[str]) -> int:
    code = process.wait(timeout=240)
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()
    return code


def values(address: str) -> list[int]:
    with Client(address) as client:
        return [row["a"] for row in client.ask("SELECT a FROM s ORDER BY row_id")]


def wait_for(outbox: Outbox, batches: int) -> None:
    """Wait until at most that many batches wait."""
    deadline = time.monotonic() + 60
    while outbox.queued.batches > batches and time.monotonic() < deadline:
        time.sleep(0.002)
    assert outbox.queued.batches <= batches


def test_servers_and_senders_are_killed(tmp_path: Path) -> None:
    store, path = tmp_path / "store", tmp_path / "phone.db"
    server = ServerProcess(store)
    file = CopyFile(path)
    outbox = Outbox(file)
    with Client(server.address, retry=Retry(attempts=1)) as client:
        client.define("CREATE STREAM s (a BIGINT)")
        for number in range(40):
            outbox.publish("s" if number != 25 else "nowhere", [{"a": number}])
        killed = sender(path, server.address)
        tell(killed)
        wait_for(outbox, 33)
        killed.kill()
        end(killed)
        pair = [sender(path, server.address) for _ in range(2)]
        for process in pair:
            tell(process)
        wait_for(outbox, 26)
        pair[0].kill()
        wait_for(outbox, 20)
        server.kill()
        with pytest.raises(ConnectionFailed):
            outbox.send(client)
    for process in pair:
        process.kill()
        end(process)
    server = ServerProcess(store)
    try:
        assert 0 < outbox.queued.batches <= 20
        with Client(server.address) as client:
            outbox.send(client)
        assert values(server.address) == [number for number in range(40) if number != 25]
        assert not outbox.queued
        assert [child.reason for child in outbox.rejected] == ["UNKNOWN_STREAM"]
    finally:
        file.close()
        server.stop()
