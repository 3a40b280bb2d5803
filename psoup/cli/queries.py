"""psoup register, register-many, invoke, ask, list, unregister."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from client_sdk import Knowledge, Registration
from psoup.cli.connection import Connection
from psoup.cli.output import (
    AnswerForm,
    as_json,
    echo,
    footer,
    form_options,
    grid,
    note,
    write_answer,
)
from psoup.cli.problems import fail
from psoup.cli.texts import FILE, duration, instant, parameters, sql_text


@click.command()
@click.argument("sql", required=False)
@click.option("--file", "-f", type=FILE, help="Read the SQL from a file.")
@click.option("--key", metavar="CLIENT_KEY", help="A client key: your own name for the query.")
@click.option("--replace", is_flag=True, help="Replace the query that has this client key.")
@click.option("--param", multiple=True, metavar="NAME[:TYPE]=VALUE", help="A value for :name.")
@click.option(
    "--lease",
    metavar="DURATION",
    show_default="30d",
    help="End it after this time without contact.",
)
@click.pass_obj
def register(
    connection: Connection,
    sql: str | None,
    file: Path | None,
    key: str | None,
    replace: bool,
    param: tuple[str, ...],
    lease: str | None,
) -> None:
    """Register a standing query and print its handle.

    Registering the same query again under its client key prints the same handle.

    \b
    psoup register --key dear "SELECT * FROM trades WHERE price > 100 RANGE 10 MINUTES"
    psoup register --key dear --replace "SELECT * FROM trades WHERE price > 200 RANGE 1 HOUR"
    psoup register "SELECT * FROM trades WHERE symbol = :s" --param s=IBM
    psoup register --file query.sql --param since:timestamp=2026-11-16T09:00
    """
    if replace and not key:
        fail("--replace needs --key, the client key of the query to replace")
    with connection.client() as client:
        registration = client.register(
            sql_text(sql, file),
            key=key,
            parameters=parameters(param),
            lease=None if lease is None else duration(lease),
            replace=replace,
        )
    echo(registration.hex)
    done = "registered" if registration.created else "registered already"
    note("replaced" if registration.replaced else done, *registration.notes)


@click.command("register-many")
@click.argument("sql")
@click.argument("table", type=FILE)
@click.option(
    "--lease",
    metavar="DURATION",
    show_default="30d",
    help="End each after this time without contact.",
)
@click.option("--replace", is_flag=True, help="Replace the queries that have these client keys.")
@click.pass_obj
def register_many(
    connection: Connection, sql: str, table: Path, lease: str | None, replace: bool
) -> None:
    """Register one text once for each row of TABLE (CSV, Parquet or an Arrow file).

    The columns are the :names of the text, and optionally client_key. Prints the handles in the
    order of the rows. Either all queries are registered or none.

    \b
    psoup register-many "SELECT * FROM trades WHERE symbol = :s" watchlist.csv
    """
    with connection.client() as client:
        registered = client.register_many(
            sql,
            _table(table),
            lease=None if lease is None else duration(lease),
            replace=replace,
        )
    for handle in registered.handles:
        echo(handle.hex())
    existing = len(registered.handles) - registered.created_count - registered.replaced_count
    replaced = f"{registered.replaced_count:,} replaced, " if registered.replaced_count else ""
    note(f"{registered.created_count:,} new, {replaced}{existing:,} registered already")


def _table(path: Path) -> pa.Table:
    try:
        if path.suffix == ".parquet":
            return pa.parquet.read_table(path)
        if path.suffix == ".arrow":
            return pa.ipc.open_file(path).read_all()
        return pyarrow.csv.read_csv(path)
    except pa.ArrowInvalid as error:
        fail(f"{path}: {error}")


def answer_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every command that shows an answer: as of when, and in which form."""
    for option in reversed(
        [
            click.option(
                "--as-of", metavar="INSTANT", show_default="now", help="The instant of the answer."
            ),
            click.option(
                "--known",
                "known_at",
                type=click.Choice(["then", "today"]),
                default="then",
                show_default=True,
                help="With --as-of: use the rows accepted by then, or all rows of today.",
            ),
            click.option(
                "--unrefreshed", is_flag=True, help="Compute the answer now, ignoring REFRESH."
            ),
            click.option(
                "--latest", is_flag=True, help="Do not wait for streams that lag behind the others."
            ),
        ]
    ):
        command = option(command)
    return form_options(command)


def _moment(as_of: str | None, knowledge: str, latest: bool) -> tuple[datetime | None, Knowledge]:
    """Return the instant and the knowledge that the options mean together, or fail."""
    if knowledge == "today" and as_of is None:
        fail("--known today needs --as-of: without it, all rows are used anyway")
    if latest and as_of is not None:
        fail("give --latest or --as-of, not both")
    moment = None if as_of is None else instant(as_of)
    return moment, "today" if knowledge == "today" else "then"


