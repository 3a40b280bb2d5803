"""A watch, and `psoup copy watch --target a,b`, go on at another server if theirs is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from client_sdk import Client, Copies, Retry
from tests.conftest import ROOT
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

STREAM = "CREATE STREAM s (n BIGINT)"
QUERY = "SELECT n FROM s"
RETRY = Retry(attempts=100, first=0.05, longest=0.2)


def test_a_watch_goes_on_at_the_other_server(tmp_path: Path) -> None:
    """Kill the first, then the second after the first was started again: no row is missed."""
    servers = [ServerProcess(tmp_path / "store") for _ in range(2)]
    ports = [server.address.rpartition(":")[2] for server in servers]
    target = ",".join(server.address for server in servers)
    with Client(target, retry=RETRY) as client, Copies.in_memory() as copies:
        client.define(STREAM)
        copies.keep("all", QUERY)
        watching = copies.watch(client)
        next(watching)
        for number in range(4):
            client.publish("s", [{"n": 2 * number}])
            servers[number % 2].kill()
            client.publish("s", [{"n": 2 * number + 1}])
            while len(copies["all"]) < 2 * number + 2:
                next(watching)
            port = ports[number % 2]
            servers[number % 2] = ServerProcess(tmp_path / "store", "--port", port)
        watching.close()
        rows = copies["all"].rows()
        assert sorted(row["n"] for row in rows) == list(range(8))
    for server in servers:
        server.stop()


def test_the_command_goes_on_at_the_other_server(tmp_path: Path) -> None:
    first, second = (ServerProcess(tmp_path / "store") for _ in range(2))
    file, target = str(tmp_path / "phone.db"), f"{first.address},{second.address}"
    psoup = [sys.executable, "-m", "psoup.cli", "--target", target]
    with Client(second.address) as client:
        client.define(STREAM)
        client.publish("s", [{"n": 0}])
        subprocess.run([*psoup, "copy", "keep", file, "all", QUERY], cwd=ROOT, check=True)
        command = [*psoup, "copy", "watch", file]
        watching = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        with watching:
            assert watching.stdout is not None and watching.stdout.readline()
            first.kill()
            client.publish("s", [{"n": 1}])
            # A line for each round.
            assert watching.stdout.readline()
            with Copies(file) as copies:
                assert len(copies["all"]) == 2
            assert watching.poll() is None
            watching.kill()
    second.stop()
