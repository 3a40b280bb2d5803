"""psoup repair: what is damaged in a store on this machine, and what an operator says about it."""

from __future__ import annotations

from pathlib import Path

import click

from psoup.cli.output import note
from psoup.cli.problems import refuse
from psoup.cli.serve import require


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--clock",
    is_flag=True,
    help="Take back stamps past this machine's clock. Servers and engine must be stopped.",
)
@click.option("--yes", is_flag=True, help="Don't ask before stamps are taken back.")
def repair(store: Path, clock: bool, yes: bool) -> None:
    """Look for damage in the store in this folder; servers and the engine may run meanwhile.

    Every file that the log and the newest epoch name is read. Without an option nothing is written.

    With --clock the jumps of a wrong clock are taken back, which `psoup clock` shows: every stamp
    past the clock of this machine is set to that clock, and what the jump had hidden is there
    again. Positions of before are refused then, and clients get their next answers whole. Make sure
    that this machine's clock is right, and keep a back-up of the folder. Where it was killed, run
    it again: until it has ended nothing else opens the store.

    \b
    psoup repair ./store
    psoup repair ./store --clock
    """
    require("server")
    if clock:
        _take_back(store, yes)
        return
    from psoup.store import Store, StoreError
    from psoup.store.inspection import damage

    try:
        found = list(damage(Store.open(store)))
    except StoreError as error:
        refuse(str(error))
    for one in found:
        click.echo(one)
    if found:
        refuse(f"{len(found)} files are damaged")
    note("no damage")


def _take_back(store: Path, yes: bool) -> None:
    from datastem.instants import format_instant
    from psoup.engine.errors import EngineError
    from psoup.engine.reclock import repair_clock
    from psoup.server.timepiece import this_machine
    from psoup.store import StoreError

    now = this_machine().wall()

    def allow(last: int) -> bool:
        note(f"last stamp: {format_instant(last)}; this machine's clock: {format_instant(now)}")
        return yes or click.confirm("Set every stamp past this clock to it?")

    try:
        done = repair_clock(store.absolute(), now, allow)
    except (StoreError, EngineError) as error:
        refuse(str(error))
    note("done; start the servers and the engine" if done else "nothing was changed")
