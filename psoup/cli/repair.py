"""psoup repair: find damage in a store on this machine, and let an operator act upon it."""

from __future__ import annotations

from pathlib import Path

import click

from psoup.cli.output import counted, echo, note
from psoup.cli.problems import refuse
from psoup.cli.serve import require
from psoup.umask import set_umask


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--accept",
    is_flag=True,
    help="Give up lost rows: answers leave them out, and say so. This can't be undone.",
)
@click.option(
    "--clock",
    is_flag=True,
    help="Set stamps past this machine's clock to it. Stop servers and engine first.",
)
@click.option(
    "--release",
    metavar="NAME",
    multiple=True,
    help="Let the engine retry what it has in quarantine: a listed name, or `all`. May be "
    "repeated.",
)
@click.option("--yes", is_flag=True, help="Do not ask before stamps are changed.")
def repair(store: Path, accept: bool, clock: bool, release: tuple[str, ...], yes: bool) -> None:
    """Look for damage in the store in this folder, also while servers and the engine run.

    Reads every file that the log and the newest epoch name. Without an option it writes nothing.
    A running engine derives damaged matches, coverage and closures again. A damaged file can be
    restored from a back-up, under its name. Answers that need lost rows fail, until the file is
    restored or --accept gives the rows up.

    Lines that begin with QUARANTINE name conditions and joins that the engine has put aside because
    they fail. Servers compute answers without the engine there, and a row policy in quarantine
    shows nothing. This is not damage. With --release the engine tries again.

    --clock undoes the jumps of a wrong clock, which `psoup clock` shows: every stamp past this
    machine's clock is set to that clock, and rows that the jump had hidden are visible again.
    Earlier positions are then refused, and clients get their next answers whole. Make sure that
    this machine's clock is right, and keep a back-up of the folder. If it is killed, run it again:
    until it has finished, nothing else can open the store.

    \b
    psoup repair ./store
    psoup repair ./store --accept
    psoup repair ./store --release all
    psoup repair ./store --clock
    """
    require("server")
    set_umask(store=store)
    if clock:
        _repair_clock(store, yes)
    elif release:
        _release(store, release)
    else:
        _look(store, accept)


def _look(store: Path, accept: bool) -> None:
    from psoup.store import Store, StoreError, inspection
    from psoup.store.state.quarantine import COMPOSITE

    try:
        opened = Store.open(store)
        damage = list(inspection.damage(opened))
        losses = inspection.losses(opened)
        quarantine = inspection.quarantine(opened)
    except StoreError as error:
        refuse(f"{error}\n  Restore the damaged file from a back-up, under its name.")
    for finding in damage:
        echo(finding.problem)
    for hole in losses.holes:
        text = hole.text(f"number {hole.stream_id}")
        echo(f"given up: {text}" if losses.is_accepted(hole) else f"LOST: {text}")
    for entry in quarantine.entries:
        where = "" if entry.kind == COMPOSITE else f" of stream number {entry.stream_id}"
        echo(f"QUARANTINE: {entry.name}{where}: {entry.reason}")
    lost = {finding.rows for finding in damage if finding.rows} | {
        hole.rows for hole in losses.holes
    }
    # Rows that were given up before are no damage any more.
    lost = {rows for rows in lost if not any(loss.contains(rows) for loss in losses.accepted)}
    if accept and lost:
        inspection.accept(opened, sorted(lost))
        note(f"given up: {counted(sum(rows.row_hi - rows.row_lo for rows in lost), 'row')}")
    elif lost or any(finding.rows is None for finding in damage):
        refuse("the store is damaged; `psoup repair --help` says what to do")
    else:
        note("no other damage" if losses.accepted else "no damage")


def _release(store: Path, names: tuple[str, ...]) -> None:
    from psoup.store import Store, StoreError, inspection

    try:
        opened = Store.open(store)
        quarantined = [entry.name for entry in inspection.quarantine(opened).entries]
        chosen = quarantined if "all" in names else list(dict.fromkeys(names))
        unknown = [name for name in chosen if name not in quarantined]
        if unknown:
            refuse(f"not in quarantine: {', '.join(unknown)}; `psoup repair {store}` lists what is")
        if chosen:
            inspection.release(opened, chosen)
    except StoreError as error:
        refuse(str(error))
    note(f"released: {', '.join(chosen)}; the engine tries again" if chosen else "nothing to do")


def _repair_clock(store: Path, yes: bool) -> None:
    from datastem.instants import format_instant
    from psoup.engine.errors import EngineError
    from psoup.engine.repair.reclock import repair_clock
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
