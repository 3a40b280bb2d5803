"""psoup copy conflicts and resolve: edits that would have replaced a row their editor has not
seen."""

from __future__ import annotations

from pathlib import Path

import click

from client_sdk import EditConflict
from psoup.cli.copy_file import COPIES, opened
from psoup.cli.output import as_json, echo, grid, note
from psoup.cli.problems import fail


@click.command()
@click.argument("file", type=COPIES)
@click.option("--json", "lines", is_flag=True, help="Print a JSON object a line, for programs.")
def conflicts(file: Path, lines: bool) -> None:
    """List the edits that the store refused because another row of their key is current.

    For each: the edit, the row that it was made from, and the row that is there now, if you may see
    it. They stay here until psoup copy resolve decides.

    \b
    psoup copy conflicts phone.db
    """
    with opened(file) as copies:
        batches = copies.conflicts
    if lines:
        for conflict in batches:
            echo(as_json(_plain(conflict)))
        return
    heads = ["batch", "stream", "mine", "base", "theirs"]
    rows = [list(_plain(conflict).values())[: len(heads)] for conflict in batches]
    texts = [[*row[:2], *map(_text, row[2:])] for row in rows]
    grid(heads, texts, empty="no edit is in conflict")


def _plain(conflict: EditConflict) -> dict[str, object]:
    return {
        "batch": conflict.batch,
        "stream": conflict.stream,
        "mine": conflict.mine,
        "base": conflict.base,
        "theirs": conflict.theirs,
        "theirs_id": conflict.theirs_id,
        "row": conflict.row,
        "rows": conflict.row_count,
    }


def _text(row: object) -> str:
    return "" if row is None else as_json(row)


@click.command()
@click.argument("file", type=COPIES)
@click.argument("batch", type=int)
@click.option("--mine", is_flag=True, help="Put the edits in the place of the row that is there.")
@click.option("--theirs", is_flag=True, help="Drop the edits, and leave the row that is there.")
def resolve(file: Path, batch: int, mine: bool, theirs: bool) -> None:
    """Decide about a BATCH in conflict.

    With --mine it is queued again, to replace the row that psoup copy conflicts shows. If the store
    has yet another row by then, it is in conflict again.

    \b
    psoup copy resolve phone.db 17 --mine
    """
    if mine == theirs:
        fail("give --mine or --theirs")
    with opened(file) as copies:
        if theirs:
            copies.take_theirs(batch)
            note(f"dropped: batch {batch}")
            return
        edits = [conflict for conflict in copies.conflicts if conflict.batch == batch]
        if not edits:
            fail(f"batch {batch} is not in conflict; psoup copy conflicts shows those that are")
        table = edits[0].content
        number = copies.resolve(batch, table.drop_columns(["_expected"]))
    note(f"queued again as batch {number}; psoup copy send {file} sends it")
