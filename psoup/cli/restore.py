"""psoup restore: a back-up that was put back becomes the store that clients talk to."""

from __future__ import annotations

from pathlib import Path

import click

from psoup.cli.output import note
from psoup.cli.problems import refuse
from psoup.cli.serve import require


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--in-place",
    is_flag=True,
    required=True,
    help="The folder holds the back-up already. Servers and engine must be stopped.",
)
def restore(store: Path, in_place: bool) -> None:
    """Give a store that was put back from a back-up a new incarnation.

    Put the back-up into the folder, run this, then start the servers and the engine. Clients that
    have seen what came after the back-up forget it: their positions are refused, the SDK asks again
    without them, and their copies come whole at the next sync. Nothing else changes.

    \b
    psoup restore ./store --in-place
    """
    require("engine")
    from psoup.engine.errors import EngineError
    from psoup.engine.restore import begin_incarnation
    from psoup.store import StoreError

    try:
        begin_incarnation(store.absolute())
    except (StoreError, EngineError) as error:
        refuse(str(error))
    note("done; start the servers and the engine")
