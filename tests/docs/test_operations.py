"""docs/reference/flags.md and cli.md name every flag and command, as the programs have them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from psoup.cli import cli, problems
from psoup.cli.serve import serve
from psoup.command_help import parse_size
from psoup.server.options import parse_arguments
from psoup.server.settings import Settings
from psoup.web.main import make_web_parser
from tests.support.docs.markdown import code, read, table

PAGE = read("docs/reference/flags.md")
COMMANDS = read("docs/reference/cli.md")


def documented_flags(command: str) -> dict[str, str]:
    """The flags of a command and their defaults, as the page has them."""
    rows = table(PAGE, f"flag of `psoup {command}`", "default", "")
    return {code(row[0]): code(row[1]) if row[1] else "" for row in rows}


def flags_of(parser: argparse.ArgumentParser) -> Mapping[str, Any]:
    """Return the defaults of the options that a program's help shows, by flag."""
    return {
        action.option_strings[0]: action.default
        for action in parser._actions
        if action.dest != "help" and action.help != argparse.SUPPRESS
    }


def test_the_server_s_flags() -> None:
    page = documented_flags("server")
    assert list(page) == list(flags_of(make_web_parser()))
    arguments = [part for flag, default in page.items() if default for part in (flag, default)]
    assert parse_arguments(["--store", "x", *arguments]) == Settings(Path("x"))


def test_the_engine_s_flags() -> None:
    from psoup.engine.process import make_parser

    page, flags = documented_flags("engine"), flags_of(make_parser())
    assert list(page) == list(flags)
    defaults = {
        flag: "" if default in (None, False) else default for flag, default in flags.items()
    }
    for flag, default in page.items():
        assert default == (
            f"{defaults[flag]:g}" if isinstance(defaults[flag], float) else str(defaults[flag])
        )


def test_the_flags_of_serve() -> None:
    options = [option for option in serve.params if isinstance(option, click.Option)]
    flags = {
        option.opts[0]: str(option.default) if isinstance(option.default, str | int) else ""
        for option in options
    }
    assert documented_flags("serve") == flags


def test_sizes_are_written_as_the_server_reads_them() -> None:
    assert parse_size(documented_flags("server")["--memory"]) == Settings(Path()).memory


def test_protocol_names_only_flags_the_server_has() -> None:
    page = read("docs/reference/protocol.md")
    limits = table(page, "limit", "default", "flag of the server")
    assert {code(row[2]) for row in limits if row[2]} <= set(documented_flags("server"))


def _commands(group: click.Group, name: str) -> Iterator[str]:
    for part, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, f"{name} {part}")
        elif not command.hidden:
            yield f"{name} {part}"


def _documented(cell: str) -> str:
    """Return the command of a cell without its arguments, which are upper case, and options."""
    return " ".join(word for word in code(cell).split() if re.fullmatch("[a-z][a-z-]*", word))


def test_every_command_is_documented_once() -> None:
    rows = table(COMMANDS, "command", "does")
    beside = {
        f"psoup copy {word}"
        for row in rows
        for word in ("requeue", "resend", "discard")
        if f"`{word}`" in row[1]
    }
    documented = [_documented(row[0]) for row in rows]
    assert sorted([*documented, *beside]) == sorted(_commands(cli, "psoup"))


def test_every_option_of_all_commands_is_documented() -> None:
    rows = table(COMMANDS, "option of `psoup`", "variable", "")
    documented = {code(row[0]): code(row[1]) if row[1] else None for row in rows}
    options = [option for option in cli.params if isinstance(option, click.Option)]
    assert documented == {option.opts[0]: option.envvar for option in options}


def test_the_exit_codes_are_those_of_the_program() -> None:
    documented = {int(row[0]) for row in table(COMMANDS, "exit code", "when")}
    exits = {value for name, value in vars(problems).items() if name.isupper()}
    assert documented == {0} | exits
