"""A server process with a web port, if one is asked for."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence

from psoup.reloading import ReloadableOptions
from psoup.server.group.parent import Port
from psoup.server.main import Server, own_command, run
from psoup.server.options import make_parser, read_settings
from psoup.web.settings import WebSettings, add_options, read_options

PACKAGES = ("uvicorn", "httptools")


def missing_packages() -> list[str]:
    """Return the packages of the extra `web` that are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a server as `psoup.server.main.main` does, with the options of the web port beside."""
    options = ReloadableOptions(make_web_parser, "server", arguments)
    settings, web = read_settings(options.parser, options.values), read_options(options.values)
    command = own_command("psoup.web", arguments)
    if web is None:
        return run(settings, command, options)
    if missing := missing_packages():
        print(f"--web needs {', '.join(missing)}: pip install 'psoup[server,web]'", file=sys.stderr)
        return 2
    ports = [Port("--web", web.host, web.port)]
    return run(settings, command, options, lambda server: add_door(server, web), ports)


def make_web_parser() -> argparse.ArgumentParser:
    """Return the parser of a server's options, those of the web port included."""
    parser = make_parser()
    add_options(parser)
    return parser


def add_door(server: Server, settings: WebSettings) -> None:
    # Imported here, since a server without a web port runs without uvicorn.
    from psoup.web.listener import WebDoor

    server.doors.append(WebDoor(server, settings))
