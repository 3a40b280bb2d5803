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
    """What an answer from a copy is of. `now` is that of the last sync."""

    row_count: int
    columns: tuple[Column, ...]
    now: datetime | None
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
@form_options
def rows(file: Path, name: str, now: str | None, form: AnswerForm) -> None:
    """Show the answer NAME of FILE as it is now. Needs no connection.

    If its stream has arrival time, rows leave and enter the window by this machine's clock. If it
    has event time, the answer stays as of the last sync.

    \b
    psoup copy rows phone.db dear
    psoup copy rows phone.db dear --format csv --output dear.csv
    """
    with opened(file) as copies:
        answer = _answer(copies[name], None if now is None else instant(now))
        unsent = copies.queued.rows_for(copies[name].stream)
    write_answer(answer, form, _footer)
    if unsent:
        note(f"not sent yet, and not shown: {counted(unsent, 'row')}; psoup copy sync {file}")


def _answer(copy: Copy, now: datetime | None) -> CopyAnswer:
    table, state = copy.to_arrow(now), copy.state
    header = CopyHeader(
        table.num_rows, state.columns, state.now, state.slides, state.good_until, state.notes
    )
    return CopyAnswer(header, table)


def _footer(header: CopyHeader) -> None:
    moves = "moves with the clock" if header.slides else "stays until the next sync"
    fresh = f" · fresh until {header.good_until}" if header.good_until else ""
    now = header.now or "no instant yet"
    rows = counted(header.row_count, "row")
    note(f"{rows} · synced as of {now}, {moves}{fresh}", *header.notes)


@click.command()
@click.argument("file", type=COPIES)
@click.argument("sql")
@click.option("--now", metavar="INSTANT", show_default="the clock's", help="The NOW of every copy.")
@click.option("--json", "lines", is_flag=True, help="Print a JSON object a line, for programs.")
def query(file: Path, sql: str, now: str | None, lines: bool) -> None:
    """Run SQL over the copies of FILE: each copy is a table. Needs no connection.

    The SQL is SQLite's, and may only read. Instants are text as 2026-11-16 09:00:00.000000, UTC.

    \b
    psoup copy query phone.db "SELECT symbol, max(price) FROM dear GROUP BY symbol"
    psoup copy query phone.db "SELECT * FROM dear JOIN fleet USING (symbol)" --json
    """
    with opened(file) as copies:
        result_rows = copies.query(sql, now=None if now is None else instant(now))
        unsent = copies.queued.rows
    if lines:
        for row in result_rows:
            echo(as_json(row))
    else:
        _show(result_rows)
    if unsent:
        note(f"not sent yet, and not shown: {counted(unsent, 'row')}; psoup copy sync {file}")


def _show(result_rows: list[dict[str, Any]]) -> None:
    names = list(result_rows[0]) if result_rows else []
    grid(names, [list(row.values()) for row in result_rows], empty="no rows")
