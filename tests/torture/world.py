"""The processes of a life: servers at fixed addresses and one engine, ended and started again.

Each server has a clock of its own, which can be set wrong while it runs. What the processes write
is recorded, so that a power cut can take back what was not synced.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from client_sdk import Client
from psoup.store import Store
from psoup.write.timepiece import VARIABLE as CLOCK_FILE
from tests.power.disk import Recording
from tests.power.recorder import Journal, environment
from tests.support.system.processes import Process, RunningStore

FULL_DISK = "PSOUP_TORTURE_FULL_DISK"
_INSIDE = Path(__file__).parent / "inside"
_READY = r"server ready on (\S+)"


class World:
    """Leaving the context kills what still runs. `targets` never change once they are known."""

    def __init__(self, folder: Path, servers: int) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.targets: list[str] = []
        self._full = folder / "full-disk"
        self._variables = self._environment()
        self.running = RunningStore(folder, environment=self._variables)
        self._servers: list[Process] = []
        for place in range(servers):
            self.set_clock(place, 0)
            process = self._server(place, 0)
            self._servers.append(process)
            self.targets.append(process.wait_for(_READY)[1])
        self.positions = Store.open(self.store).positions
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
        return [*self._servers, self.engine]

    def _environment(self) -> dict[str, str]:
        recorded = environment(self.store, self.folder / "journal")
        path = os.pathsep.join([str(_INSIDE), recorded["PYTHONPATH"]])
        return recorded | {"PYTHONPATH": path, FULL_DISK: str(self._full)}

    # ---- servers

    def restart_server(self, place: int, end: Callable[[Process], object]) -> None:
        """Ends the server by `end`, and starts it where it was."""
        end(self._servers[place])
        port = int(self.targets[place].rpartition(":")[2])
        self._servers[place] = self._server(place, port)
        self._servers[place].wait_for(_READY)

    def _server(self, place: int, port: int) -> Process:
        arguments = ["-m", "psoup.server", "--store", str(self.store), "--port", str(port)]
        variables = self._variables | {CLOCK_FILE: str(self._clock(place))}
        output = self.folder / f"server-{place}.log"
        return Process(arguments, output, environment=variables)

    def set_clock(self, place: int, seconds: float) -> None:
        """Puts the clock of a server so far ahead of the machine's."""
        draft = self._clock(place).with_suffix(".new")
        draft.write_text(str(seconds))
        draft.replace(self._clock(place))

    def _clock(self, place: int) -> Path:
        return self.folder / f"clock-{place}"

    # ---- the engine

    @property
    def engine(self) -> Process:
        assert self.running.engine is not None
        return self.running.engine

    def start_engine(self, ready: bool = True) -> None:
        self.running.start_engine(ready=ready)

    def restart_engine(self, end: Callable[[Process], object]) -> None:
        end(self.engine)
        self.start_engine(ready=False)

    # ---- everything

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """Every write of the store's processes fails inside."""
        self._full.touch()
        try:
            yield
        finally:
            self._full.unlink()

    def cut_power(self, dice: Random) -> None:
        """Ends every process and takes from the disk what was not synced; then all start again."""
        journal = self.folder / "journal"
        for process in self.processes():
            process.kill()
        recording = Recording(journal)
        left = self.folder / "left"
        recording.restore(len(recording), left, dice)
        for gone in (self.store, journal):
            shutil.rmtree(gone)
        left.rename(self.store)
        environment(self.store, journal)
        with contextlib.closing(Journal(self.store, journal)) as notes:
            notes.adopt()
        self.start()

    def start(self) -> None:
        """Starts servers and engine, none of which may run; the engine may be starting after."""
        for place in range(len(self._servers)):
            self.restart_server(place, lambda process: None)
        self.start_engine(ready=False)

    def settle(self) -> None:
        """Ends every process, starts all with right clocks, and waits for the engine."""
        for process in self.processes():
            process.kill()
        for place in range(len(self._servers)):
            self.set_clock(place, 0)
        self.start()
        self.engine.wait_for("engine ready")
        with Client(self.targets[0]) as client:
            self.running.wait_until_matched(client)


@contextlib.contextmanager
def frozen(process: Process) -> Iterator[None]:
    """The process stands still inside."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)
