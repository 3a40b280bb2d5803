"""psoup restore: make a store from a back-up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from psoup.cli.backup import place_of
from psoup.cli.output import counted, note
from psoup.cli.problems import fail, refuse
from psoup.cli.progress import CopyProgress
from psoup.cli.serve import require
from psoup.cli.texts import instant
from psoup.umask import set_umask

if TYPE_CHECKING:
    from psoup.store.backup.restoring import Instant, LogVersion


@click.command()
@click.argument("places", metavar="TARGET STORE", nargs=-1, required=True)
@click.option(
    "--at",
    metavar="INSTANT|POSITION",
    show_default="the end of the newest back-up",
    help="Leave out later commits: after an instant, a position, or a version of the log.",
)
@click.option(
    "--in-place",
    is_flag=True,
    help="STORE holds a copy made by other means already. Stop servers and engine first.",
)
@click.option(
    "--erased",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Erase again what was erased since: a file of `psoup erase --list`.",
)
def restore(places: tuple[str, ...], at: str | None, in_place: bool, erased: Path | None) -> None:
    """Make a store in an empty folder from a back-up of `psoup backup`.

    TARGET is the folder of all back-ups, or that of one of them, or s3://BUCKET/PREFIX. Clients
    notice the restore: their positions are refused, the SDK calls again without them, and the next
    sync replaces their copies. If it is interrupted, run the same command again.

    With --in-place only STORE is given: a store that was copied or set back by other means, such as
    a snapshot of the file system. Nothing changes but that clients notice.

    \b
    psoup restore /mnt/backups/store ./store
    psoup restore /mnt/backups/store ./store --at 2026-11-16T09:00:00
    psoup restore /mnt/backups/store ./store --erased erased.json
    psoup restore --in-place ./store
    """
    if in_place:
        if len(places) != 1 or at is not None or erased is not None:
            fail("--in-place takes one folder, and neither --at nor --erased")
        _restore_in_place(Path(places[0]))
    elif len(places) != 2:
        fail("write `psoup restore TARGET STORE`, or `psoup restore --in-place STORE`")
    else:
        _restore(places[0], Path(places[1]), at, erased)


def _restore(target: str, store: Path, at: str | None, erased: Path | None) -> None:
    require("server")
    from psoup.store import StoreError
    from psoup.store.backup.erased import ErasureList
    from psoup.store.backup.restoring import restore
    from psoup.store.errors import BackupFailed

    place = place_of(target)
    set_umask()
    try:
        point = None if at is None else _point(at)
        erasures = None if erased is None else ErasureList.read(erased)
        with CopyProgress(f"restoring {store}") as progress:
            report = restore(place, store, point, progress, erasures)
    except (BackupFailed, StoreError, OSError) as error:
        refuse(f"the store was not restored: {error}")
    note(
        f"{store} is {report.generation.name} up to log version {report.log_end}: "
        f"{counted(report.files, 'file')}",
        *([f"{counted(report.erased_rows, 'row')} erased again"] if erased else []),
        "start the servers and the engine",
    )


def _point(text: str) -> Instant | LogVersion:
    from datastem.instants import to_micros
    from psoup.store.backup.restoring import POSITION_DIGITS, Instant, LogVersion

    if len(text) == POSITION_DIGITS:
        try:
            return LogVersion.of_position(bytes.fromhex(text))
        except ValueError:
            fail(f"--at {text!r} is not a position in hexadecimal digits")
    # A year alone is no instant here.
    if text.isdecimal():
        return LogVersion(int(text))
    return Instant(to_micros(instant(text)))


def _restore_in_place(store: Path) -> None:
    require("engine")
    from psoup.engine.errors import EngineError
    from psoup.engine.repair.restore import begin_incarnation
    from psoup.store import StoreError

    try:
        begin_incarnation(store.absolute())
    except (StoreError, EngineError) as error:
        refuse(str(error))
    note("done; start the servers and the engine")
