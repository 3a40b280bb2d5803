"""The processes of a life: servers at fixed addresses and one engine, ended and started again."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from client_sdk import Client
from psoup.store import Store
from tests.system.processes import Process, RunningStore

FULL_DISK = "PSOUP_TORTURE_FULL_DISK"
_INSIDE = Path(__file__).parent / "inside"
_READY = r"server ready on (\S+)"


class World:
    """Leaving the context kills what still runs. `targets` never change once they are known."""

    def __init__(self, folder: Path, servers: int) -> None:
        self.running = RunningStore(folder)
        self.folder = folder
        self.targets: list[str] = []
        self._full = folder / "full-disk"
        self._environment = {"PYTHONPATH": str(_INSIDE), FULL_DISK: str(self._full)}
        self._servers: list[Process] = []
        for _ in range(servers):
            process = self._server(0, {})
            self._servers.append(process)
            self.targets.append(process.wait_for(_READY)[1])
        self.positions = Store.open(self.running.store).positions
        self.start_engine()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes():
            process.kill()

    def processes(self) -> list[Process]:
        engine = self.running.engine
        return [*self._servers, *([engine] if engine else [])]

    # ---- servers

    def restart_server(
        self, place: int, end: Callable[[Process], object], environment: dict[str, str]
    ) -> None:
        """Ends the server by `end`, and starts it where it was, with another environment."""
        end(self._servers[place])
        port = int(self.targets[place].rpartition(":")[2])
        self._servers[place] = self._server(port, environment)
        self._servers[place].wait_for(_READY)

    def _server(self, port: int, environment: dict[str, str]) -> Process:
        arguments = ["-m", "psoup.server", "--store", str(self.running.store), "--port", str(port)]
        output = self.folder / f"server-{port}.log"
        return Process(arguments, output, environment=self._environment | environment)

    # ---- the engine

    def start_engine(self, ready: bool = True) -> None:
        self.running.start_engine(ready=ready, environment=self._environment)

    def restart_engine(self, end: Callable[[Process], object]) -> None:
        assert self.running.engine is not None
        end(self.running.engine)
        self.start_engine(ready=False)

    # ---- everything

    def frozen(self, process: Process) -> contextlib.AbstractContextManager[None]:
        return _frozen(process.pid)

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """Every write of the store's processes fails inside."""
        self._full.touch()
        try:
            yield
        finally:
            self._full.unlink()

    def server(self, place: int) -> Process:
        return self._servers[place]

    @property
    def engine(self) -> Process:
        assert self.running.engine is not None
        return self.running.engine

    def settle(self) -> None:
        """Ends every process, starts all with a right clock, and waits for the engine."""
        for process in self.processes():
            process.kill()
        for place in range(len(self._servers)):
            self.restart_server(place, lambda _: None, {})
        self.start_engine()
        with Client(self.targets[0]) as client:
            self.running.wait_until_matched(client)


@contextlib.contextmanager
def _frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
