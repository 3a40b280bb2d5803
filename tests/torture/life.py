"""One life of a store: a start, faults for the requested time, an end, the proof."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

from client_sdk import Client
from tests.system.test_open_state import Tables
from tests.torture.actors import Actor, Publishing, Registering, Travelling
from tests.torture.faults import FAULTS, Fault
from tests.torture.judging import judge
from tests.torture.ledger import Ledger
from tests.torture.workload import DEFINITIONS
from tests.torture.world import World

Say = Callable[[str], None]

_PUBLISHERS = 3
_REGISTRARS = 3
_TRAVELLERS = 2


@dataclass(frozen=True)
class Life:
    """A life. The seed determines rows, queries and faults, but not when they happen.

    It lasts for some seconds, and until there were at least `least_faults`: on a busy machine each
    may take long.
    """

    folder: Path
    seed: int
    seconds: float
    servers: int = 2
    least_faults: int = 1
    faults: tuple[str, ...] = tuple(FAULTS)

    def run(self, say: Say) -> Counter[str]:
        """Run the life; return counts of what was done. Raise AssertionError, with the seed, if a
        proof fails."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ledger = Ledger()
        try:
            with World(self.folder, self.servers, ledger) as world:
                self._live(world, ledger, say)
                world.settle()
                with Client(world.targets[0]) as client:
                    say(f"judging {len(ledger.answers)} answers")
                    judge(client, ledger, Tables(world.running.store))
        except Exception as problem:
            raise AssertionError(f"seed {self.seed}, {self.folder}: {problem}") from problem
        ledger.tally["answers judged"] = len(ledger.answers)
        return ledger.tally

    def _live(self, world: World, ledger: Ledger, say: Say) -> None:
        with Client(world.targets[0]) as client:
            for sql in DEFINITIONS.values():
                client.define(sql)
        actors = world.actors = self._actors(world, ledger)
        ending = threading.Event()
        with ThreadPoolExecutor(len(actors)) as pool:
            running = [pool.submit(actor.run, ending) for actor in actors]
            try:
                self._fail(world, ledger, running, say)
            finally:
                ending.set()
            for future in running:
                future.result()
        for actor in actors:
            actor.finish()
            actor.close()

    def _actors(self, world: World, ledger: Ledger) -> list[Actor]:
        common = self.seed, world.targets, ledger, world.positions
        return [
            *(Publishing(f"p{n}", *common) for n in range(_PUBLISHERS)),
            *(Registering(f"r{n}", *common) for n in range(_REGISTRARS)),
            *(Travelling(f"t{n}", *common, self.folder / f"t{n}.db") for n in range(_TRAVELLERS)),
        ]

    def _fail(self, world: World, ledger: Ledger, running: list[Future[None]], say: Say) -> None:
        dice = Random(self.seed)
        end = time.monotonic() + self.seconds
        count = 0
        while count < self.least_faults or time.monotonic() < end:
            count += 1
            time.sleep(dice.uniform(0.2, 2.0))
            name = dice.choice(self.faults)
            say(f"{name}, after {ledger.tally['rows']} rows and {len(ledger.answers)} answers")
            fault: Fault = FAULTS[name]
            fault(world, dice)
            ledger.count(f"fault: {name}")
            for future in running:
                if future.done():
                    future.result()
