"""psoup copy rejected, requeue, doubtful, resend, discard: what was put aside in a file's queue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from client_sdk import Doubtful, Rejected
from psoup.cli.copy_file import COPIES, opened
from psoup.cli.output import as_json, echo, grid, note


@click.command()
@click.argument("file", type=COPIES)
@click.option("--json", "lines", is_flag=True, help="For programs: one object a line.")
def rejected(file: Path, lines: bool) -> None:
    """List what the store refused for good, and why.

    Mend what is wrong and requeue it, or discard it; it stays here until then.
    """
    with opened(file) as copies:
        found = copies.rejected
    _show(found, lines, "nothing was refused")


@click.command()
@click.argument("file", type=COPIES)
@click.option("--json", "lines", is_flag=True, help="For programs: one object a line.")
def doubtful(file: Path, lines: bool) -> None:
    """List what may be in the store already, and may not.

    After FILE was copied, or came from a back-up, the store may have had the number of a batch
    with other rows, and not know it any more. Look whether the rows are there: resend them if
    not, else discard them. They stay here until then.
    """
    with opened(file) as copies:
        found = copies.doubtful
    _show(found, lines, "nothing is doubtful")


def _show(found: Sequence[Rejected] | Sequence[Doubtful], lines: bool, empty: str) -> None:
    if lines:
        for one in found:
            echo(as_json(_plain(one)))
        return
    heads = ["batch", "stream", "rows", "queued at", "reason", "message"]
    grid(heads, [list(_plain(one).values()) for one in found], empty=empty)


def _plain(one: Rejected | Doubtful) -> dict[str, object]:
    return {
        "batch": one.batch,
        "stream": one.stream,
        "rows": one.row_count,
        "queued_at": one.queued_at,
        "reason": one.reason,
        "message": one.message,
    }


@click.command()
@click.argument("file", type=COPIES)
@click.argument("batch", type=int, required=False)
def requeue(file: Path, batch: int | None) -> None:
    """Let a refused BATCH (all of them without one) wait again, at the end of the queue."""
    with opened(file) as copies:
        count = copies.requeue(batch)
    note(f"{count:,} wait again; psoup copy send {file} sends them")


@click.command()
@click.argument("file", type=COPIES)
@click.argument("batch", type=int, required=False)
def resend(file: Path, batch: int | None) -> None:
    """Let a doubtful BATCH (all of them without one) wait again, as one that was never sent.

    Rows that are in the store already will be there twice: psoup copy doubtful says of which
    batches that may be so.
    """
    with opened(file) as copies:
        count = copies.resend(batch)
    note(f"{count:,} wait again; psoup copy send {file} sends them")


@click.command()
@click.argument("file", type=COPIES)
@click.argument("batch", type=int, required=False)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def discard(file: Path, batch: int | None, yes: bool) -> None:
    """Delete a refused or doubtful BATCH for good; without one, all that were refused."""
    with opened(file) as copies:
        aside = [*copies.rejected, *(copies.doubtful if batch is not None else ())]
        found = [one for one in aside if batch in (None, one.batch)]
        if found and not yes:
            count = sum(one.row_count for one in found)
            click.confirm(f"Delete {count:,} rows for good?", abort=True, err=True)
        note(f"{copies.discard(batch):,} deleted")
