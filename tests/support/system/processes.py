"""A store run as a user runs it: a server and an engine, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from client_sdk import Client

REPOSITORY = Path(__file__).parents[3]
START_SECONDS = 240.0


class Process:
    """A child process whose output goes to a file that can be waited on."""

    def __init__(
        self,
        arguments: list[str],
        output: Path,
        program: str = sys.executable,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.output = output
        variables = os.environ | {"PYTHONUNBUFFERED": "1"} | dict(environment or {})
        with output.open("ab") as sink:
            self._offset = sink.tell()
            self._process = subprocess.Popen(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                env=variables,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def children(self) -> list[int]:
        """Return the processes this one has started, and those they have."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        descendants = [self.pid]
        for pid in descendants:
            descendants += [child for child, parent in parents.items() if parent == pid]
        return descendants[1:]

    def wait(self, seconds: float = START_SECONDS) -> int:
        """Return the exit code of a process that ends by itself."""
        return self._process.wait(seconds)

    def text(self) -> str:
        """Return what this process has printed so far."""
        return self.output.read_bytes()[self._offset :].decode(errors="replace")

    def wait_for(self, pattern: str, seconds: float = START_SECONDS) -> re.Match[str]:
        """Raise AssertionError with the output if the line does not come."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if match := re.search(pattern, self.text()):
                return match
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} from {self._process.args!r}:\n{self.text()}")

    def kill(self) -> None:
        """Send SIGKILL, so that the process can't clean up."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Send SIGTERM, as a supervisor would; return the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(START_SECONDS)


class RunningStore:
    """Start and end the parts as a test needs; leaving the context ends what still runs."""

    def __init__(
        self,
        folder: Path,
        master: str = "local[2]",
        environment: Mapping[str, str] | None = None,
        engine_module: str = "psoup.engine",
    ) -> None:
        self.folder = folder
        self.environment = environment
        self.engine_module = engine_module
        self.store = folder / "store"
        self.master = master
        self.engine: Process | None = None
        self.servers: list[Process] = []
        self.targets: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in [*self.servers, *([self.engine] if self.engine else [])]:
            process.kill()

    def start_server(self, *options: str, module: str = "psoup.server") -> str:
        """Return the address of one more server; `psoup.web` has a web port as well."""
        output = self.folder / f"server-{len(self.servers)}.log"
        arguments = ["-m", module, "--store", str(self.store), "--port", "0", *options]
        process = Process(arguments, output, environment=self.environment)
        self.servers.append(process)
        target = process.wait_for(r"server ready on (\S+)")[1]
        self.targets.append(target)
        return target

    def start_engine(self, *options: str, ready: bool = True) -> Process:
        arguments = ["-m", self.engine_module, "--store", str(self.store), "--master", self.master]
        output = self.folder / "engine.log"
        self.engine = Process([*arguments, *options], output, environment=self.environment)
        if ready:
            self.engine.wait_for("engine ready")
        return self.engine

    def client(self, server: int = 0) -> Client:
        return Client(self.targets[server])

    def wait_until_matched(self, client: Client, seconds: float = START_SECONDS) -> None:
        """Wait until the engine has consumed the log and finished back-filling."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status = client.status()
            if status.behind_rows == 0 and status.backfill_rows == 0 and self._consumed():
                return
            time.sleep(0.05)
        output = self.engine.text() if self.engine else "no engine"
        raise AssertionError(f"the engine did not catch up: {status}\n{output}")

    def _consumed(self) -> bool:
        from psoup.store import Store

        store = Store.open(self.store)
        _, epoch = store.epochs.latest()
        return all(
            not store.log.read(version, payloads=False)
            for version in range(epoch.log_version + 1, store.log.latest_version(1) + 1)
        )
