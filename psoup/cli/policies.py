"""psoup policy: create, list, drop."""

from __future__ import annotations

from pathlib import Path

import click

from psoup.cli.connection import Connection
from psoup.cli.output import SentenceGroup, echo, note
from psoup.cli.problems import fail
from psoup.cli.texts import FILE, first_words, sql_text


@click.group(cls=SentenceGroup)
def policy() -> None:
    """Row policies: which rows of a stream a caller may see.

    A condition over the row and the caller's claims, which come with the key (`psoup key create
    --claims`) or the JWT. A row is shown where the condition of one policy of its stream is true.
    Those who administer see all rows, and they alone are shown the policies.

    \b
    psoup policy create "CREATE POLICY mine ON orders USING (region = claim('region'))"
    psoup policy list
    psoup policy drop mine orders
    """


@policy.command()
@click.argument("sql", required=False)
@click.option("--file", "-f", type=FILE, help="Read the SQL from a file.")
@click.pass_obj
def create(connection: Connection, sql: str | None, file: Path | None) -> None:
    """Create a policy from SQL text or a file. It holds from the next call on.

    To change one, create the new one under another name first, and then drop the old one: a stream
    without any policy shows every row to every reader.

    \b
    psoup policy create "CREATE POLICY mine ON orders USING (region = claim('region'))"
    """
    text = sql_text(sql, file)
    if first_words(text, 2) != "CREATE POLICY":
        fail("write CREATE POLICY name ON stream USING (condition)")
    with connection.client() as client:
        made = client.define(text)
    count = len(made.stream.policies)
    note(f"{made.stream.name}: {count} {'policy' if count == 1 else 'policies'}")


@policy.command("list")
@click.pass_obj
def list_(connection: Connection) -> None:
    """The policies of the tenant's streams, as the statements that make them."""
    with connection.client() as client:
        found = [text for stream in client.streams() for text in stream.policies]
    echo("\n".join(found) or "no policies that are shown to you; to those who administer, all")


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
