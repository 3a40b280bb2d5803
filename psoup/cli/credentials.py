"""The options before the command that authenticate the store and the caller."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from client_sdk import Credentials
from psoup.cli.problems import fail

# A token is never an option: every user of a machine can see the arguments of its processes.
TOKEN_VARIABLE = "PSOUP_TOKEN"

_FILE = click.Path(dir_okay=False, path_type=Path)
_OPTIONS = [
    click.option(
        "--token-file",
        type=_FILE,
        envvar="PSOUP_TOKEN_FILE",
        show_envvar=True,
        metavar="FILE",
        show_default=f"what {TOKEN_VARIABLE} has",
        help="A file with the access key or JWT to authenticate with.",
    ),
    click.option(
        "--tls",
        is_flag=True,
        envvar="PSOUP_TLS",
        show_envvar=True,
        help="Use TLS, and trust the system's certificate authorities.",
    ),
    click.option(
        "--tls-ca",
        type=_FILE,
        envvar="PSOUP_TLS_CA",
        show_envvar=True,
        metavar="FILE",
        help="Use TLS, and trust these certificate authorities, PEM.",
    ),
    click.option(
        "--tls-cert",
        type=_FILE,
        envvar="PSOUP_TLS_CERT",
        show_envvar=True,
        metavar="FILE",
        help="The client's certificate, PEM.",
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
        help="Send the token to another machine without TLS, where others can read it.",
    ),
]


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command."""
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
    """Return the credentials, or None without any; raise a Problem if they do not fit together."""
    token = None if token_file is not None else os.environ.get(TOKEN_VARIABLE) or None
    if not (token or token_file or tls or tls_ca or tls_cert or tls_key):
        return None
    try:
        return Credentials(token, token_file, tls_ca, tls_cert, tls_key, tls, plaintext_token)
    except ValueError as error:
        fail(str(error).replace("cert and key", "--tls-cert and --tls-key"))
