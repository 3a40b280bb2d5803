"""psoup backup: copy a running store to a folder."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from psoup.cli.output import counted, note
from psoup.cli.priority import yield_to_servers
from psoup.cli.problems import fail, refuse
from psoup.cli.progress import CopyProgress
from psoup.cli.pull import duration_option
from psoup.cli.serve import require
from psoup.umask import set_umask


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.argument("target")
@duration_option("--keep", "Remove back-ups that are older, except for the new one.", "all")
@click.option("--verify", is_flag=True, help="Read every file of the back-up again.")
@click.option(
    "--with-token-key",
    is_flag=True,
    help="Include token.key. A reader of the back-up can then read the tokens of copies.",
)
def backup(
    store: Path, target: str, keep: timedelta | None, verify: bool, with_token_key: bool
) -> None:
    """Back up the store in this folder to another folder, also while servers and the engine run.

    TARGET gets a folder for each back-up. Files that the last one has are linked, not copied. A
    back-up is finished when it has a manifest; after a failure or Ctrl-C, run the command again
    and it goes on. While it runs, a pin in the store keeps the engine from deleting files.

    \b
    psoup backup ./store /mnt/backups/store
    psoup backup ./store /mnt/backups/store --verify --keep 7d
    """
    yield_to_servers()
    require("server")
    from datastem.instants import format_instant
    from psoup.store import StoreError
    from psoup.store.backup.making import BackupOptions, back_up
    from psoup.store.errors import BackupFailed

    if "://" in target:
        fail(f"{target}: back-ups go to a folder; objects stores such as s3:// are not supported")
    set_umask(store=store)
    options = BackupOptions(
        verify, None if keep is None else keep // timedelta(microseconds=1), with_token_key
    )
    try:
        with CopyProgress(f"backing up {store}") as progress:
            report = back_up(store, Path(target), options, progress)
    except (BackupFailed, StoreError, OSError) as error:
        refuse(f"no back-up was made: {error}")
    header = report.generation.header
    note(
        f"{report.generation.path}",
        f"{counted(report.files, 'file')}, {_megabytes(report.size)}; "
        f"{_megabytes(report.copied)} copied",
        f"up to log version {header.log_end}, {format_instant(header.last_stamp)}",
    )
    if report.dropped:
        note(f"{counted(report.dropped, 'old back-up')} removed")
    for path in report.damaged:
        note(f"damaged in the back-up before, copied again: {path}")
    for path in report.lost:
        note(f"LOST in the store, so not in the back-up: {path}")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
