"""The options before the command that say how to know the store and who calls."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from client_sdk import Credentials
from psoup.cli.problems import fail

# A token stands in no option: every user of a machine can see the arguments of its processes.
TOKEN = "PSOUP_TOKEN"

_FILE = click.Path(dir_okay=False, path_type=Path)
_OPTIONS = [
    click.option(
        "--token-file",
        type=_FILE,
        envvar="PSOUP_TOKEN_FILE",
        show_envvar=True,
        metavar="FILE",
        help=f"A file with the key or JWT to show. Without it, what {TOKEN} has.",
    ),
    click.option(
        "--tls",
        is_flag=True,
        envvar="PSOUP_TLS",
        show_envvar=True,
        help="Encrypt; trust the system's CAs.",
    ),
    click.option(
        "--tls-ca",
        type=_FILE,
        envvar="PSOUP_TLS_CA",
        show_envvar=True,
        metavar="FILE",
        help="Encrypt; trust stores with a certificate of these authorities, PEM.",
    ),
    click.option(
        "--tls-cert",
        type=_FILE,
        envvar="PSOUP_TLS_CERT",
        show_envvar=True,
        metavar="FILE",
        help="The client's own certificate, PEM.",
    ),
    click.option(
        "--tls-key",
        type=_FILE,
        envvar="PSOUP_TLS_KEY",
        show_envvar=True,
        metavar="FILE",
        help="The private key of --tls-cert, PEM.",
    ),
    click.option(
        "--plaintext-token",
        is_flag=True,
        help="Show the token to another machine without TLS: anyone on the way can take it.",
    ),
]


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read(
    token_file: Path | None,
    tls: bool,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    plaintext_token: bool,
) -> Credentials | None:
    """The credentials; None where nothing was said. Fails where they don't fit together."""
    token = None if token_file is not None else os.environ.get(TOKEN) or None
    if not (token or token_file or tls or tls_ca or tls_cert or tls_key):
        return None
    try:
        return Credentials(token, token_file, tls_ca, tls_cert, tls_key, tls, plaintext_token)
    except ValueError as error:
        fail(str(error).replace("cert and key", "--tls-cert and --tls-key"))
