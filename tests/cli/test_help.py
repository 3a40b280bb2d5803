"""Every command teaches: its help says what it does, has an example, and explains every option."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module

import click
import pytest

from benchmarks.store.command import measure_store
from psoup.cli import cli

# The options of these are those of a parser of their own, which is tested below.
PASSED_THROUGH = {"psoup server", "psoup engine"}


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command of a tree, with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, f"{path} {name}")


COMMANDS = {**dict(commands(cli, "psoup")), "benchmarks/run store": measure_store}


def help_text(path: str) -> str:
    """Return the help of a command as a user sees it, with the settings of the groups above it."""
    context = click.Context(cli, info_name="psoup", **cli.context_settings)
    with click.Context(COMMANDS[path], parent=context, info_name=path) as child:
        return COMMANDS[path].get_help(child)


@pytest.mark.parametrize("path", COMMANDS)
def test_help_says_what_a_command_does_and_gives_an_example(path: str) -> None:
    command = COMMANDS[path]
    described = f"{command.help or ''}\n{command.epilog or ''}"
    assert command.get_short_help_str().strip(), path
    lines = [line.strip() for line in described.splitlines()]
    program, _, words = path.partition(" ")
    examples = [line for line in lines if line.startswith(f"{program} ")]
    assert any(words in line for line in examples), f"{path} has no example"


@pytest.mark.parametrize("path", sorted(COMMANDS.keys() - PASSED_THROUGH))
def test_every_option_has_a_text_and_shows_its_default(path: str) -> None:
    help_page = " ".join(help_text(path).split())
    for option in COMMANDS[path].params:
        if not isinstance(option, click.Option):
            continue
        assert (option.help or "").strip(), f"{path} {option.opts[0]} has no text"
        assert " ".join(str(option.help).split()) in help_page
        if isinstance(option.show_default, str):
            assert f"default: ({option.show_default})" in help_page, f"{path} {option.opts[0]}"
        elif option.default and option.default is not True and not callable(option.default):
            has_default = isinstance(option.default, str | int | float)
            assert not has_default or f"default: {option.default}" in help_page, (
                path,
                option.opts[0],
            )


@pytest.mark.parametrize("part", ["server", "engine"])
def test_server_and_engine_explain_every_option(part: str) -> None:
    module = "psoup.server.options" if part == "server" else "psoup.engine.process"
    parser = import_module(module).make_parser()
    help_page = " ".join(parser.format_help().split())
    assert f"psoup {part} --store" in help_page
    for action in parser._actions:
        option = action.option_strings[0]
        assert action.help, f"psoup {part} {option} has no text"
        default = action.default
        if default not in (None, False, argparse.SUPPRESS):
            text = f"{default:g}" if isinstance(default, float) else str(default)
            assert f"(default: {text})" in help_page, option
