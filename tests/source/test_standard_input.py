"""psoup publish STREAM - as a process: rows are there before the input ends; Ctrl-C is clean."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.source.conftest import Sources

pytestmark = pytest.mark.process


def publishing(sources: Sources, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "psoup.cli", "--target", sources.target]
    command += ["--tenant", sources.tenant, "publish", "s", *options]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )


def test_rows_are_there_before_the_input_ends_and_a_run_is_continued(sources: Sources) -> None:
    client = sources.client
    client.define("CREATE STREAM s (k BIGINT)")
    options = ["-", "--format", "jsonl", "--publisher", "meter"]
    first = publishing(sources, *options)
    assert first.stdin is not None and first.stderr is not None
    first.stdin.write(b'{"k": 0}\n{"k": 1}\n{"k')
    sources.wait_for(lambda: client.stream("s").row_count == 2)
    first.send_signal(signal.SIGINT)
    assert first.wait(60) == 130
    assert "2 rows in s" in first.stderr.read().decode()
    first.stderr.close()
    first.stdin.close()
    second = publishing(sources, *options)
    lines = b"".join(b'{"k": %d}\n' % number for number in range(5))
    _, errors = second.communicate(lines)
    assert second.returncode == 0, errors
    assert [row["k"] for row in client.ask("SELECT k FROM s ORDER BY k")] == list(range(5))


@pytest.mark.long
def test_endless_input_takes_little_memory(sources: Sources) -> None:
    sources.client.define("CREATE STREAM s (k BIGINT, v TEXT)")
    process = publishing(sources, "-", "--format", "csv")
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(b"k,v\n")
    block = b"".join(b"%d,%s\n" % (number, b"x" * 90) for number in range(10_000))
    sizes = []
    for _ in range(150):
        process.stdin.write(block)
        status = Path(f"/proc/{process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        sizes.append(int(line.split()[1]))
    process.stdin.close()
    assert process.wait(120) == 0
    process.stderr.close()
    assert sources.client.stream("s").row_count == 1_500_000
    # 150 MB went through; what is held is a few batches.
    assert max(sizes[50:]) < max(sizes[:50]) * 1.3


@pytest.mark.long
def test_a_followed_file_is_published_once_through_rotation_and_kills(sources: Sources) -> None:
    client, path = sources.client, sources.folder / "log.jsonl"
    client.define("CREATE STREAM s (k BIGINT)")
    count = 0
    process = sources.psoup("publish", "s", str(path), "--follow")
    for turn in range(6):
        with path.open("a") as file:
            for _ in range(400):
                file.write(f'{{"k": {count}}}\n')
                file.flush()
                count += 1
        if turn % 2:
            os.rename(path, path.with_name(f"log.jsonl.{turn}"))
        sources.wait_for(lambda: client.stream("s").row_count > 0)
        process.kill()
        process = sources.psoup("publish", "s", str(path), "--follow")
        time.sleep(0.3)
    path.touch()
    sources.wait_for(lambda: client.stream("s").row_count >= count)
    assert [row["k"] for row in client.ask("SELECT k FROM s ORDER BY k")] == list(range(count))
    assert process.stop() == 143
