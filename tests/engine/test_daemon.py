"""The parent of the Python workers, spoken to as Spark does, without a JVM."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


class Daemon:
    def __init__(self, module: str, folder: str) -> None:
        environment = os.environ | {
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": folder,
            "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
            "SPARK_REUSE_WORKER": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, "pyspark.worker"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        (length,) = struct.unpack(">i", self._process.stdout.read(4))
        self._path = self._process.stdout.read(length).decode()

    @property
    def threads(self) -> list[str]:
        """The names of the daemon's threads; libraries start some that Python does not list."""
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return [(task / "comm").read_text().strip() for task in tasks]

    def worker(self) -> tuple[socket.socket, int]:
        """A worker that waits for its first task, and its process id."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(PATIENCE)
        sock.connect(self._path)
        (pid,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
        return sock, pid

    def end(self) -> str:
        """Return what the daemon and its workers have printed."""
        _, errors = self._process.communicate(timeout=PATIENCE)
        return errors.decode()


@pytest.fixture
def folder() -> Iterator[str]:
    """A short name: that of a socket has to fit a hundred bytes."""
    with tempfile.TemporaryDirectory() as path:
        yield path


def cut_off(sock: socket.socket, pid: int) -> None:
    """Close a worker's socket and wait until the worker has ended."""
    handle = os.pidfd_open(pid)
    sock.close()
    assert select.select([handle], [], [], PATIENCE)[0], "the worker goes on"
    os.close(handle)


@pytest.mark.process
def test_an_idle_worker_that_is_let_go_ends_without_a_word(folder: str) -> None:
    daemon = Daemon("psoup.engine.daemon", folder)
    cut_off(*daemon.worker())
    assert daemon.end() == ""


@pytest.mark.process
def test_a_worker_that_is_cut_off_within_a_task_still_says_so(folder: str) -> None:
    daemon = Daemon("psoup.engine.daemon", folder)
    sock, pid = daemon.worker()
    sock.sendall(b"\0")
    cut_off(sock, pid)
    assert "BrokenPipeError" in daemon.end()


@pytest.mark.process
def test_a_worker_is_forked_with_the_engine_s_modules_and_from_a_single_thread(folder: str) -> None:
    daemon = Daemon("psoup.engine.daemon", folder)
    assert len(daemon.threads) == 1, daemon.threads
    sock, pid = daemon.worker()
    # It has run no task yet: what is mapped was mapped before the fork.
    mapped = Path(f"/proc/{pid}/maps").read_text()
    for library in ("libarrow", "_multiarray_umath", "deltalake", "pandas"):
        assert library in mapped
    cut_off(sock, pid)
    assert len(daemon.threads) == 1, daemon.threads
    assert daemon.end() == ""


@pytest.mark.process
def test_what_is_preloaded_has_every_module_that_tasks_name() -> None:
    code = "import sys\nfrom psoup.engine.daemon import preload\npreload()\nprint(*sys.modules)\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    modules = set(done.stdout.split())
    sources = (ROOT / "psoup" / "engine").rglob("*.py")
    running = [path for path in sources if "run_tasks(" in path.read_text()]
    assert len(running) > 3
    for path in running:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        assert name in modules, f"{name} runs tasks, and a new worker would have to import it"


@pytest.mark.spark
def test_the_engine_s_session_uses_it(spark: SparkSession) -> None:
    assert spark.conf.get("spark.python.daemon.module") == "psoup.engine.daemon"
    pids = spark.sparkContext.parallelize(range(2), 2).map(lambda _: os.getppid()).collect()
    command = Path(f"/proc/{pids[0]}/cmdline").read_bytes().split(b"\0")
    assert b"psoup.engine.daemon" in command
