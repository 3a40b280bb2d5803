"""A store of one's own for as long as it is needed: a temporary folder, a server, an engine."""

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
from psoup.cli.processes import Child
from psoup.cli.serve import address, command, require

START_SECONDS = 300.0
STOP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class OwnStore:
    """`engine` None: there is none."""

    target: str
    server: Child
    engine: Child | None


@contextmanager
def own_store(engine: bool, master: str | None) -> Iterator[OwnStore]:
    """Up and ready; ended and removed afterwards, however it ends."""
    require("server")
    if engine:
        require("engine")
    heard = _Heard()
    host, port = address("127.0.0.1:0")
    target = f"{host}:{port}"
    with tempfile.TemporaryDirectory(prefix="psoup-bench-", ignore_cleanup_errors=True) as folder:
        store = Path(folder) / "store"
        options = ["--master", master] if master else []
        # What Spark leaves where it is killed goes with the folder.
        scratch = {"TMPDIR": folder}
        server = Child("server", command("server", store, "--port", str(port)), heard)
        spark = None
        if engine:
            spark = Child("engine", command("engine", store, *options), heard, scratch)
        try:
            server.start()
            _wait_for_server(target, server, heard)
            if spark is not None:
                spark.start()
                heard.wait_for("engine ready", spark)
            yield OwnStore(target, server, spark)
        finally:
            for child in (spark, server):
                if child is not None:
                    child.stop(STOP_SECONDS)


def _wait_for_server(target: str, server: Child, heard: _Heard) -> None:
    deadline = time.monotonic() + START_SECONDS
    with Client(target, timeout=1.0) as client:
        while time.monotonic() < deadline and server.ended() is None:
            try:
                client.status()
            except PsoupError:
                time.sleep(0.05)
            else:
                return
    refuse(f"the server did not start:\n{heard.last()}")


class _Heard:
    """Keeps what the children say, in case it is needed."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=30)
        self._news = threading.Condition()

    def __call__(self, name: str, line: str) -> None:
        with self._news:
            self._lines.append(f"  {name} | {line}")
            self._news.notify_all()

    def last(self) -> str:
        with self._news:
            return "\n".join(self._lines)

    def wait_for(self, text: str, child: Child) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and child.ended() is None:
            with self._news:
                if any(line.endswith(text) for line in self._lines):
                    return
                self._news.wait(0.5)
        refuse(f"the {child.name} did not start:\n{self.last()}")
