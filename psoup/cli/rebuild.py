"""psoup rebuild: let the engine derive matches, coverage, combinations and closures again."""

from __future__ import annotations

from pathlib import Path

import click

from psoup.cli.output import note
from psoup.cli.problems import refuse
from psoup.cli.serve import require
from psoup.umask import set_umask


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
def rebuild(store: Path) -> None:
    """Drop what the engine has derived in the store in this folder. Stop the engine first.

    Drops matches, coverage, combinations of joins, and closures. Rows, the log and registrations
    stay. Answers stay the same: running servers compute what is missing. The next
    engine derives it again, what windows reach first.

    \b
    psoup rebuild ./store
    """
    require("engine")
    from psoup.engine.errors import EngineError
    from psoup.engine.repair.rebuild import rebuild as rebuild_store
    from psoup.store import StoreError

    set_umask(store=store)
    try:
        rebuild_store(store.absolute())
    except (StoreError, EngineError, OSError) as error:
        refuse(str(error))
    note("done; start the engine")
