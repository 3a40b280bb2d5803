"""A hole in the log was taken for its end and written into.

With commit 7 of 15 deleted a server started, showed 4 of 12 acknowledged rows and gave the
position of version 7 and row id 4 out again. An empty last commit was skipped in the same way.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from os import kill
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

from tests.server.conftest import Start, start
from tests.support.server.process import ROOT, ServerProcess, detail

__all__ = ["start"]

pytestmark = pytest.mark.process

BATCHES = 12


def numbers(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64())})


def publish(server: ServerProcess, first: int, last: int) -> None:
    for number in range(first, last):
        server.publish("s", numbers(number), publisher="p", sequence=number + 1)


def commit(store: Path, version: int) -> Path:
    return store / "log" / "_delta_log" / f"{version:020d}.json"


def refusal(store: Path) -> str:
    """What a server says that does not start."""
    command = [sys.executable, "-m", "psoup.server", "--store", str(store), "--port", "0"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return ended.stderr


@pytest.mark.parametrize(
    ("version", "content", "message"),
    [
        (7, None, "version 7 of the table log is missing"),
        (BATCHES + 1, b"", "version 13 of the table log can't be read"),
        (BATCHES + 1, b'{"commitInfo":{"time', "version 13 of the table log can't be read"),
    ],
)
def test_a_server_does_not_start_over_damage(
    tmp_path: Path, start: Start, version: int, content: bytes | None, message: str
) -> None:
    server = start()
    server.define("CREATE STREAM s (a BIGINT)")
    publish(server, 0, BATCHES)
    server.kill()
    damaged = commit(tmp_path / "store", version)
    damaged.unlink() if content is None else damaged.write_bytes(content)
    before = {path: path.stat().st_size for path in (tmp_path / "store").rglob("*")}
    assert message in refusal(tmp_path / "store")
    assert {path: path.stat().st_size for path in (tmp_path / "store").rglob("*")} == before


def test_a_running_server_stops_before_a_hole(tmp_path: Path, start: Start) -> None:
    first, second = start(), start()
    first.define("CREATE STREAM s (a BIGINT)")
    handle = first.register("SELECT a FROM s").handle
    publish(first, 0, 4)
    assert second.values(handle, least_position=first.invoke(handle)[0].position) == [
        [n] for n in range(4)
    ]
    kill(second.pid, signal.SIGSTOP)
    publish(first, 4, 9)
    lost = commit(tmp_path / "store", 7)
    content = lost.read_bytes()
    lost.unlink()
    kill(second.pid, signal.SIGCONT)
    with pytest.raises(grpc.RpcError) as refused:
        second.publish("s", numbers(0), publisher="q", sequence=1)
    assert refused.value.code() == grpc.StatusCode.DATA_LOSS
    assert detail(refused.value).reason == "CORRUPT_STORE"
    assert second.values(handle) == [[n] for n in range(4)]
    lost.write_bytes(content)
    second.publish("s", numbers(9), publisher="p", sequence=10)
    assert second.values(handle) == [[n] for n in range(10)]
