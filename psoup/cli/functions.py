"""psoup function: create, list, show, drop."""

from __future__ import annotations

from pathlib import Path

import click

from client_sdk import Function
from psoup.cli.connection import Connection
from psoup.cli.drops import note_ended
from psoup.cli.output import SentenceGroup, echo, grid, note
from psoup.cli.texts import FILE, sql_text


@click.group(cls=SentenceGroup)
def function() -> None:
    """Functions: named expressions, which queries, views and policies call.

    \b
    psoup function create "CREATE FUNCTION euro(x DOUBLE) AS x * 0.89"
    psoup function list
    """


@function.command()
@click.argument("sql", required=False)
@click.option("--file", "-f", type=FILE, help="Read the SQL from a file.")
@click.pass_obj
def create(connection: Connection, sql: str | None, file: Path | None) -> None:
    """Create a function from SQL text or a file.

    \b
    psoup function create "CREATE FUNCTION euro(x DOUBLE) AS x * 0.89"
    psoup function create --file euro.sql
    """
    with connection.client() as client:
        definition = client.define(sql_text(sql, file))
    created = definition.function
    note(f"function {_call(created)}: {created.type}", *definition.notes)


@function.command("list")
@click.pass_obj
def list_(connection: Connection) -> None:
    """List the functions of the tenant.

    \b
    psoup function list
    """
    with connection.client() as client:
        functions = client.functions()
    grid(
        ["function", "value", "over"],
        [[_call(entry), entry.type, ", ".join(entry.over)] for entry in functions],
        empty="no functions yet; psoup function create makes one",
    )


@function.command()
@click.argument("name")
@click.pass_obj
def show(connection: Connection, name: str) -> None:
    """Show the statement that makes a function, and the type of its value.

    \b
    psoup function show euro
    """
    with connection.client() as client:
        definition = _find(client.functions(), name)
    echo(f"{_call(definition)}: {definition.type}")
    if definition.over:
        echo(f"over {', '.join(definition.over)}")
    echo(definition.sql)


def _call(entry: Function) -> str:
    """Return a function with its parameters and their types."""
    parameters = ", ".join(f"{column.name} {column.type}" for column in entry.parameters)
    return f"{entry.name}({parameters})"


def _find(functions: list[Function], name: str) -> Function:
    for candidate in functions:
        if candidate.name == name.lower():
            return candidate
    raise click.ClickException(f"there is no function {name}; psoup function list shows them")


@function.command()
@click.argument("name")
@click.option("--cascade", is_flag=True, help="Drop the views and functions that call it too.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def drop(connection: Connection, name: str, cascade: bool, yes: bool) -> None:
    """Drop a function. Registered queries and policies that call it stay as they are.

    \b
    psoup function drop euro
    """
    with connection.client() as client:
        definition = _find(client.functions(), name)
        if not yes:
            dependents = " and all views and functions that call it" if cascade else ""
            click.confirm(f"Drop {definition.name}{dependents}?", abort=True, err=True)
        dropped = client.define(f"DROP FUNCTION {name}{' CASCADE' if cascade else ''}")
    note(f"dropped {definition.name}")
    note_ended(dropped.ended)
