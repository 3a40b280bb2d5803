"""psoup top: a store at work, refreshed every second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from client_sdk import ConnectionFailed
from client_sdk._session import targets_of
from psoup.cli.connection import Connection
from psoup.cli.output import as_json, draw, echo
from psoup.cli.problems import Problem
from psoup.cli.top_looks import Look, Looks
from psoup.cli.top_screen import screen
from psoup.cli.top_servers import Servers
from psoup.escaping import escaped

_RETRY_SECONDS = 1.0


@click.command()
@click.option("--once", is_flag=True, help="Look for one interval, print, and end.")
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs; needs --once.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@click.option(
    "--metrics",
    multiple=True,
    metavar="HOST:PORT",
    help="Also show calls by method, from a server's --metrics. May be repeated, for each server.",
)
@click.option(
    "--metrics-token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The token that those metrics ask for.",
)
@click.pass_obj
def top(
    connection: Connection,
    once: bool,
    as_json_: bool,
    every: float,
    metrics: tuple[str, ...],
    metrics_token_file: Path | None,
) -> None:
    """Watch a store at work: calls, rows by stream, the engine, memory, who works most.

    Asks each server that --target names, and for operators each of several on one port. Ctrl-C ends
    it.

    \b
    psoup top
    psoup --target a.example,b.example top --metrics a.example:9181 --metrics b.example:9181
    psoup top --once --json
    """
    if as_json_ and not once:
        raise click.UsageError("--json prints one look: add --once")
    # Without a fixed width, so that the screen follows the terminal's size.
    terminal = Console()
    if not once and not terminal.is_terminal:
        raise click.UsageError("this is no terminal: add --once")
    with ExitStack() as stack:
        servers = {}
        for target in targets_of(connection.target):
            single = replace(connection, target=target)
            servers[target] = stack.enter_context(closing(Servers(single.client)))
        looks = Looks(servers, every, metrics, metrics_token_file)
        if not once:
            _watch(looks, connection.target, terminal)
            return
        look = next(looks)
        if as_json_:
            echo(as_json(look))
        else:
            draw(screen(look))


def _watch(looks: Iterator[Look], target: str, terminal: Console) -> None:
    """Show looks until Ctrl-C. A store that is away is waited for."""
    with Live(Text(f"looking at {target} …"), console=terminal, screen=True) as live:
        try:
            while True:
                try:
                    live.update(screen(next(looks)), refresh=True)
                except (ConnectionFailed, Problem) as error:
                    message = escaped(getattr(error, "message", str(error)))
                    live.update(Text(f"{message}; trying again"), refresh=True)
                    time.sleep(_RETRY_SECONDS)
        except KeyboardInterrupt:
            return
