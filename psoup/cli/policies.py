"""psoup policy: create, list, drop."""

from __future__ import annotations

from pathlib import Path

import click

from psoup.cli.connection import Connection
from psoup.cli.output import SentenceGroup, counted, echo, note
from psoup.cli.problems import fail
from psoup.cli.texts import FILE, first_words, sql_text


@click.group(cls=SentenceGroup)
def policy() -> None:
    """Row policies: which rows of a stream a caller may see.

    A policy is a condition over the row and the caller's claims, which come with the access key
    (`psoup key create --claims`) or the JWT. A caller sees a row if one policy of its stream is
    true for it. Administrators see all rows, and only they see the policies.

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
    """Create a policy from SQL text or a file. It takes effect with the next call.

    To change one, create the new one under another name, and then drop the old one: a stream
    without any policy shows every row to every reader.

    \b
    psoup policy create "CREATE POLICY mine ON orders USING (region = claim('region'))"
    """
    text = sql_text(sql, file)
    if first_words(text, 2) != "CREATE POLICY":
        fail("write CREATE POLICY name ON stream USING (condition)")
    with connection.client() as client:
        defined = client.define(text)
    policies = counted(len(defined.stream.policies), "policy", "policies")
    note(f"{defined.stream.name}: {policies}")


@policy.command("list")
@click.pass_obj
def list_(connection: Connection) -> None:
    """List the policies of the tenant's streams, as CREATE POLICY statements.

    \b
    psoup policy list
    """
    with connection.client() as client:
        policies = [text for stream in client.streams() for text in stream.policies]
    echo("\n".join(policies) or "no policies, or none that you may see; administrators see all")


@policy.command()
@click.argument("name")
@click.argument("stream")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def drop(connection: Connection, name: str, stream: str, yes: bool) -> None:
    """Drop a policy of a stream. After the last one, every reader sees every row.

    \b
    psoup policy drop mine orders
    """
    with connection.client() as client:
        if not yes:
            click.confirm(f"Drop the policy {name} of {stream}?", abort=True, err=True)
        client.define(f"DROP POLICY {name} ON {stream}")
    note(f"dropped {name}")
