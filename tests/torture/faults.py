"""What fails during a life. Each fault is over when its function returns."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.support.system.processes import Process
from tests.torture.world import World, frozen

Fault = Callable[[World, Random], None]

_DAY = 24 * 3600
# From a clock nobody notices to one that is past every lease and retention.
_CLOCK_STEPS = (30, 3 * 3600, _DAY, 40 * _DAY, -3600)
# Tables that can be computed again from the rows and the log.
_DERIVED = ("matches", "coverage", "closures")


def _kill_or_stop(dice: Random) -> Callable[[Process], object]:
    return Process.kill if dice.random() < 0.6 else Process.stop


def end_server(world: World, dice: Random) -> None:
    """One server is killed, or told to end, and started again."""
    world.restart_server(dice.randrange(len(world.targets)), _kill_or_stop(dice))


def end_engine(world: World, dice: Random) -> None:
    """The engine is killed, perhaps while it starts, and started again."""
    world.restart_engine(_kill_or_stop(dice))
    if dice.random() < 0.7:
        world.engine.wait_for("engine ready")


def freeze(world: World, dice: Random) -> None:
    """A process stands still for a while, as on a laptop that sleeps."""
    with frozen(dice.choice(world.processes())):
        time.sleep(dice.uniform(0.3, 3.0))


def fill_disk(world: World, dice: Random) -> None:
    """For a moment nothing can be written."""
    with world.full_disk():
        time.sleep(dice.uniform(0.2, 2.0))


def step_clock(world: World, dice: Random) -> None:
    """The clock of a server is wrong for a while, and the server perhaps the only one."""
    place = dice.randrange(len(world.targets))
    world.set_clock(place, dice.choice(_CLOCK_STEPS))
    if dice.random() < 0.5:
        world.restart_server(place, Process.kill)
    time.sleep(dice.uniform(0.5, 3.0))
    world.set_clock(place, 0)


def flip_bit(world: World, dice: Random) -> None:
    """A bit of a derived file turns over, for good."""
    files = [file for table in _DERIVED for file in (world.store / table).rglob("*.parquet")]
    if files:
        flip(dice.choice(sorted(files)), dice)


def flip(file: Path, dice: Random) -> None:
    """Turns one bit over; a file that is deleted meanwhile is left alone."""
    try:
        with file.open("r+b") as handle:
            content = handle.read()
            place = dice.randrange(len(content))
            handle.seek(place)
            handle.write(bytes([content[place] ^ 1 << dice.randrange(8)]))
    except FileNotFoundError:
        return


def cut_power(world: World, dice: Random) -> None:
    """Every process ends at once, and the disk keeps only what was synced."""
    world.cut_power(dice)


FAULTS: dict[str, Fault] = {
    "end a server": end_server,
    "end the engine": end_engine,
    "freeze": freeze,
    "fill the disk": fill_disk,
    "step a clock": step_clock,
    "flip a bit": flip_bit,
    "cut the power": cut_power,
}
