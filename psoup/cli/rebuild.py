"""psoup rebuild: let the engine derive matches, coverage, combinations and closures again."""

from __future__ import annotations

from pathlib import Path

import click

from psoup.cli.output import note
from psoup.cli.problems import refuse
from psoup.cli.progress import CopyProgress
from psoup.cli.serve import require
from psoup.umask import set_umask


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--rows",
    is_flag=True,
    help="Also write all rows again, with the columns that their streams have now.",
)
def rebuild(store: Path, rows: bool) -> None:
    """Drop what the engine has derived in the store in this folder. Stop the engine first.

    Drops matches, coverage, combinations of joins, and closures. Rows, the log and registrations
    stay. Answers stay the same: running servers compute what is missing. The next
    engine derives it again, what windows reach first.

    With --rows, files that hold rows are written again, too: dropped columns leave them, and added
    columns and today's encoding come in. It takes as much space again, until the engine has
    deleted the old files.

    \b
    psoup rebuild ./store
    psoup rebuild ./store --rows
    """
    require("engine")
    from psoup.engine.errors import EngineError
    from psoup.engine.repair.rebuild import rebuild as rebuild_store
    from psoup.store import StoreError

    set_umask(store=store)
    try:
        with CopyProgress(f"rebuilding {store}") as progress:
            rebuild_store(store.absolute(), rows=rows, progress=progress)
    except (StoreError, EngineError, OSError) as error:
        refuse(str(error))
    note("done; start the engine")
