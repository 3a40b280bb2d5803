"""psoup serve, server, engine: the processes of a store."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import click

from psoup import lifeline
from psoup.cli.problems import fail
from psoup.cli.supervisor import Supervisor

_NEEDS = {
    "server": (
        "cryptography",
        "deltalake",
        "grpc_health",
        "grpc_reflection",
        "intervaltree",
        "jwt",
        "numpy",
        "pyroaring",
        "sqlglot",
    ),
    "engine": ("deltalake", "intervaltree", "pyspark"),
}
FILE = click.Path(dir_okay=False, path_type=Path)
_PASS = {"ignore_unknown_options": True, "help_option_names": []}


@click.command(context_settings=_PASS)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def server(arguments: tuple[str, ...]) -> None:
    """Run one server, as `python -m psoup.server`; --help shows its options.

    \b
    psoup server --store ./store --port 7182
    """
    _become("server", arguments)


@click.command(context_settings=_PASS)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def engine(arguments: tuple[str, ...]) -> None:
    """Run the engine, as `python -m psoup.engine`; --help shows its options.

    \b
    psoup engine --store ./store --master spark://host:7077
    """
    _become("engine", arguments)


def _become(part: str, arguments: tuple[str, ...]) -> None:
    require(part)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", f"psoup.{part}", *arguments])


def require(part: str) -> None:
    """Fails with the line to type where the packages of a part are not installed."""
    missing = [name for name in _NEEDS[part] if importlib.util.find_spec(name) is None]
    if missing:
        fail(
            f"the {part} needs {', '.join(missing)}, which the base install leaves out:\n"
            f"  pip install 'psoup[{part}]'"
        )


@click.command()
@click.argument("store", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--listen",
    default="127.0.0.1:7181",
    show_default=True,
    metavar="HOST:PORT",
    help="Port 0 takes any that is free.",
)
@click.option("--no-engine", is_flag=True, help="Only the server; answers are complete without.")
@click.option("--master", metavar="URL", help="The engine's Spark master, as local[2].")
@click.option("--tls-cert", type=FILE, metavar="FILE", help="The server's certificate, PEM.")
@click.option("--tls-key", type=FILE, metavar="FILE", help="Its private key, PEM.")
@click.option("--tls-client-ca", type=FILE, metavar="FILE", help="Ask for client certificates.")
@click.option(
    "--auth",
    multiple=True,
    type=click.Choice(["keys", "jwt", "certificates", "none"]),
    help="How callers show who they are; may be repeated. Left out: keys, where the store has any.",
)
@click.option("--jwt-keys", metavar="FILE|URL", help="The JWKS of the issuer of JWTs.")
@click.option("--jwt-issuer", metavar="ISS", help="The issuer that JWTs must name.")
@click.option("--jwt-audience", metavar="AUD", help="The audience that JWTs must name.")
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen beyond this machine without TLS or authentication.",
)
def serve(
    store: Path,
    listen: str,
    no_engine: bool,
    master: str | None,
    **identity: Any,
) -> None:
    """Run a store over a local folder: one server, one engine, until Ctrl-C.

    By itself it listens on this machine only. Elsewhere it needs TLS, and callers who show who they
    are.

    \b
    psoup serve ./store
    psoup serve ./store --master 'local[4]'
    psoup serve ./store --listen 0.0.0.0:7181 --auth keys --tls-cert server.pem --tls-key server.key
    """
    require("server")
    if not no_engine:
        require("engine")
    host, port = address(listen)
    listening = ("--host", host, "--port", str(port))
    commands = {"server": command("server", store, *listening, *forwarded(identity))}
    if not no_engine:
        commands["engine"] = command("engine", store, *(["--master", master] if master else []))
    target = _reachable(host, port)
    tls, tokens = bool(identity["tls_cert"]), not {"keys", "jwt"}.isdisjoint(identity["auth"])
    supervisor = Supervisor(commands, target, store, _store_id, tls=tls, tokens=tokens)
    _stop_on_signals(supervisor.stopping)
    sys.exit(supervisor.run())


def forwarded(identity: Mapping[str, Any]) -> list[str]:
    """The options of a server that `serve` has too, as they were given."""
    words: list[str] = []
    for name, value in identity.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words += [option] * value
        else:
            values = value if isinstance(value, tuple) else () if value is None else (value,)
            words += [word for one in values for word in (option, str(one))]
    return words


def command(part: str, store: Path, *options: str) -> list[str]:
    """The command that starts a server or an engine over a folder; it ends with this process."""
    start = [sys.executable, "-u", "-m", f"psoup.{part}", "--store", str(store)]
    return [*start, lifeline.OPTION, *options]


def address(listen: str) -> tuple[str, int]:
    """Host and port; a port of 0 is replaced by a free one."""
    host, _, digits = listen.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not digits.isdigit() or int(digits) > 65535:
        fail(f"--listen {listen!r}: write HOST:PORT, as 127.0.0.1:7181")
    return host, int(digits) or _free_port(host)


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _reachable(host: str, port: int) -> str:
    """The address at which a client on this machine finds the server."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{here}]:{port}" if ":" in here else f"{here}:{port}"


def _store_id(folder: Path) -> str:
    """The id of the store in a folder; empty where there is none."""
    # Only here: the base install can't open stores.
    from psoup.store import Store, StoreError

    try:
        return Store.open(folder).id
    except StoreError:
        return ""


def _stop_on_signals(stopping: threading.Event) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
