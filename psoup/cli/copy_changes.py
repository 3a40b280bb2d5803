"""psoup copy changes: what changed in an answer of a file, each change once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from client_sdk import AnswerChange, ChangeBatch, Copies
from psoup.cli.copy_file import COPIES, opened
from psoup.cli.output import as_json, echo, note

# How often a file is looked at that somebody else syncs.
_LOOK_SECONDS = 0.5


@click.command()
@click.argument("file", type=COPIES)
@click.argument("name")
@click.option("--follow", is_flag=True, help="Stay, and show changes as they come. Ctrl-C ends it.")
@click.option("--rounds", type=click.IntRange(min=1), help="With --follow: end after so many.")
@click.option("--json", "lines", is_flag=True, help="For programs: one object a line.")
def changes(file: Path, name: str, follow: bool, rounds: int | None, lines: bool) -> None:
    """Show what changed in the answer NAME of FILE, each change once. Needs no connection.

    The copy must be kept with --changes. Changes are made by syncs, and by time: rows leave and
    enter by themselves. What was shown is forgotten; where showing it fails it is shown again.

    \b
    +  a row came
    u  it has other values now: before→now
    -  it is gone: left (its window), ended (its key was updated or deleted), gone (a result)

    \b
    psoup copy keep phone.db hot "SELECT room, temp FROM rooms WHERE temp > 80" --changes
    psoup copy sync phone.db
    psoup copy changes phone.db hot
    psoup copy watch phone.db &              syncs whenever there is something new …
    psoup copy changes phone.db hot --follow --json | ./notify
    """
    if rounds is not None and not follow:
        raise click.UsageError("--rounds needs --follow")
    with opened(file) as copies:
        shown = _show(copies, name, lines)
        if not (shown or follow or lines):
            note("no changes")
        while follow and (rounds is None or shown < rounds):
            time.sleep(_LOOK_SECONDS)
            shown += _show(copies, name, lines)


def _show(copies: Copies, name: str, lines: bool) -> int:
    """Shows a batch, and says how many changes it has."""
    with copies.changes(name) as batch:
        for said in _json_of(batch) if lines else _text_of(batch):
            echo(said)
    return len(batch) + bool(batch.reset)


def _json_of(batch: ChangeBatch) -> list[str]:
    """A reset comes with the rows to go on from; changes that led there are left out."""
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


def _text_of(batch: ChangeBatch) -> list[str]:
    found = [f"{batch.reset}: the answer begins anew, with {len(batch.answer or ()):,} rows"]
    return (found if batch.reset else []) + [_line(change) for change in batch]


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
