"""What fails during a life. Each fault is over when its function returns."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from tests.system.processes import Process
from tests.torture.world import World

Fault = Callable[[World, Random], None]


def _kill_or_stop(dice: Random) -> Callable[[Process], object]:
    return Process.kill if dice.random() < 0.6 else Process.stop


def end_server(world: World, dice: Random) -> None:
    """One server is killed, or told to end, and started again."""
    world.restart_server(dice.randrange(len(world.targets)), _kill_or_stop(dice), {})


def end_engine(world: World, dice: Random) -> None:
    """The engine is killed, perhaps while it starts, and started again."""
    world.restart_engine(_kill_or_stop(dice))
    if dice.random() < 0.7:
        world.engine.wait_for("engine ready")


def freeze(world: World, dice: Random) -> None:
    """A process stands still for a while, as on a laptop that sleeps."""
    process = dice.choice(world.processes())
    if process.alive:
        with world.frozen(process):
            time.sleep(dice.uniform(0.3, 3.0))


def fill_disk(world: World, dice: Random) -> None:
    """For a moment nothing can be written."""
    with world.full_disk():
        time.sleep(dice.uniform(0.2, 2.0))


FAULTS: dict[str, Fault] = {
    "end a server": end_server,
    "end the engine": end_engine,
    "freeze": freeze,
    "fill the disk": fill_disk,
}
