"""psoup policy: create, list, drop."""

from __future__ import annotations

from pathlib import Path

import click

from psoup.cli.connection import Connection
from psoup.cli.output import SentenceGroup, note
from psoup.cli.texts import FILE, sql_text


@click.group(cls=SentenceGroup)
def policy() -> None:
    """Row policies: which rows of a stream a caller may see."""


@policy.command()
@click.argument("sql", required=False)
@click.option("--file", "-f", type=FILE, help="Read the SQL from a file.")
@click.pass_obj
def create(connection: Connection, sql: str | None, file: Path | None) -> None:
    """Create a policy from SQL text or a file.

    \b
    psoup policy create "CREATE POLICY mine ON orders USING (region = claim('region'))"
    """
    with connection.client() as client:
        made = client.define(sql_text(sql, file))
    count = len(made.stream.policies)
    note(f"{made.stream.name}: {count} {'policy' if count == 1 else 'policies'}")


@policy.command("list")
@click.pass_obj
def list_(connection: Connection) -> None:
    """The policies of the tenant's streams, as the statements that make them."""
    with connection.client() as client:
        found = [text for stream in client.streams() for text in stream.policies]
    click.echo("\n".join(found) or "no policies: every reader sees every row")


@policy.command()
@click.argument("name")
@click.argument("stream")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def drop(connection: Connection, name: str, stream: str, yes: bool) -> None:
    """Drop a policy of a stream. With the last one every reader sees every row."""
    with connection.client() as client:
        if not yes:
            click.confirm(f"Drop the policy {name} of {stream}?", abort=True, err=True)
        client.define(f"DROP POLICY {name} ON {stream}")
    note(f"dropped {name}")
