"""psoup upgrade: say whether this version of PSoup opens a store."""

from __future__ import annotations

from pathlib import Path

import click

from psoup.cli.output import note
from psoup.cli.problems import fail, refuse
from psoup.cli.serve import require


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Only say what an upgrade would do. Needed today.")
def upgrade(store: Path, check: bool) -> None:
    """Say from which store format to which this version would upgrade the store in this folder.

    Also says what that takes, and whether the version before could still open the store. Reads one
    file and writes nothing, so servers and the engine may run. The exit code is 1 if this version
    can't open the store. No version upgrades a store yet, so --check must be given.

    \b
    psoup upgrade --check ./store
    """
    require("server")
    from psoup.store import StoreError
    from psoup.store.format import format_of, refusal_of
    from psoup.store.layout import FORMAT

    if not check:
        fail("no format needs an upgrade yet; write `psoup upgrade --check STORE`")
    try:
        number = format_of(store.absolute())
    except (StoreError, OSError) as error:
        refuse(str(error))
    note(f"{store} has format {number}; this version reads and writes format {FORMAT}")
    if problem := refusal_of(number):
        refuse(problem)
    note(
        "nothing to do: servers and engine may be replaced in any order",
        "the way back: versions with the same format open it, too",
    )
