"""psoup restore: let clients use a store that was restored from a back-up."""

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
    help="The folder holds the back-up already. Stop servers and engine first.",
)
def restore(store: Path, in_place: bool) -> None:
    """Begin a new incarnation of a store that was restored from a back-up.

    Put the back-up into the folder, run this, then start the servers and the engine. Clients
    forget what came after the back-up: their positions are refused, the SDK calls again without
    them, and the next sync replaces their copies. Nothing else changes.

    \b
    psoup restore ./store --in-place
    """
    require("engine")
    from psoup.engine.errors import EngineError
    from psoup.engine.repair.restore import begin_incarnation
    from psoup.store import StoreError

    try:
        begin_incarnation(store.absolute())
    except (StoreError, EngineError) as error:
        refuse(str(error))
    note("done; start the servers and the engine")
