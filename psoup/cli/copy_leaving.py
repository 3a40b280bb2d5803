"""psoup copy clear, log-out: what leaves a file."""

from __future__ import annotations

from pathlib import Path

import click

from client_sdk import Cleared
from psoup.cli.copy_file import COPIES, connection_of, opened
from psoup.cli.copy_queue import report_sent
from psoup.cli.output import counted, note


@click.command()
@click.argument("file", type=COPIES)
@click.argument("names", nargs=-1)
@click.option("--forget", is_flag=True, help="Drop the declarations of the copies, too.")
@click.option("--discard-queue", is_flag=True, help="Also delete queued rows that were never sent.")
def clear(file: Path, names: tuple[str, ...], forget: bool, discard_queue: bool) -> None:
    """Remove the rows of all copies of FILE (or only NAMES), and rewrite the file.

    The next sync receives the answers again. Queued rows stay, with those that were put aside.

    \b
    psoup copy clear phone.db
    psoup copy clear phone.db dear --forget
    """
    with opened(file) as copies:
        cleared = copies.clear(list(names) or None, forget=forget, discard_queue=discard_queue)
        queued = copies.queued.rows
    _report(cleared)
    if queued:
        note(f"still queued: {counted(queued, 'row')}")


@click.command("log-out")
@click.argument("file", type=COPIES)
@click.option("--offline", is_flag=True, help="Send nothing, and end no registrations.")
@click.option(
    "--discard-queue", is_flag=True, help="Log out even if rows that were never sent are lost."
)
@click.pass_context
def log_out(context: click.Context, file: Path, offline: bool, discard_queue: bool) -> None:
    """Send what is queued in FILE, end its registrations, and remove all that it has.

    Without a connection, registrations end with their lease. If rows are left that the store has
    not taken, nothing is removed, unless --discard-queue is given.

    \b
    psoup copy log-out phone.db
    """
    with opened(file) as copies:
        if offline:
            result = copies.log_out(discard_queue=discard_queue)
        else:
            with connection_of(context).client() as client:
                result = copies.log_out(client, discard_queue=discard_queue)
    report_sent(result.sent)
    _report(result.cleared)
    if result.remaining:
        names = ", ".join(result.remaining)
        note(f"registered until their lease ends: {names}")


def _report(cleared: Cleared) -> None:
    note(f"cleared {counted(len(cleared.copies), 'copy', 'copies')}")
    if cleared.discarded_rows:
        note(f"discarded {counted(cleared.discarded_rows, 'queued row')}")
    if not cleared.scrubbed:
        note("another process reads the file: removed rows are overwritten later")
