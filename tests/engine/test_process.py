"""The engine as a separate process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from psoup.engine.spark.session import make_scratch
from psoup.store import Store
from tests.support.engine.author import READINGS, Author, above, readings
from tests.support.engine.reading import matched

pytestmark = [pytest.mark.spark, pytest.mark.process]

ROOT = Path(__file__).parents[2]
PATIENCE = 150.0


def spawn(store: Store, output: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "psoup.engine", "--store", str(store.root)]
    with output.open("wb") as sink:
        return subprocess.Popen(
            [*command, "--master", "local[2]"],
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )


@pytest.fixture
def engine(store: Store, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    output = tmp_path / "engine.log"
    process = spawn(store, output)
    deadline = time.monotonic() + PATIENCE
    while "engine ready" not in output.read_text():
        assert process.poll() is None and time.monotonic() < deadline, output.read_text()
        time.sleep(0.05)
    yield process
    process.kill()
    process.wait()


def test_what_a_killed_engine_left_is_removed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "from psoup.engine.spark.session import make_scratch; print(make_scratch('{}'), flush=True)"
    )
    leftover, of_another = (_run(code.format(store), tmp_path) for store in ("one", "two"))
    scratch = make_scratch("one")
    assert make_scratch("one").is_dir() and scratch.is_dir() and of_another.is_dir()
    assert not leftover.exists()


def _run(code: str, folder: Path) -> Path:
    """Return what a process that has ended printed."""
    environment = os.environ | {"TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    return Path(done.stdout.strip())


def test_an_engine_ends_with_its_standard_input(store: Store) -> None:
    command = [sys.executable, "-m", "psoup.engine", "--store", str(store.root)]
    options = ["--master", "local[1]", "--end-with-stdin"]
    ended = subprocess.run([*command, *options], cwd=ROOT, stdin=subprocess.DEVNULL)
    assert ended.returncode == 0


@pytest.mark.timeout(900)
def test_it_works_refuses_a_second_one_and_ends_cleanly(
    store: Store,
    author: Author,
    engine: subprocess.Popen[bytes],
    tmp_path: Path,
) -> None:
    stream = author.create(READINGS)
    _, predicate = author.register(stream, above(1.0))
    position = author.publish(stream, readings([1, 2], [1.0, 2.0]))
    deadline = time.monotonic() + PATIENCE
    while store.epochs.latest()[1].position < position:
        assert engine.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    assert matched(store, predicate) == [1]
    second = spawn(store, tmp_path / "second.log")
    assert second.wait(PATIENCE) == 1
    assert f"(process {engine.pid} on " in (tmp_path / "second.log").read_text()
    engine.send_signal(signal.SIGINT)
    assert engine.wait(PATIENCE) == 0


def test_spark_takes_messages_only_from_its_own(spark) -> None:
    assert spark.sparkContext.getConf().get("spark.authenticate") == "true"
