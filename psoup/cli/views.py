"""psoup view: create, list, show, drop."""

from __future__ import annotations

from pathlib import Path

import click

from client_sdk import View
from psoup.cli.connection import Connection
from psoup.cli.drops import note_ended
from psoup.cli.output import SentenceGroup, echo, grid, note
from psoup.cli.texts import FILE, sql_text


@click.group(cls=SentenceGroup)
def view() -> None:
    """Views: names for queries, which stand wherever a stream does in FROM."""


@view.command()
@click.argument("sql", required=False)
@click.option("--file", "-f", type=FILE, help="Read the SQL from a file.")
@click.pass_obj
def create(connection: Connection, sql: str | None, file: Path | None) -> None:
    """Create a view from SQL text or a file.

    \b
    psoup view create "CREATE VIEW big AS SELECT symbol, price FROM trades WHERE size > 1000"
    psoup view create --file big.sql
    """
    with connection.client() as client:
        made = client.define(sql_text(sql, file))
    note(f"view {made.view.name}: {len(made.view.columns)} columns", *made.notes)


@view.command("list")
@click.pass_obj
def list_(connection: Connection) -> None:
    """The views of the tenant."""
    with connection.client() as client:
        found = client.views()
    grid(
        ["view", "columns", "over"],
        [[each.name, len(each.columns), ", ".join(each.over)] for each in found],
        empty="no views yet; psoup view create makes one",
    )


@view.command()
@click.argument("name")
@click.pass_obj
def show(connection: Connection, name: str) -> None:
    """A view's columns and its statement."""
    with connection.client() as client:
        found = _find(client.views(), name)
    grid(["column", "type"], [[column.name, column.type] for column in found.columns])
    echo(f"over {', '.join(found.over)}")
    echo(found.sql)


def _find(views: list[View], name: str) -> View:
    for each in views:
        if each.name == name.lower():
            return each
    raise click.ClickException(f"there is no view {name}; psoup view list shows them")


@view.command()
@click.argument("name")
@click.option("--cascade", is_flag=True, help="End the views over it too, with their queries.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def drop(connection: Connection, name: str, cascade: bool, yes: bool) -> None:
    """Drop a view, and end the queries over it."""
    with connection.client() as client:
        found = _find(client.views(), name)
        if not yes:
            more = " and all views over it" if cascade else ""
            click.confirm(f"Drop {found.name}{more}, with their queries?", abort=True, err=True)
        dropped = client.define(f"DROP VIEW {name}{' CASCADE' if cascade else ''}")
    note(f"dropped {found.name}")
    note_ended(dropped.ended)
