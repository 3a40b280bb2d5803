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
from psoup.cli.problems import complain, fail
from psoup.cli.supervisor import Supervisor

_REQUIRED_PACKAGES = {
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
    "engine": ("deltalake", "pyspark"),
    "web": ("httptools", "uvicorn"),
    "s3": ("obstore",),
}
# The server with its web port, which is a layer above it.
_MODULES = {"server": "psoup.web", "engine": "psoup.engine"}
_WEB_ADDRESS = "127.0.0.1:7180"
FILE = click.Path(dir_okay=False, path_type=Path)
# The options of server and engine, --help too, are those of their own parsers.
_PASS_THROUGH = {"ignore_unknown_options": True, "help_option_names": []}


@click.command(context_settings=_PASS_THROUGH)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def server(arguments: tuple[str, ...]) -> None:
    """Run one server of a store; --help shows its options.

    \b
    psoup server --store ./store --port 7182
    """
    _become("server", arguments)


@click.command(context_settings=_PASS_THROUGH)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def engine(arguments: tuple[str, ...]) -> None:
    """Run the engine of a store; --help shows its options.

    \b
    psoup engine --store ./store --master spark://host:7077
    """
    _become("engine", arguments)


def _become(part: str, arguments: tuple[str, ...]) -> None:
    require(part)
    # What Python has buffered would be lost when the process image is replaced.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", _MODULES[part], *arguments])


def require(part: str) -> None:
    """Fail with the command to type if the packages of a part are not installed."""
    if missing := _missing(part):
        fail(
            f"the {part} needs {', '.join(missing)}, which the base install leaves out:\n"
            f"  pip install 'psoup[{part}]'"
        )


def _missing(part: str) -> list[str]:
    return [name for name in _REQUIRED_PACKAGES[part] if importlib.util.find_spec(name) is None]


@click.command()
@click.argument("store", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--listen",
    default="127.0.0.1:7181",
    show_default=True,
    metavar="HOST:PORT",
    help="The address to listen on; port 0 chooses a free one.",
)
@click.option(
    "--web",
    metavar="HOST:PORT",
    show_default=_WEB_ADDRESS,
    help="The address of the web port, for HTTP and the console.",
)
@click.option("--no-web", is_flag=True, help="Open no web port.")
@click.option(
    "--web-host",
    multiple=True,
    metavar="NAME",
    help="A name of the web port beside those of the certificate. May be repeated.",
)
@click.option(
    "--web-origin",
    multiple=True,
    metavar="ORIGIN",
    help="A site whose pages may use the web port. May be repeated.",
)
@click.option("--no-console", is_flag=True, help="Leave the console out of the web port.")
@click.option(
    "--servers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="COUNT",
    help="Servers on these ports, each a process; they share all limits and quotas.",
)
@click.option(
    "--no-engine",
    is_flag=True,
    help="Run only the server; answers are complete without the engine.",
)
@click.option("--master", metavar="URL", show_default="local[*]", help="The engine's Spark master.")
@click.option("--tls-cert", type=FILE, metavar="FILE", help="The server's certificate, PEM.")
@click.option("--tls-key", type=FILE, metavar="FILE", help="The private key of --tls-cert, PEM.")
@click.option(
    "--tls-client-ca",
    type=FILE,
    metavar="FILE",
    help="Accept only clients with a certificate of these authorities, PEM.",
)
@click.option(
    "--auth",
    multiple=True,
    type=click.Choice(["keys", "jwt", "certificates", "none"]),
    show_default="keys if the store has any, else anyone may call",
    help="How callers prove who they are. May be repeated.",
)
@click.option("--jwt-keys", metavar="FILE|URL", help="The JWKS of the issuer of JWTs.")
@click.option("--jwt-issuer", metavar="ISS", help="The issuer that JWTs must name.")
@click.option("--jwt-audience", metavar="AUD", help="The audience that JWTs must name.")
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow other machines to connect without TLS or authentication.",
)
def serve(
    store: Path,
    listen: str,
    web: str | None,
    no_web: bool,
    servers: int,
    no_engine: bool,
    master: str | None,
    web_host: tuple[str, ...],
    web_origin: tuple[str, ...],
    no_console: bool,
    **identity: Any,
) -> None:
    """Run a store over a local folder: one server, one engine, until Ctrl-C.

    By default only this machine can connect. For others it needs TLS and --auth.

    \b
    psoup serve ./store
    psoup serve ./store --master 'local[4]'
    psoup serve ./store --listen 0.0.0.0:7181 --auth keys --tls-cert server.pem --tls-key server.key
    """
    require("server")
    if not no_engine:
        require("engine")
    host, port = address(listen)
    listening = ["--host", host, "--port", str(port), "--servers", str(servers)]
    if not no_web and (place := _web_address(web)) is not None:
        web_options = {"web_host": web_host, "web_origin": web_origin, "no_console": no_console}
        listening += ["--web", place, *forwarded(web_options)]
    commands = {"server": command("server", store, *listening, *forwarded(identity))}
    if not no_engine:
        commands["engine"] = command("engine", store, *(["--master", master] if master else []))
    target = _reachable(host, port)
    tls, tokens = bool(identity["tls_cert"]), not {"keys", "jwt"}.isdisjoint(identity["auth"])
    supervisor = Supervisor(commands, target, store, _store_id, tls=tls, tokens=tokens)
    _stop_on_signals(supervisor.stopping)
    sys.exit(supervisor.run())


def forwarded(identity: Mapping[str, Any]) -> list[str]:
    """Return the server's options that `serve` has too, as words of a command."""
    words: list[str] = []
    for name, value in identity.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words += [option] * value
        else:
            values = value if isinstance(value, tuple) else () if value is None else (value,)
            words += [word for argument in values for word in (option, str(argument))]
    return words


def command(part: str, store: Path, *options: str) -> list[str]:
    """Return the command that starts a server or an engine, which ends with this process."""
    start = [sys.executable, "-u", "-m", _MODULES[part], "--store", str(store)]
    return [*start, lifeline.OPTION, *options]


def address(listen: str, option: str = "--listen") -> tuple[str, int]:
    """Return host and port; port 0 is replaced by a free one."""
    host, _, digits = listen.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not digits.isdigit() or int(digits) > 65535:
        fail(f"{option} {listen!r}: write HOST:PORT, as 127.0.0.1:7181")
    return host, int(digits) or _free_port(host)


def _web_address(web: str | None) -> str | None:
    """Return the address of the web port; None, after a line that says why, if there is none by
    default."""
    if web is not None:
        require("web")
        host, port = address(web, "--web")
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if missing := _missing("web"):
        complain(f"no web port: it needs {', '.join(missing)}: pip install 'psoup[web]'")
        return None
    host, port = address(_WEB_ADDRESS)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            complain(f"no web port: {_WEB_ADDRESS} is taken; --web HOST:PORT names another one")
            return None
    return _WEB_ADDRESS


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _reachable(host: str, port: int) -> str:
    """Return the address at which a client on this machine reaches the server."""
    local_host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{local_host}]:{port}" if ":" in local_host else f"{local_host}:{port}"


def _store_id(folder: Path) -> str:
    """Return the id of the store in a folder; empty if there is no store."""
    # Imported here, since the base install can't open stores.
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
