"""The processes of a life: servers at fixed addresses and one engine, ended and started again.

Each server has a separate clock, which can be set wrong while it runs. Writes of the processes are
recorded, so that a power cut can undo what was not synced.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from client_sdk import Client
from psoup.store import LogTrimmed, Store
from psoup.store.log.position import PositionCodec
from psoup.write.timepiece import VARIABLE as CLOCK_FILE
from tests.power.disk import Recording
from tests.power.recorder import Journal, environment
from tests.support.system.processes import Process, RunningStore
from tests.torture.actors import Actor
from tests.torture.ledger import Ledger

SWITCHES = "PSOUP_TORTURE_SWITCHES"
_INSIDE = Path(__file__).parent / "inside"
_READY = r"server ready on (\S+)"


class World:
    """Leaving the context kills what still runs. `targets` never change once they are known;
    `actors` use the store, and `ledger` has its acknowledgements and answers."""

    def __init__(self, folder: Path, servers: int, ledger: Ledger) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.targets: list[str] = []
        self._switches = folder / "switches"
        self._switches.mkdir(exist_ok=True)
        self._variables = self._environment()
        self.running = RunningStore(
            folder, environment=self._variables, engine_module="tests.torture.engine"
        )
        self.ledger = ledger
        self.actors: list[Actor] = []
        self._servers: list[Process] = []
        for place in range(servers):
            self.set_clock(place, 0)
            process = self._server(place, 0)
            self._servers.append(process)
            self.targets.append(process.wait_for(_READY)[1])
        self.positions = PositionCodec(Store.open(self.store).identity)
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

    @property
    def servers(self) -> Sequence[Process]:
        return self._servers

    def processes(self) -> list[Process]:
        return [*self._servers, self.engine]

    def _environment(self) -> dict[str, str]:
        recorded = environment(self.store, self.folder / "journal")
        path = os.pathsep.join([str(_INSIDE), recorded["PYTHONPATH"]])
        return recorded | {"PYTHONPATH": path, SWITCHES: str(self._switches)}

    # ---- servers

    def restart_server(self, place: int, end: Callable[[Process], object]) -> None:
        """End the server by `end`, and start it at the same address."""
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
        """Set the clock of a server `seconds` ahead of the machine's."""
        draft = self._clock(place).with_suffix(".new")
        draft.write_text(str(seconds))
        draft.replace(self._clock(place))

    def _clock(self, place: int) -> Path:
        return self.folder / f"clock-{place}"

    def newest_stamp(self) -> int:
        """Return the last stamp of the log, in microseconds."""
        store = Store.open(self.store)
        while True:
            # The engine may drop commits while they are read here.
            with contextlib.suppress(LogTrimmed):
                _, epoch = store.epochs.latest()
                return store.log.last_stamp(epoch, store.log.latest_version() + 1)

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

    def run(self, module: str, *arguments: str) -> None:
        """Run a module to its end as a process of the store, so that what it writes is recorded."""
        variables = {**os.environ, **self._variables}
        subprocess.run([sys.executable, "-m", module, *arguments], env=variables, check=True)

    @contextlib.contextmanager
    def switched_on(self, fault: str) -> Iterator[None]:
        """Switch on a fault of inside/sitecustomize.py in the store's processes, within the
        context."""
        switch = self._switches / fault
        switch.touch()
        try:
            yield
        finally:
            switch.unlink()

    def cut_power(self, dice: Random) -> None:
        """End every process, undo what was not synced, and start all again."""
        journal = self.folder / "journal"
        for process in self.processes():
            process.kill()
        recording = Recording(journal)
        remains = self.folder / "left"
        recording.restore(len(recording), remains, dice)
        for folder in (self.store, journal):
            shutil.rmtree(folder)
        remains.rename(self.store)
        self._adopt()
        self.start()

    def _adopt(self) -> None:
        """Begin a journal with the current content of the store."""
        journal = self.folder / "journal"
        environment(self.store, journal)
        with contextlib.closing(Journal(self.store, journal)) as notes:
            notes.adopt()

    def back_up(self) -> int:
        """Copy the store as it is at one instant; return the last version of its log."""
        back_up = self.folder / "back-up"
        shutil.rmtree(back_up, ignore_errors=True)
        with contextlib.ExitStack() as stack:
            for process in self.processes():
                stack.enter_context(frozen(process))
            shutil.copytree(self.store, back_up)
        return Store(back_up).log.latest_version()

    def restore(self) -> None:
        """End every process, replace the store by the back-up, and start all again."""
        for process in self.processes():
            process.kill()
        for folder in (self.store, self.folder / "journal"):
            shutil.rmtree(folder)
        (self.folder / "back-up").rename(self.store)
        self._adopt()
        self.start()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Keep all actors between two steps, within the context."""
        with contextlib.ExitStack() as stack:
            for actor in self.actors:
                stack.enter_context(actor.stepping)
            yield

    def start(self) -> None:
        """Start servers and engine, none of which may run; don't wait for the engine."""
        for place in range(len(self._servers)):
            self.restart_server(place, lambda process: None)
        self.start_engine(ready=False)

    def settle(self) -> None:
        """End every process, start all with right clocks, and wait for the engine."""
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
    """Stop the process, within the context."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)
