"""psoup copy changes: the changes of an answer in a file, each shown once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from client_sdk import AnswerChange, ChangeBatch, Copies
from psoup.cli.copy_file import COPIES, opened
from psoup.cli.output import as_json, counted, echo, note

# How often to look at a file that another process syncs.
_POLL_SECONDS = 0.5


@click.command()
@click.argument("file", type=COPIES)
@click.argument("name")
@click.option("--follow", is_flag=True, help="Wait for more changes. Ctrl-C ends it.")
@click.option(
    "--rounds", type=click.IntRange(min=1), help="With --follow: end after this number of changes."
)
@click.option("--json", "lines", is_flag=True, help="Print a JSON object a line, for programs.")
def changes(file: Path, name: str, follow: bool, rounds: int | None, lines: bool) -> None:
    """Show what changed in the answer NAME of FILE, each change once. Needs no connection.

    The copy must be kept with --changes. Syncs make changes, and so does time: rows leave and
    enter a window. Changes that were shown are deleted; if showing them fails they stay.

    \b
    +  a row was added
    u  a row has other values: before→now
    -  a row was removed: left (its window), ended (its stream key was updated or deleted),
       gone (a computed row)
    skip  with --every-point: changes of refresh points before are missing: retention, too many,
       no copy

    \b
    psoup copy keep phone.db hot "SELECT room, temp FROM rooms WHERE temp > 80" --changes
    psoup copy sync phone.db
    psoup copy changes phone.db hot
    psoup copy watch phone.db &              syncs whenever the answer changes …
    psoup copy changes phone.db hot --follow --json | ./notify
    """
    if rounds is not None and not follow:
        raise click.UsageError("--rounds needs --follow")
    with opened(file) as copies:
        shown_count = _show(copies, name, lines)
        if not (shown_count or follow or lines):
            note("no changes")
        while follow and (rounds is None or shown_count < rounds):
            time.sleep(_POLL_SECONDS)
            shown_count += _show(copies, name, lines)


def _show(copies: Copies, name: str, lines: bool) -> int:
    """Show a batch of changes, and return how many it has."""
    # The changes are deleted when the block ends without an error, so they are printed inside it.
    with copies.changes(name) as batch:
        for text in _json_lines(batch) if lines else _text_lines(batch):
            echo(text)
    return len(batch) + bool(batch.reset)


def _json_lines(batch: ChangeBatch) -> list[str]:
    """Return a reset with the rows of the whole answer, or the changes, a line each."""
    if batch.reset:
        return [as_json({"reset": batch.reset, "rows": list(batch.answer or ())})]
    return [as_json(_fields(change)) for change in batch]


def _fields(change: AnswerChange) -> dict[str, Any]:
    return {
        "number": change.number,
        "tag": change.tag,
        "why": change.why,
        "at": change.at,
        "row": change.row,
        "old": change.old,
    }


def _text_lines(batch: ChangeBatch) -> list[str]:
    reset_lines = [
        f"{batch.reset}: the answer starts over, with {counted(len(batch.answer or ()), 'row')}"
    ]
    return (reset_lines if batch.reset else []) + [_line(change) for change in batch]


def _line(change: AnswerChange) -> str:
    at = "-" if change.at is None else f"{change.at:%Y-%m-%d %H:%M:%S}"
    old, row = change.old or {}, change.row or {}
    values = [_value(name, old, row) for name in row or old]
    return "  ".join([at, change.tag, f"{change.why:7}", *values])


def _value(name: str, old: dict[str, Any], row: dict[str, Any]) -> str:
    now, before = row.get(name), old.get(name)
    if not row:
        return f"{name}={before}"
    return f"{name}={before}→{now}" if old and before != now else f"{name}={now}"
