"""psoup stream: create, list, show, drop."""

from __future__ import annotations

from pathlib import Path

import click

from client_sdk import Column, Function, NowLeap, Stream, View
from psoup.cli.connection import Connection
from psoup.cli.drops import note_ended
from psoup.cli.output import SentenceGroup, counted, echo, grid, note
from psoup.cli.texts import FILE, sql_text


@click.group(cls=SentenceGroup)
def stream() -> None:
    """Streams: the columns of rows, and how long rows are kept.

    \b
    psoup stream create --file trades.sql
    psoup stream list
    """


@stream.command()
@click.argument("sql", required=False)
@click.option("--file", "-f", type=FILE, help="Read the SQL from a file.")
@click.pass_obj
def create(connection: Connection, sql: str | None, file: Path | None) -> None:
    """Create a stream from SQL text or a file.

    \b
    psoup stream create "CREATE STREAM trades (symbol TEXT, price DOUBLE, at TIMESTAMP)
                         ORDERED BY at RETAIN 30 DAYS"
    psoup stream create --file trades.sql
    """
    with connection.client() as client:
        definition = client.define(sql_text(sql, file))
    if definition.defined is None or isinstance(definition.defined, Function):
        note("done", *definition.notes)
        return
    columns = counted(len(definition.defined.columns), "column")
    kind = "view" if isinstance(definition.defined, View) else "stream"
    note(f"{kind} {definition.defined.name}: {columns}", *definition.notes)


@stream.command()
@click.argument("sql", required=False)
@click.option("--file", "-f", type=FILE, help="Read the SQL from a file.")
@click.pass_obj
def alter(connection: Connection, sql: str | None, file: Path | None) -> None:
    """Add a column to a stream, or change how long its rows are kept or how they take NOW.

    \b
    psoup stream alter "ALTER STREAM trades ADD COLUMN venue TEXT"
    psoup stream alter "ALTER STREAM trades SET RETAIN 90 DAYS"
    psoup stream alter "ALTER STREAM trades SET LEAD 10 SECONDS"
    """
    with connection.client() as client:
        altered = client.define(sql_text(sql, file))
    if isinstance(altered.defined, Stream):
        columns = counted(len(altered.defined.columns), "column")
        note(f"stream {altered.defined.name}: {columns}", *altered.notes)
    note_ended(altered.ended)


@stream.command("list")
@click.pass_obj
def list_(connection: Connection) -> None:
    """List the streams of the tenant.

    \b
    psoup stream list
    """
    with connection.client() as client:
        streams = client.streams()
    grid(
        ["stream", "columns", "stream key", "event time", "kept", "rows", "queries", "now"],
        [
            [
                description.name,
                len(description.columns),
                ", ".join(description.key) or "none",
                description.ordered_by or "arrival",
                _retention(description),
                f"{description.row_count:,}",
                description.registration_count,
                f"{description.now:%Y-%m-%d %H:%M:%SZ}" if description.now else "none yet",
            ]
            for description in streams
        ],
        empty="no streams yet; psoup stream create makes one",
    )


@stream.command()
@click.argument("name")
@click.pass_obj
def show(connection: Connection, name: str) -> None:
    """Show a stream's columns, its statement, its rows and its NOW.

    \b
    psoup stream show trades
    """
    with connection.client() as client:
        description = client.stream(name)
    _show(description)


def _show(description: Stream) -> None:
    grid(["column", "type"], [[column.name, _type(column)] for column in description.columns])
    key = f" · stream key {', '.join(description.key)}" if description.key else ""
    echo(f"rows {description.row_count:,} · queries {description.registration_count:,}{key}")
    echo(f"now {description.now or 'none yet'} · kept {_retention(description)}")
    if (stats := description.stats) is not None:
        behind = counted(stats.behind_rows, "row")
        echo(
            f"log {stats.log_bytes:,} · rows {stats.stem_bytes:,} · matches "
            f"{stats.match_bytes:,} bytes · {behind} not yet in an epoch"
        )
        if stats.late_rows:
            echo(f"{counted(stats.late_rows, 'row')} came after now had passed their ts")
        if stats.last_leap is not None:
            echo(leap_text(stats.last_leap))
    for text in (description.sql, *description.policies):
        echo(text)


def leap_text(leap: NowLeap) -> str:
    """Return the sentence about what took NOW of a stream past the clock."""
    publisher = f"publisher {leap.publisher}" if leap.publisher else "a publisher"
    return f"{publisher} of {leap.owner} took now ahead of the clock, {leap.at}: {leap.now}"


def _type(column: Column) -> str:
    """Return the type of a column, and the default of one that was added."""
    if not column.optional:
        return column.type
    return f"{column.type}, added, default {'NULL' if column.default is None else column.default}"


def _retention(description: Stream) -> str:
    return str(description.retain).removesuffix(", 0:00:00") if description.retain else "for ever"


@stream.command()
@click.argument("name")
@click.option("--cascade", is_flag=True, help="Drop the views over it too, and end their queries.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def drop(connection: Connection, name: str, cascade: bool, yes: bool) -> None:
    """Drop a stream with its rows, and end its queries.

    \b
    psoup stream drop trades
    """
    with connection.client() as client:
        description = client.stream(name)
        if not yes:
            rows = counted(description.row_count, "row")
            queries = counted(description.registration_count, "query", "queries")
            question = f"Drop {description.name} with {rows}, {queries}?"
            click.confirm(question, abort=True, err=True)
        dropped = client.define(f"DROP STREAM {name}{' CASCADE' if cascade else ''}")
    note(f"dropped {description.name}")
    note_ended(dropped.ended)
