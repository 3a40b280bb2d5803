"""psoup stream: create, list, show, drop."""

from __future__ import annotations

from pathlib import Path

import click

from client_sdk import Stream, View
from psoup.cli.connection import Connection
from psoup.cli.drops import note_ended
from psoup.cli.output import SentenceGroup, echo, grid, note
from psoup.cli.texts import FILE, sql_text


@click.group(cls=SentenceGroup)
def stream() -> None:
    """Streams: what rows look like and how long they are kept."""


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
        made = client.define(sql_text(sql, file))
    if made.defined is None:
        note("done", *made.notes)
        return
    kind = "view" if isinstance(made.defined, View) else "stream"
    note(f"{kind} {made.defined.name}: {len(made.defined.columns)} columns", *made.notes)


@stream.command("list")
@click.pass_obj
def list_(connection: Connection) -> None:
    """The streams of the tenant."""
    with connection.client() as client:
        found = client.streams()
    grid(
        ["stream", "columns", "key", "event time", "kept", "rows", "queries", "now"],
        [
            [
                each.name,
                len(each.columns),
                ", ".join(each.key) or "none",
                each.ordered_by or "arrival",
                _kept(each),
                f"{each.row_count:,}",
                each.registration_count,
                f"{each.now:%Y-%m-%d %H:%M:%SZ}" if each.now else "none yet",
            ]
            for each in found
        ],
        empty="no streams yet; psoup stream create makes one",
    )


@stream.command()
@click.argument("name")
@click.pass_obj
def show(connection: Connection, name: str) -> None:
    """A stream's columns, its statement, and how far it has come."""
    with connection.client() as client:
        found = client.stream(name)
    _show(found)


def _show(found: Stream) -> None:
    grid(["column", "type"], [[column.name, column.type] for column in found.columns])
    key = f" · key {', '.join(found.key)}" if found.key else ""
    echo(f"rows {found.row_count:,} · queries {found.registration_count:,}{key}")
    echo(f"now {found.now or 'none yet'} · kept {_kept(found)}")
    for text in (found.sql, *found.policies):
        echo(text)


def _kept(found: Stream) -> str:
    return str(found.retain).removesuffix(", 0:00:00") if found.retain else "for ever"


@stream.command()
@click.argument("name")
@click.option("--cascade", is_flag=True, help="End the views over it too, with their queries.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def drop(connection: Connection, name: str, cascade: bool, yes: bool) -> None:
    """Drop a stream, its rows and the answers of its queries."""
    with connection.client() as client:
        found = client.stream(name)
        if not yes:
            count = f"{found.row_count:,} rows, {found.registration_count:,} queries"
            click.confirm(f"Drop {found.name} with {count}?", abort=True, err=True)
        dropped = client.define(f"DROP STREAM {name}{' CASCADE' if cascade else ''}")
    note(f"dropped {found.name}")
    note_ended(dropped.ended)
