"""psoup copy rows and query: answers from a file, without a connection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from client_sdk import Column, Copy
from psoup.cli.copy_file import COPIES, opened
from psoup.cli.output import (
    AnswerForm,
    as_json,
    counted,
    echo,
    form_options,
    grid,
    note,
    write_answer,
)
from psoup.cli.texts import instant


@dataclass(frozen=True)
class CopyHeader:
    """What an answer from a copy is of. `synced_now` is the NOW of the last sync, and `now` that
    of the rows."""

    row_count: int
    columns: tuple[Column, ...]
    now: datetime | None
    synced_now: datetime | None
    slides: bool
    good_until: datetime | None
    notes: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(column.name, column.arrow) for column in self.columns])


@dataclass(frozen=True)
class CopyAnswer:
    header: CopyHeader
    table: pa.Table

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches()


@click.command()
@click.argument("file", type=COPIES)
@click.argument("name")
@click.option(
    "--now",
    metavar="INSTANT",
    show_default="the clock's",
    help="The NOW of the answer; not before the last sync.",
)
@click.option("--stored", is_flag=True, help="Leave out own edits: the answer as it was synced.")
@click.option("--rejected", is_flag=True, help="Also show own edits that the store refused.")
@click.option("--pending", "with_pending", is_flag=True, help="Add a column _pending.")
@form_options
def rows(
    file: Path,
    name: str,
    now: str | None,
    stored: bool,
    rejected: bool,
    with_pending: bool,
    form: AnswerForm,
) -> None:
    """Show the answer NAME of FILE as it is now. Needs no connection.

    If its stream has arrival time, rows leave and enter the window by this machine's clock. If it
    has event time, the answer stays as of the last sync. A copy that is kept with --edits has
    queued rows in it; psoup copy pending lists them.

    \b
    psoup copy rows phone.db dear
    psoup copy rows phone.db dear --format csv --output dear.csv
    psoup copy rows phone.db orders --pending
    """
    moment = None if now is None else instant(now)
    with opened(file) as copies, copies.snapshot():
        copy = copies[name]
        table = copy.to_arrow(moment, queued=not stored, rejected=rejected, pending=with_pending)
        answer_now = copy.answer_now(moment, queued=not stored, rejected=rejected)
        answer = _answer(copy, table, answer_now)
        unsent = copies.queued.rows_for(copy.stream)
        is_shown = copy.edits and not stored
    write_answer(answer, form, _footer)
    if unsent:
        _note_unsent(unsent, is_shown, file)


def _note_unsent(unsent: int, is_shown: bool, file: Path) -> None:
    text = "not sent yet" if is_shown else "not sent yet, and not shown"
    note(f"{text}: {counted(unsent, 'row')}; psoup copy sync {file}")


def _answer(copy: Copy, table: pa.Table, now: datetime | None) -> CopyAnswer:
    state, columns = copy.state, copy.state.columns
    if table.num_columns > len(columns):
        columns = (*columns, Column("_pending", "TEXT"))
    header = CopyHeader(
        table.num_rows, columns, now, state.now, state.slides, state.good_until, state.notes
    )
    return CopyAnswer(header, table)


def _footer(header: CopyHeader) -> None:
    moves = "moves with the clock" if header.slides else "stays until the next sync"
    fresh = f" · fresh until {header.good_until}" if header.good_until else ""
    rows = counted(header.row_count, "row")
    moved = f" at {header.now}" if header.now != header.synced_now else ""
    synced = header.synced_now or "no instant yet"
    note(f"{rows}{moved} · synced as of {synced}, {moves}{fresh}", *header.notes)


@click.command()
@click.argument("file", type=COPIES)
@click.argument("sql")
@click.option("--now", metavar="INSTANT", show_default="the clock's", help="The NOW of every copy.")
@click.option("--stored", is_flag=True, help="Leave out own edits: the answers as synced.")
@click.option("--rejected", is_flag=True, help="Also show own edits that the store refused.")
@click.option("--json", "lines", is_flag=True, help="Print a JSON object a line, for programs.")
def query(file: Path, sql: str, now: str | None, stored: bool, rejected: bool, lines: bool) -> None:
    """Run SQL over the copies of FILE: each copy is a table. Needs no connection.

    The SQL is SQLite's, and may only read. Instants are text as 2026-11-16 09:00:00.000000, UTC.
    A copy that is kept with --edits has a column _pending.

    \b
    psoup copy query phone.db "SELECT symbol, max(price) FROM dear GROUP BY symbol"
    psoup copy query phone.db "SELECT * FROM dear JOIN fleet USING (symbol)" --json
    """
    moment = None if now is None else instant(now)
    with opened(file) as copies, copies.snapshot():
        result_rows = copies.query(sql, now=moment, queued=not stored, rejected=rejected)
        instants = {
            name: copies[name].answer_now(moment, queued=not stored, rejected=rejected)
            for name in copies
            if copies[name].synced and name.casefold() in sql.casefold()
        }
        unsent = copies.queued.rows
        is_shown = not stored and any(copies[name].edits for name in copies)
    if lines:
        for row in result_rows:
            echo(as_json(row))
    else:
        _show(result_rows)
    for name, copy_now in instants.items():
        note(f"{name} at {copy_now or 'no instant yet'}")
    if unsent:
        _note_unsent(unsent, is_shown, file)


@click.command()
@click.argument("file", type=COPIES)
@click.argument("name")
@click.option("--json", "lines", is_flag=True, help="Print a JSON object a line, for programs.")
def pending(file: Path, name: str, lines: bool) -> None:
    """List own edits of the answer NAME of FILE that the store has not sent back yet.

    Needs no connection. The copy must be kept with --edits. An edit is named by its stream key, or
    by the id of its row.

    \b
    queued     it waits to be sent
    sent       the store has it; the next sync brings it back
    rejected   the store refused it; psoup copy rejected shows why
    unchecked  what the store would make of it is not known here

    \b
    psoup copy pending phone.db orders
    """
    with opened(file) as copies:
        statuses = copies[name].pending
    if lines:
        for key, status in statuses.items():
            echo(as_json({"edit": key, "status": status}))
    else:
        edits = [[_edit_name(key), status] for key, status in statuses.items()]
        grid(["edit", "status"], edits, empty="no edits are pending")


def _edit_name(key: Any) -> str:
    return ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _show(result_rows: list[dict[str, Any]]) -> None:
    names = list(result_rows[0]) if result_rows else []
    grid(names, [list(row.values()) for row in result_rows], empty="no rows")
