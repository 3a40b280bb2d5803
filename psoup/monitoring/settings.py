"""The settings of the port for monitoring, and their options."""

from __future__ import annotations

import argparse
import importlib.util
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from psoup.addresses import is_loopback, parse_address

DEFAULT_METRIC_NAMES = 1000
_MAX_TOKEN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class MonitoringSettings:
    """The address of the port, the file with the token that a scrape has to show, and how many
    tenants and streams are named before the others count together."""

    host: str
    port: int
    token_file: Path | None = None
    names: int = DEFAULT_METRIC_NAMES

    def check(self) -> None:
        """Raise ValueError if other machines reach the port and there is no token, or if the
        package that writes metrics is missing."""
        if self.token_file is None and not is_loopback(self.host):
            raise ValueError(
                f"--metrics on {self.host} would show metrics to everyone who reaches it; give "
                "--metrics-token-file, or an address of this machine such as 127.0.0.1:9181"
            )
        if importlib.util.find_spec("prometheus_client") is None:
            raise ValueError("--metrics needs prometheus_client: pip install 'psoup[metrics]'")
        if self.token_file is not None:
            self.token()

    def token(self) -> bytes | None:
        """Return the token, read from its file anew; None if none is asked for. Raise ValueError if
        there is none in the file."""
        if self.token_file is None:
            return None
        try:
            with self.token_file.open("rb") as file:
                token = file.read(_MAX_TOKEN_BYTES).strip()
        except OSError as error:
            raise ValueError(f"{self.token_file} can't be read: {error.strerror}") from None
        if not token or not token.isascii() or any(byte <= 32 for byte in token):
            raise ValueError(f"{self.token_file} holds no token: one line without spaces")
        return token


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("metrics (docs/how-to/monitor.md)")
    group.add_argument(
        "--metrics",
        type=partial(parse_address, example="127.0.0.1:9181"),
        metavar="HOST:PORT",
        help="serve /metrics, /livez and /readyz there, such as 127.0.0.1:9181",
    )
    group.add_argument(
        "--metrics-token-file",
        type=Path,
        metavar="FILE",
        help="ask those who read /metrics for the token in this file",
    )
    group.add_argument(
        "--metric-names",
        type=int,
        default=DEFAULT_METRIC_NAMES,
        metavar="COUNT",
        help="tenants and streams that metrics name; the others count together as `other`",
    )


def read_options(
    parser: argparse.ArgumentParser, options: argparse.Namespace
) -> MonitoringSettings | None:
    """Return the settings; None without --metrics. End the process if they can't be used."""
    if options.metrics is None:
        if options.metrics_token_file is not None:
            parser.error("--metrics-token-file needs --metrics HOST:PORT")
        return None
    host, port = options.metrics
    names = max(0, options.metric_names)
    settings = MonitoringSettings(host, port, options.metrics_token_file, names)
    try:
        settings.check()
    except ValueError as error:
        parser.error(str(error))
    return settings
