"""psoup copy rejected, requeue, doubtful, resend, discard: batches put aside in a file's queue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from client_sdk import Doubtful, Rejected
from psoup.cli.copy_file import COPIES, opened
from psoup.cli.output import as_json, counted, echo, grid, note


@click.command()
@click.argument("file", type=COPIES)
@click.option("--json", "lines", is_flag=True, help="Print a JSON object a line, for programs.")
def rejected(file: Path, lines: bool) -> None:
    """List the batches that the store refused for good, and why.

    Correct the cause and requeue them, or discard them; they stay here until then.

    \b
    psoup copy rejected phone.db
    """
    with opened(file) as copies:
        batches = copies.rejected
    _show(batches, lines, "nothing was refused")


@click.command()
@click.argument("file", type=COPIES)
@click.option("--json", "lines", is_flag=True, help="Print a JSON object a line, for programs.")
def doubtful(file: Path, lines: bool) -> None:
    """List the batches of which it is unknown whether the store has them.

    If FILE was copied or restored from a back-up, the store may have accepted other rows under the
    number of a batch. Check whether the rows are in the store: resend the batch if they are not,
    else discard it. It stays here until then.

    \b
    psoup copy doubtful phone.db
    """
    with opened(file) as copies:
        batches = copies.doubtful
    _show(batches, lines, "nothing is doubtful")


def _show(batches: Sequence[Rejected] | Sequence[Doubtful], lines: bool, empty: str) -> None:
    if lines:
        for batch in batches:
            echo(as_json(_plain(batch)))
        return
    heads = ["batch", "stream", "rows", "queued at", "reason", "message"]
    grid(heads, [list(_plain(batch).values()) for batch in batches], empty=empty)


def _plain(batch: Rejected | Doubtful) -> dict[str, object]:
    return {
        "batch": batch.batch,
        "stream": batch.stream,
        "rows": batch.row_count,
        "queued_at": batch.queued_at,
        "reason": batch.reason,
        "message": batch.message,
    }


@click.command()
@click.argument("file", type=COPIES)
@click.argument("batch", type=int, required=False)
def requeue(file: Path, batch: int | None) -> None:
    """Put a refused BATCH at the end of the queue again; without BATCH, all of them.

    \b
    psoup copy requeue phone.db 17
    """
    with opened(file) as copies:
        count = copies.requeue(batch)
    note(f"queued again: {_batches(count)}; psoup copy send {file} sends them")


@click.command()
@click.argument("file", type=COPIES)
@click.argument("batch", type=int, required=False)
def resend(file: Path, batch: int | None) -> None:
    """Queue a doubtful BATCH again, as if it was never sent; without BATCH, all of them.

    Rows that are in the store already are then stored twice: look with psoup copy doubtful first.

    \b
    psoup copy resend phone.db 17
    """
    with opened(file) as copies:
        count = copies.resend(batch)
    note(f"queued again: {_batches(count)}; psoup copy send {file} sends them")


@click.command()
@click.argument("file", type=COPIES)
@click.argument("batch", type=int, required=False)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
def discard(file: Path, batch: int | None, yes: bool) -> None:
    """Delete a refused or doubtful BATCH for good; without BATCH, all that were refused.

    \b
    psoup copy discard phone.db 17
    """
    with opened(file) as copies:
        aside = [*copies.rejected, *(copies.doubtful if batch is not None else ())]
        batches = [candidate for candidate in aside if batch in (None, candidate.batch)]
        if batches and not yes:
            count = sum(candidate.row_count for candidate in batches)
            click.confirm(f"Delete {counted(count, 'row')} for good?", abort=True, err=True)
        note(f"deleted: {_batches(copies.discard(batch))}")


def _batches(count: int) -> str:
    return counted(count, "batch", "batches")
