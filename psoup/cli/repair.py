"""psoup repair: what is damaged in a store on this machine, and what an operator says about it."""

from __future__ import annotations

from pathlib import Path

import click

from psoup.cli.output import echo, note
from psoup.cli.problems import refuse
from psoup.cli.serve import require
from psoup.umask import set_umask


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--accept",
    is_flag=True,
    help="Accept that the lost rows are lost: answers go on without them, and say so. This can't "
    "be taken back.",
)
@click.option(
    "--clock",
    is_flag=True,
    help="Take back stamps past this machine's clock. Servers and engine must be stopped.",
)
@click.option(
    "--release",
    metavar="NAME",
    multiple=True,
    help="Let the engine try again what it has in quarantine, by the name that is listed, or "
    "`all`. May be repeated.",
)
@click.option("--yes", is_flag=True, help="Don't ask before stamps are taken back.")
def repair(store: Path, accept: bool, clock: bool, release: tuple[str, ...], yes: bool) -> None:
    """Look for damage in the store in this folder; servers and the engine may run meanwhile.

    Every file that the log and the newest epoch name is read. Without an option nothing is written.
    What is derived (matches, coverage, closures) a running engine makes anew by itself. A file that
    is put back from a back-up, under its name, is as good as new. For rows that can't be had back
    there is --accept: until then every answer that would need them fails.

    Lines that begin with QUARANTINE name conditions and joins that the engine has set aside because
    they fail: answers do without the engine there, and a row policy shows nothing. They are no
    damage. With --release the engine tries them again.

    With --clock the jumps of a wrong clock are taken back, which `psoup clock` shows: every stamp
    past the clock of this machine is set to that clock, and what the jump had hidden is there
    again. Positions of before are refused then, and clients get their next answers whole. Make sure
    that this machine's clock is right, and keep a back-up of the folder. Where it was killed, run
    it again: until it has ended nothing else opens the store.

    \b
    psoup repair ./store
    psoup repair ./store --accept
    psoup repair ./store --release all
    psoup repair ./store --clock
    """
    require("server")
    set_umask(store=store)
    if clock:
        _take_back(store, yes)
    elif release:
        _release(store, release)
    else:
        _look(store, accept)


def _look(store: Path, accept: bool) -> None:
    from psoup.store import Store, StoreError, inspection
    from psoup.store.state.quarantine import COMPOSITE

    try:
        opened = Store.open(store)
        found = list(inspection.damage(opened))
        losses = inspection.losses(opened)
        quarantine = inspection.quarantine(opened)
    except StoreError as error:
        refuse(f"{error}\n  Restore the damaged file from a back-up, under its name.")
    for one in found:
        echo(one.problem)
    for hole in losses.holes:
        text = hole.text(f"number {hole.stream_id}")
        echo(f"given up: {text}" if losses.is_accepted(hole) else f"LOST: {text}")
    for entry in quarantine.entries:
        where = "" if entry.kind == COMPOSITE else f" of stream number {entry.stream_id}"
        echo(f"QUARANTINE: {entry.name}{where}: {entry.reason}")
    lost = {one.rows for one in found if one.rows} | {hole.rows for hole in losses.holes}
    lost = {rows for rows in lost if not any(one.contains(rows) for one in losses.accepted)}
    if accept and lost:
        inspection.accept(opened, sorted(lost))
        note(f"{sum(one.row_hi - one.row_lo for one in lost):,} rows are given up")
    elif lost or any(one.rows is None for one in found):
        refuse("the store is damaged; `psoup repair --help` says what can be done")
    else:
        note("no other damage" if losses.accepted else "no damage")


def _release(store: Path, names: tuple[str, ...]) -> None:
    from psoup.store import Store, StoreError, inspection

    try:
        opened = Store.open(store)
        known = [one.name for one in inspection.quarantine(opened).entries]
        chosen = known if "all" in names else list(dict.fromkeys(names))
        unknown = [name for name in chosen if name not in known]
        if unknown:
            refuse(f"not in quarantine: {', '.join(unknown)}; `psoup repair {store}` lists what is")
        if chosen:
            inspection.release(opened, chosen)
    except StoreError as error:
        refuse(str(error))
    note(f"released: {', '.join(chosen)}; the engine tries it again" if chosen else "nothing to do")


def _take_back(store: Path, yes: bool) -> None:
    from datastem.instants import format_instant
    from psoup.engine.errors import EngineError
    from psoup.engine.reclock import repair_clock
    from psoup.store import StoreError
    from psoup.write.timepiece import this_machine

    now = this_machine().wall()

    def allow(last: int) -> bool:
        note(f"last stamp: {format_instant(last)}; this machine's clock: {format_instant(now)}")
        return yes or click.confirm("Set every stamp past this clock to it?")

    try:
        done = repair_clock(store.absolute(), now, allow)
    except (StoreError, EngineError) as error:
        refuse(str(error))
    note("done; start the servers and the engine" if done else "nothing was changed")
