"""psoup repair: what is damaged in a store on this machine, and what an operator says about it."""

from __future__ import annotations

from pathlib import Path

import click

from psoup.cli.output import note
from psoup.cli.problems import refuse
from psoup.cli.serve import require


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
def repair(store: Path) -> None:
    """Look for damage in the store in this folder; servers and the engine may run meanwhile.

    Every file that the log and the newest epoch name is read. Without an option nothing is written.

    \b
    psoup repair ./store
    """
    require("server")
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
