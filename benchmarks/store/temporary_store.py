"""A temporary store to measure: a folder, a server and an engine, removed afterwards."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from client_sdk import Client, PsoupError
from psoup.cli.problems import refuse
from psoup.cli.serve import address, command, require
from psoup.processes import Child

START_SECONDS = 300.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.05
_KEPT_LINES = 30


@dataclass(frozen=True, slots=True)
class TemporaryStore:
    """A running store. `engine` is None if it runs without one."""

    target: str
    server: Child
    engine: Child | None


@contextmanager
def temporary_store(engine: bool, master: str | None) -> Iterator[TemporaryStore]:
    """Start a store and wait until it is ready; stop and remove it in the end, in any case."""
    require("server")
    if engine:
        require("engine")
    output = _ChildOutput()
    host, port = address("127.0.0.1:0")
    target = f"{host}:{port}"
    with tempfile.TemporaryDirectory(prefix="psoup-bench-", ignore_cleanup_errors=True) as folder:
        store = Path(folder) / "store"
        options = ["--master", master] if master else []
        # Spark leaves files if it is killed: these are removed with the folder.
        scratch = {"TMPDIR": folder}
        server = Child("server", command("server", store, "--port", str(port)), output)
        spark = None
        if engine:
            spark = Child("engine", command("engine", store, *options), output, scratch)
        try:
            server.start()
            _wait_for_server(target, server, output)
            if spark is not None:
                spark.start()
                output.wait_for("engine ready", spark)
            yield TemporaryStore(target, server, spark)
        finally:
            for child in (spark, server):
                if child is not None:
                    child.stop(STOP_SECONDS)


def _wait_for_server(target: str, server: Child, output: _ChildOutput) -> None:
    deadline = time.monotonic() + START_SECONDS
    with Client(target, timeout=1.0) as client:
        while time.monotonic() < deadline and server.ended() is None:
            try:
                client.status()
            except PsoupError:
                time.sleep(POLL_SECONDS)
            else:
                return
    refuse(f"the server did not start:\n{output.last()}")


class _ChildOutput:
    """Keeps the last lines that the child processes print, for error messages."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._changed = threading.Condition()

    def __call__(self, name: str, line: str) -> None:
        with self._changed:
            self._lines.append(f"  {name} | {line}")
            self._changed.notify_all()

    def last(self) -> str:
        with self._changed:
            return "\n".join(self._lines)

    def wait_for(self, text: str, child: Child) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and child.ended() is None:
            with self._changed:
                if any(line.endswith(text) for line in self._lines):
                    return
                self._changed.wait(0.5)
        refuse(f"the {child.name} did not start:\n{self.last()}")
