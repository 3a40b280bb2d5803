"""psoup backup: copy a running store to a folder or a bucket."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from psoup.cli.output import counted, note
from psoup.cli.priority import yield_to_servers
from psoup.cli.problems import fail, refuse
from psoup.cli.progress import CopyProgress
from psoup.cli.pull import duration_option
from psoup.cli.serve import require
from psoup.umask import set_umask

if TYPE_CHECKING:
    from psoup.store.backup.targets import Place


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
    """Back up the store in this folder to another folder or a bucket, also while servers and the
    engine run.

    TARGET gets a folder for each back-up. Files that earlier ones have are not copied again. A
    back-up is finished when it has a manifest; after a failure or Ctrl-C, run the command again
    and it goes on. While it runs, a pin in the store keeps the engine from deleting files.

    TARGET may be s3://BUCKET/PREFIX, also of another service than Amazon's: add
    ?endpoint=https://HOST. Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,
    ~/.aws/credentials, or the machine.

    \b
    psoup backup ./store /mnt/backups/store
    psoup backup ./store /mnt/backups/store --verify --keep 7d
    psoup backup ./store s3://backups/store --keep 30d
    """
    yield_to_servers()
    require("server")
    from datastem.instants import format_instant
    from psoup.store import StoreError
    from psoup.store.backup.making import BackupOptions, back_up
    from psoup.store.errors import BackupFailed

    place = place_of(target)
    set_umask(store=store)
    options = BackupOptions(
        verify, None if keep is None else keep // timedelta(microseconds=1), with_token_key
    )
    try:
        with CopyProgress(f"backing up {store}") as progress:
            report = back_up(store, place, options, progress)
    except (BackupFailed, StoreError, OSError) as error:
        refuse(f"no back-up was made: {error}")
    header = report.generation.header
    note(
        f"{report.generation.place}",
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
    if report.undropped:
        refuse(f"the back-up was made, but old ones were not removed: {report.undropped}")


def place_of(text: str) -> Place:
    """Return the place that a target names; fail for another kind of address."""
    from psoup.store.backup.address import SCHEME, BucketAddress

    if text.startswith(SCHEME):
        require("s3")
        try:
            return BucketAddress.parse(text)
        except ValueError as error:
            fail(f"the address of the back-ups: {error}")
    if "://" in text:
        fail("back-ups are in a folder, or at s3://BUCKET/PREFIX")
    return Path(text)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