@click.command()
@click.argument("query", metavar="HANDLE|CLIENT_KEY")
@click.option("--window", show_default="the query's", help='A window such as "RANGE 1 HOUR".')
@click.option(
    "--wait", is_flag=True, help="Wait for the engine instead of computing rows on the spot."
)
@answer_options
@click.pass_obj
def invoke(
    connection: Connection,
    query: str,
    window: str | None,
    wait: bool,
    as_of: str | None,
    known_at: str,
    unrefreshed: bool,
    latest: bool,
    form: AnswerForm,
) -> None:
    """Show the current answer of a registration, by handle or by client key.

    \b
    psoup invoke dear
    psoup invoke dear --window "BEGIN NOW - 1 HOUR END NOW"
    psoup invoke dear --as-of 2026-11-16T09:00 --format json
    psoup invoke dear --format arrow --output answer.arrow
    """
    moment, knowledge = _moment(as_of, known_at, latest)
    with (
        connection.client() as client,
        client.invoke_stream(
            query,
            window=window,
            as_of=moment,
            knowledge=knowledge,
            unrefreshed=unrefreshed,
            latest=latest,
            wait_for_engine=wait,
            timeout=connection.timeout,
        ) as answer,
    ):
        write_answer(answer, form, footer)


@click.command()
@click.argument("sql", required=False)
@click.option("--file", "-f", type=FILE, help="Read the SQL from a file.")
@click.option("--param", multiple=True, metavar="NAME[:TYPE]=VALUE", help="A value for :name.")
@answer_options
@click.pass_obj
def ask(
    connection: Connection,
    sql: str | None,
    file: Path | None,
    param: tuple[str, ...],
    as_of: str | None,
    known_at: str,
    unrefreshed: bool,
    latest: bool,
    form: AnswerForm,
) -> None:
    """Show the answer of a query once, without registering it.

    \b
    psoup ask "SELECT symbol, avg(price) AS mean FROM trades GROUP BY symbol RANGE 1 HOUR"
    psoup ask "SELECT * FROM trades WHERE symbol = :s ROWS 100" --param s=IBM --format csv
    """
    moment, knowledge = _moment(as_of, known_at, latest)
    with (
        connection.client() as client,
        client.ask_stream(
            sql_text(sql, file),
            parameters=parameters(param),
            as_of=moment,
            knowledge=knowledge,
            unrefreshed=unrefreshed,
            latest=latest,
            timeout=connection.timeout,
        ) as answer,
    ):
        write_answer(answer, form, footer)


@click.command("list")
@click.option("--all", "everyone", is_flag=True, help="List the registrations of every owner.")
@click.option("--stream", metavar="NAME", help="List those over this stream or view.")
@click.option("--contains", metavar="TEXT", help="List those with this in their text or key.")
@click.option("--json", "lines", is_flag=True, help="Print a JSON object a line, for programs.")
@click.pass_obj
def list_(
    connection: Connection,
    everyone: bool,
    stream: str | None,
    contains: str | None,
    lines: bool,
) -> None:
    """List the registrations of the owner, and until when their leases run.

    `matched` is the share of its streams that the engine has matched; servers compute the other
    rows on invoke. Each invoke or sync extends the lease.

    \b
    psoup list
    psoup list --all --json
    psoup list --stream trades --contains price
    """
    with connection.client() as client:
        registrations = client.registrations(
            owner=None if everyone else client.owner(), stream=stream, contains=contains
        )
        if lines:
            for registration in registrations:
                echo(as_json(registration))
        else:
            owner = ["owner"] if everyone else []
            grid(
                ["handle", "client key", *owner, "streams", "matched", "lease until", "query"],
                [_line(registration, everyone) for registration in registrations],
                empty="no such registrations"
                if stream or contains
                else "no registrations yet; psoup register makes one",
                last_below=True,
            )


def _line(registration: Registration, everyone: bool) -> list[str]:
    legs = registration.legs or [registration]
    done, rows = sum(leg.matched_rows for leg in legs), sum(leg.stream_rows for leg in legs)
    matched = 100.0 * done / rows if rows else 100.0
    streams = ", ".join(dict.fromkeys(leg.stream for leg in legs))
    owner = [registration.owner] if everyone else []
    until = f"{registration.lease_until:%Y-%m-%dT%H:%MZ}" if registration.lease_until else ""
    query = " ".join(registration.sql.split())
    return [
        registration.hex,
        registration.key or "",
        *owner,
        streams,
        f"{matched:.0f}%",
        until,
        query,
    ]


@click.command()
@click.argument("query", metavar="HANDLE|CLIENT_KEY")
@click.pass_obj
def unregister(connection: Connection, query: str) -> None:
    """End a registration, by handle or by client key.

    \b
    psoup unregister dear
    """
    with connection.client() as client:
        client.unregister(query)
    note(f"unregistered {query}")
