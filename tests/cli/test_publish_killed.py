"""psoup publish as a process that is killed in the middle of a file it publishes again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk import Client
from tests.conftest import ROOT
from tests.support.client_sdk.flipping import FlippingLine
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

ROWS = 120
TEXT_BYTES = 100_000
WAIT_SECONDS = 120


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "store")
    yield server
    server.stop()


def write(path: Path, letter: str) -> Path:
    text = letter * TEXT_BYTES
    path.write_text("".join(["k,v\n", *(f"{number},{text}\n" for number in range(ROWS))]))
    return path


def publishing(target: str, path: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "psoup.cli", "--target", target, "publish", "s", str(path)]
    return subprocess.Popen(command, cwd=ROOT)


def test_a_kill_in_the_middle_of_the_second_time(server: ServerProcess, tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.csv", "a"), write(tmp_path / "b.csv", "b")
    with Client(server.address) as client:
        client.define("CREATE STREAM s (k BIGINT, v TEXT) KEY (k)")
        for path in (a, b):
            assert publishing(server.address, path).wait(WAIT_SECONDS) == 0
        line = FlippingLine(server.address, room=ROWS * TEXT_BYTES // 2)
        line.flipping = False
        killed = publishing(line.address, a)
        deadline = time.monotonic() + WAIT_SECONDS
        while client.stream("s").row_count <= 2 * ROWS:
            assert time.monotonic() < deadline and killed.poll() is None
            time.sleep(0.1)
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        line.close()
        assert 2 * ROWS < client.stream("s").row_count < 3 * ROWS
        assert publishing(server.address, a).wait(WAIT_SECONDS) == 0
        assert client.stream("s").row_count == 3 * ROWS
        assert {row["v"][0] for row in client.ask("SELECT v FROM s").rows} == {"a"}
