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
@click.option("--key", help="Your own name for it; registering again gives the same one.")
@click.option("--replace", is_flag=True, help="Put it in the place of another query of that key.")
@click.option("--param", multiple=True, metavar="NAME[:TYPE]=VALUE", help="A value for :name.")
@click.option("--lease", metavar="DURATION", help="How long it lives without contact, as 30d.")
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

    \b
    psoup register --key dear "SELECT * FROM trades WHERE price > 100 RANGE 10 MINUTES"
    psoup register --key dear --replace "SELECT * FROM trades WHERE price > 200 RANGE 1 HOUR"
    psoup register "SELECT * FROM trades WHERE symbol = :s" --param s=IBM
    psoup register --file query.sql --param since:timestamp=2026-11-16T09:00
    """
    if replace and not key:
        fail("--replace needs the --key of the query to replace")
    with connection.client() as client:
        made = client.register(
            sql_text(sql, file),
            key=key,
            parameters=parameters(param),
            lease=None if lease is None else duration(lease),
            replace=replace,
        )
    echo(made.hex)
    done = "registered" if made.created else "registered already"
    note("replaced" if made.replaced else done, *made.notes)


@click.command("register-many")
@click.argument("sql")
@click.argument("table", type=FILE)
@click.option("--lease", metavar="DURATION", help="How long each lives without contact, as 30d.")
@click.option("--replace", is_flag=True, help="Put them in the place of other queries of the keys.")
@click.pass_obj
def register_many(
    connection: Connection, sql: str, table: Path, lease: str | None, replace: bool
) -> None:
    """Register one text once for each row of TABLE (CSV, Parquet or an Arrow file).

    Its columns are the :names of the text, and optionally client_key. Prints the handles in the
    order of the rows; all of them are registered or none.

    \b
    psoup register-many "SELECT * FROM trades WHERE symbol = :s" watchlist.csv
    """
    with connection.client() as client:
        made = client.register_many(
            sql,
            _table(table),
            lease=None if lease is None else duration(lease),
            replace=replace,
        )
    for handle in made.handles:
        echo(handle.hex())
    known = len(made.handles) - made.created_count - made.replaced_count
    replaced = f"{made.replaced_count:,} replaced, " if made.replaced_count else ""
    note(f"{made.created_count:,} new, {replaced}{known:,} known already")


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
    """As of when, and how the answer is shown: the same for every command that gives one."""
    for option in reversed(
        [
            click.option("--as-of", metavar="INSTANT", help="The answer as of then."),
            click.option(
                "--known",
                type=click.Choice(["then", "today"]),
                default="then",
                show_default=True,
                help="Rows accepted by then, or all of today.",
            ),
            click.option("--unrefreshed", is_flag=True, help="Leave REFRESH out."),
            click.option(
                "--latest", is_flag=True, help="Wait for no stream that lags behind the others."
            ),
        ]
    ):
        command = option(command)
    return form_options(command)


def _moment(as_of: str | None, known: str, latest: bool) -> tuple[datetime | None, Knowledge]:
    """Tells what the options mean together, or refuses them as wrong usage."""
    if known == "today" and as_of is None:
        fail("--known today needs --as-of: without it everything is known anyway")
    if latest and as_of is not None:
        fail("--latest and --as-of are two instants: leave one of them out")
    moment = None if as_of is None else instant(as_of)
    return moment, "today" if known == "today" else "then"


@click.command()
@click.argument("query", metavar="HANDLE|KEY")
@click.option("--window", help='Another window, as "BEGIN NOW - 1 HOUR END NOW".')
@click.option("--wait", is_flag=True, help="For the engine: compute no rows on the spot.")
@answer_options
@click.pass_obj
def invoke(
    connection: Connection,
    query: str,
    window: str | None,
    wait: bool,
    as_of: str | None,
    known: str,
    unrefreshed: bool,
    latest: bool,
    form: AnswerForm,
) -> None:
    """The current answer of a registration, by handle or by key.

    \b
    psoup invoke dear
    psoup invoke dear --window "BEGIN NOW - 1 HOUR END NOW"
    psoup invoke dear --as-of 2026-11-16T09:00 --format json
    psoup invoke dear --format arrow --output answer.arrow
    """
    moment, knowledge = _moment(as_of, known, latest)
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
    known: str,
    unrefreshed: bool,
    latest: bool,
    form: AnswerForm,
) -> None:
    """The answer of a query, once, without registering it.

    \b
    psoup ask "SELECT symbol, avg(price) AS mean FROM trades GROUP BY symbol RANGE 1 HOUR"
    psoup ask "SELECT * FROM trades WHERE symbol = :s ROWS 100" --param s=IBM --format csv
    """
    moment, knowledge = _moment(as_of, known, latest)
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
@click.option("--all", "everyone", is_flag=True, help="Of every owner.")
@click.option("--json", "lines", is_flag=True, help="For programs: one object a line.")
@click.pass_obj
def list_(connection: Connection, everyone: bool, lines: bool) -> None:
    """The registrations of the owner, and how long each lives if nobody asks for it.

    `matched` is how much of its streams the engine has matched already; the rest is computed when
    it is asked for. `lease until` moves on whenever it is invoked or synced.
    """
    with connection.client() as client:
        found = client.registrations(owner=None if everyone else client.owner())
        if lines:
            for each in found:
                echo(as_json(each))
        else:
            owner = ["owner"] if everyone else []
            grid(
                ["handle", "key", *owner, "streams", "matched", "lease until", "query"],
                [_line(each, everyone) for each in found],
                empty="no registrations yet; psoup register makes one",
                last_below=True,
            )


def _line(each: Registration, everyone: bool) -> list[str]:
    legs = each.legs or [each]
    done, rows = sum(leg.matched_rows for leg in legs), sum(leg.stream_rows for leg in legs)
    matched = 100.0 * done / rows if rows else 100.0
    streams = ", ".join(dict.fromkeys(leg.stream for leg in legs))
    owner = [each.owner] if everyone else []
    until = f"{each.lease_until:%Y-%m-%dT%H:%MZ}" if each.lease_until else ""
    query = " ".join(each.sql.split())
    return [each.hex, each.key or "", *owner, streams, f"{matched:.0f}%", until, query]


@click.command()
@click.argument("query", metavar="HANDLE|KEY")
@click.pass_obj
def unregister(connection: Connection, query: str) -> None:
    """End a registration, by handle or by key."""
    with connection.client() as client:
        client.unregister(query)
    note(f"unregistered {query}")
