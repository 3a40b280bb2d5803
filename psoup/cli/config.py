"""psoup config: the options of server and engine, and where they come from."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import click

from psoup import configuration
from psoup.cli.output import echo
from psoup.cli.problems import fail
from psoup.cli.serve import require

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group()
def config() -> None:
    """Check the file with the options of server and engine, and show where they come from.

    \b
    psoup config check psoup.toml
    psoup config show server
    """


@config.command()
@click.argument("file", type=_FILE)
def check(file: Path) -> None:
    """Look whether server and engine can use FILE, and start nothing.

    \b
    psoup config check /etc/psoup/psoup.toml
    """
    try:
        content = configuration.read_file(file)
        known: set[tuple[str, str]] = set()
        count = 0
        for process in configuration.PROCESSES:
            parser = _parser(process)
            settings = configuration.configured(parser, process, content, {})
            count += len(settings)
            known |= {(table, key) for key, table, _ in configuration.keys_of(parser)}
        for table in configuration.GROUPS:
            for key in content.tables.get(table, {}):
                if (table, key) not in known:
                    fail(f"{file} [{table}] {key}: there is no such key")
    except configuration.BadConfiguration as error:
        fail(str(error))
    echo(f"{file} is right: {count} settings")


@config.command()
@click.argument("process", type=click.Choice(configuration.PROCESSES))
@click.option("--config", "file", type=_FILE, metavar="FILE", help="The file to read.")
@click.option("--json", "as_json", is_flag=True, help="Write an object of JSON.")
def show(process: str, file: Path | None, as_json: bool) -> None:
    """Show each option of PROCESS and where its value comes from.

    \b
    psoup config show server
    psoup config show engine --config psoup.toml --json
    """
    parser = _parser(process)
    try:
        content = configuration.read_file(file)
        settings = configuration.configured(parser, process, content, os.environ)
    except configuration.BadConfiguration as error:
        fail(str(error))
    given = {setting.key: setting for setting in settings}
    lines = []
    for key, _, action in configuration.keys_of(parser):
        if key in given:
            lines.append((key, ", ".join(given[key].values) or "false", given[key].source))
        else:
            lines.append((key, _default(action), "default"))
    if as_json:
        values = {key: {"value": value, "from": source} for key, value, source in lines}
        echo(json.dumps(values, indent=2))
        return
    width = max(len(key) for key, _, _ in lines)
    for key, value, source in lines:
        echo(f"{key:<{width}}  {value or '-':<20}  {source}")


def _default(action: argparse.Action) -> str:
    if action.default is None or action.default is False or action.default == []:
        return ""
    return f"{action.default:g}" if isinstance(action.default, float) else str(action.default)


def _parser(process: str) -> argparse.ArgumentParser:
    """Return the parser of a process. It is imported here, since a client does without."""
    require(process)
    if process == "engine":
        from psoup.engine.process import make_parser

        return make_parser()
    from psoup.web.main import make_web_parser

    return make_web_parser()
