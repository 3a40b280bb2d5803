"""psoup view: create, list, show, drop."""

from __future__ import annotations

from pathlib import Path

import click

from client_sdk import View
from psoup.cli.connection import Connection
from psoup.cli.drops import note_ended
from psoup.cli.output import SentenceGroup, counted, echo, grid, note
from psoup.cli.texts import FILE, sql_text


@click.group(cls=SentenceGroup)
def view() -> None:
    """Views: named queries, which FROM takes like a stream.

    \b
    psoup view create --file big.sql
    psoup view list
    """


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
        definition = client.define(sql_text(sql, file))
    columns = counted(len(definition.view.columns), "column")
    note(f"view {definition.view.name}: {columns}", *definition.notes)


@view.command("list")
@click.pass_obj
def list_(connection: Connection) -> None:
    """List the views of the tenant.

    \b
    psoup view list
    """
    with connection.client() as client:
        views = client.views()
    grid(
        ["view", "columns", "over"],
        [[entry.name, len(entry.columns), ", ".join(entry.over)] for entry in views],
        empty="no views yet; psoup view create makes one",
    )


@view.command()
@click.argument("name")
@click.pass_obj
def show(connection: Connection, name: str) -> None:
    """Show a view's columns and its statement.

    \b
    psoup view show big
    """
    with connection.client() as client:
        definition = _find(client.views(), name)
    grid(["column", "type"], [[column.name, column.type] for column in definition.columns])
    echo(f"over {', '.join(definition.over)}")
    echo(definition.sql)


def _find(views: list[View], name: str) -> View:
    for candidate in views:
        if candidate.name == name.lower():
            return candidate
    raise click.ClickException(f"there is no view {name}; psoup view list shows them")


@view.command()
@click.argument("name")
@click.option("--cascade", is_flag=True, help="Drop the views over it too, and end their queries.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def drop(connection: Connection, name: str, cascade: bool, yes: bool) -> None:
    """Drop a view, and end the queries over it.

    \b
    psoup view drop big
    """
    with connection.client() as client:
        definition = _find(client.views(), name)
        if not yes:
            dependents = " and all views over it" if cascade else ""
            click.confirm(
                f"Drop {definition.name}{dependents}, with their queries?", abort=True, err=True
            )
        dropped = client.define(f"DROP VIEW {name}{' CASCADE' if cascade else ''}")
    note(f"dropped {definition.name}")
    note_ended(dropped.ended)
