"""The options `--metrics` of commands that run for long, and the port that they open."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from psoup.addresses import parse_address
from psoup.cli.output import note
from psoup.cli.problems import fail
from psoup.cli.texts import FILE
from psoup.monitoring.settings import MonitoringSettings

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

C = TypeVar("C", bound="Collector")

_EXAMPLE = "127.0.0.1:9183"


def metrics_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options `metrics` and `metrics_token_file`."""
    command = click.option(
        "--metrics-token-file",
        type=FILE,
        help="Ask those who read /metrics for the token in this file.",
    )(command)
    return click.option(
        "--metrics",
        metavar="HOST:PORT",
        help=f"Serve /metrics there for Prometheus, such as {_EXAMPLE}.",
    )(command)


def metrics_settings(address: str | None, token_file: Path | None) -> MonitoringSettings | None:
    """Return the settings; None without --metrics. End the command if they can't be used."""
    if address is None:
        if token_file is not None:
            fail("--metrics-token-file needs --metrics HOST:PORT")
        return None
    try:
        host, port = parse_address(address, _EXAMPLE)
        settings = MonitoringSettings(host, port, token_file)
        settings.check()
    except argparse.ArgumentTypeError as error:
        fail(f"--metrics {error}")
    except ValueError as error:
        fail(str(error))
    return settings


@contextmanager
def served_metrics(
    settings: MonitoringSettings | None, make_collector: Callable[[], C]
) -> Iterator[C | None]:
    """Yield the collector that scrapes read; None without --metrics."""
    if settings is None:
        yield None
        return
    # Imported here: a command without --metrics runs without prometheus_client.
    from psoup.monitoring.port import open_port

    collector = make_collector()
    with ExitStack() as stack:
        try:
            line = stack.enter_context(open_port(settings, collector))
        except OSError as error:
            fail(str(error))
        note(line)
        yield collector
