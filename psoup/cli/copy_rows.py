"""psoup copy rows and query: answers out of a file, without a connection."""

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
from psoup.cli.output import AnswerForm, as_json, echo, form_options, grid, note, write_answer
from psoup.cli.texts import instant


@dataclass(frozen=True)
class CopyHeader:
    """A copy's header says what its answer is of. `now` is that of the last sync."""

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
    "--now", metavar="INSTANT", help="The answer at that NOW, no earlier than the sync's."
)
@form_options
def rows(file: Path, name: str, now: str | None, form: AnswerForm) -> None:
    """The answer NAME of FILE, as it is now, without any connection.

    Of a stream with arrival time rows leave the window, and enter it, by this machine's clock;
    of one with event time the answer stays as of the last sync.

    \b
    psoup copy rows phone.db dear
    psoup copy rows phone.db dear --format csv --output dear.csv
    """
    with opened(file) as copies:
        answer = _answer(copies[name], None if now is None else instant(now))
        unsent = copies.queued.rows_for(copies[name].stream)
    write_answer(answer, form, _footer)
    if unsent:
        note(f"{unsent:,} rows wait to be sent and are not in it yet; psoup copy sync {file}")


def _answer(copy: Copy, now: datetime | None) -> CopyAnswer:
    table, state = copy.to_arrow(now), copy.state
    header = CopyHeader(
        table.num_rows, state.columns, state.now, state.slides, state.good_until, state.notes
    )
    return CopyAnswer(header, table)


def _footer(header: CopyHeader) -> None:
    moves = "moves with the clock" if header.slides else "stays until the next sync"
    fresh = f" · right until {header.good_until}" if header.good_until else ""
    of = header.now or "no instant yet"
    note(f"{header.row_count:,} rows · synced as of {of}, {moves}{fresh}", *header.notes)


@click.command()
@click.argument("file", type=COPIES)
@click.argument("sql")
@click.option("--now", metavar="INSTANT", help="Of every copy the answer at that NOW.")
@click.option("--json", "lines", is_flag=True, help="For programs: one object a line.")
def query(file: Path, sql: str, now: str | None, lines: bool) -> None:
    """SQL over the copies of FILE, without any connection: each copy is a table of its name.

    The SQL is SQLite's, and only reads. Instants are text as 2026-11-16 09:00:00.000000, UTC.

    \b
    psoup copy query phone.db "SELECT symbol, max(price) FROM dear GROUP BY symbol"
    psoup copy query phone.db "SELECT * FROM dear JOIN fleet USING (symbol)" --json
    """
    with opened(file) as copies:
        found = copies.query(sql, now=None if now is None else instant(now))
        unsent = copies.queued.rows
    if lines:
        for row in found:
            echo(as_json(row))
    else:
        _show(found)
    if unsent:
        note(f"{unsent:,} rows wait to be sent and are in no copy yet; psoup copy sync {file}")


def _show(found: list[dict[str, Any]]) -> None:
    names = list(found[0]) if found else []
    grid(names, [list(row.values()) for row in found], empty="no rows")
