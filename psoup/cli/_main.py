"""The `psoup` command group, and the options of all its commands."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
from dataclasses import replace
from typing import Any

import click

from client_sdk import DEFAULT_TARGET
from psoup import umask
from psoup.cli import (
    administer,
    backup,
    check,
    clock,
    config,
    copies,
    credentials,
    erase,
    explain,
    functions,
    health,
    keys,
    policies,
    publish,
    publishers,
    pull,
    queries,
    rebuild,
    repair,
    restore,
    serve,
    sources,
    status,
    streams,
    top,
    upgrade,
    views,
    zones,
)
from psoup.cli.connection import Connection
from psoup.cli.priority import begin_process
from psoup.cli.problems import ProblemGroup

EPILOG = """
\b
A new store; run the first line in its own terminal:
  psoup serve ./store
  psoup stream create "CREATE STREAM trades (symbol TEXT, price DOUBLE, at TIMESTAMP)
                       ORDERED BY at RETAIN 30 DAYS"
  psoup register --key dear "SELECT symbol, price FROM trades WHERE price > 100
                             BEGIN NOW - 10 MINUTES END NOW"
  psoup publish trades trades.csv.gz
  psoup invoke dear

\b
The same for a client that is usually offline, with its answers in a file:
  psoup copy keep phone.db dear "SELECT symbol, price FROM trades WHERE price > 100 RANGE 1 HOUR"
  psoup copy sync phone.db
  psoup copy rows phone.db dear

\b
A store whose callers authenticate; see also `psoup key`, `grant`, `policy` and `quota` --help:
  psoup key create root --role operator --store ./store --to root.key
  psoup --token-file root.key status
  psoup --token-file root.key audit

\b
Exit codes: 0 done, 1 refused by the store, 2 wrong usage, 3 no store at the target,
130 ended with Ctrl-C. `psoup pull` has more.
"""


def _version() -> str:
    try:
        return importlib.metadata.version("psoup")
    except importlib.metadata.PackageNotFoundError:
        return "from a checkout"


def _set_umask(text: str | None) -> None:
    """Set the umask of this command and of the processes it starts."""
    try:
        umask.set_umask(None if text is None else umask.parse_umask(text))
    except argparse.ArgumentTypeError as error:
        raise click.BadParameter(str(error)) from None
    if text is not None:
        os.environ[umask.VARIABLE] = text


@click.group(
    cls=ProblemGroup,
    epilog=EPILOG,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.option(
    "--target",
    envvar="PSOUP_TARGET",
    default=DEFAULT_TARGET,
    show_default=True,
    show_envvar=True,
    help="Where the server listens: a host, or host:port. Several servers of one store have commas "
    "between them; if one is away, the next is called.",
)
@click.option(
    "--tenant",
    envvar="PSOUP_TENANT",
    show_default="main, or that of the token",
    show_envvar=True,
    help="The tenant whose streams, publishers and registrations to use.",
)
@click.option(
    "--owner",
    envvar="PSOUP_OWNER",
    show_default="main, or that of the token",
    show_envvar=True,
    help="The owner of registrations within the tenant; each owner has its own client keys.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.001),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="The most time for the whole command, with its retries.",
)
@click.option(
    umask.OPTION,
    "rights",
    envvar=umask.VARIABLE,
    show_envvar=True,
    metavar="OCTAL",
    callback=lambda _context, _parameter, text: _set_umask(text),
    expose_value=False,
    help="The rights that new files withhold from others. By default only you can read them; a "
    "store keeps its umask. 007 lets the group in.",
)
@credentials.options
@click.version_option(_version(), prog_name="psoup")
@click.pass_context
def cli(
    context: click.Context,
    /,
    target: str,
    tenant: str | None,
    owner: str | None,
    timeout: float,
    **credential_options: Any,
) -> None:
    """Register queries, publish rows, go offline, come back and get the answers."""
    connection = context.obj if isinstance(context.obj, Connection) else Connection()
    context.obj = replace(
        connection,
        target=target,
        tenant=tenant,
        owner=owner,
        timeout=timeout,
        credentials=credentials.read(**credential_options),
    )


cli.add_command(serve.serve)
cli.add_command(serve.server)
cli.add_command(serve.engine)
cli.add_command(streams.stream)
cli.add_command(views.view)
cli.add_command(functions.function)
cli.add_command(policies.policy)
cli.add_command(publish.publish)
cli.add_command(publishers.publisher)
cli.add_command(zones.zone)
cli.add_command(sources.source)
cli.add_command(queries.register)
cli.add_command(queries.register_many)
cli.add_command(queries.invoke)
cli.add_command(queries.ask)
cli.add_command(copies.copy)
cli.add_command(pull.pull)
cli.add_command(explain.explain)
cli.add_command(queries.list_)
cli.add_command(queries.unregister)
cli.add_command(status.status)
cli.add_command(top.top)
cli.add_command(clock.clock)
cli.add_command(config.config)
cli.add_command(health.health)
cli.add_command(keys.key)
cli.add_command(repair.repair)
cli.add_command(backup.backup)
cli.add_command(restore.restore)
cli.add_command(check.check)
cli.add_command(rebuild.rebuild)
cli.add_command(upgrade.upgrade)
cli.add_command(erase.erase)
cli.add_command(administer.grant)
cli.add_command(administer.quota)
cli.add_command(administer.audit)


def main() -> None:
    begin_process()
    cli(prog_name="psoup")
