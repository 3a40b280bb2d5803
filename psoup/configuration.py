"""Options of a process from a file and from the environment.

The list of options is the parser's own: a key of the file is the name of a flag. A flag on the
command line wins over a variable of the environment, that over the file, and that over the default.

    [server]
    store = "/var/lib/psoup/store"
    memory = "4GB"

    [metrics]
    metrics = "127.0.0.1:9181"

Options of a group of flags, such as `metrics`, stand in a table of that name, or in the table of
the process, which wins.
"""

from __future__ import annotations

import argparse
import difflib
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FLAG = "--config"
VARIABLE = "PSOUP_CONFIG"
PROCESSES = ("server", "engine")
# The groups of flags that have a table of their own.
GROUPS = ("web", "identity", "log", "metrics")
_FILE_NAME = "psoup.toml"
# Keys of such a table that only one of the processes that have the group reads.
_ONE_PROCESS_KEYS = frozenset({("log", "log-calls")})
# Flags that only a parent process gives, or that make no sense in a file.
_NOT_IN_FILES = frozenset({"help", "config", "end-with-stdin", "group"})


class BadConfiguration(ValueError):
    """A file or variable that can't be used; the message says which, and what to do."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of a flag as text, and where it comes from. A flag that may be repeated has several
    values."""

    key: str
    values: tuple[str, ...]
    source: str


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        FLAG,
        type=Path,
        metavar="FILE",
        help=f"take options from this TOML file; without it from ./{_FILE_NAME}, or that of the "
        "user's or the machine's configuration",
    )


def parse_configured(
    parser: argparse.ArgumentParser, process: str, arguments: Sequence[str] | None
) -> argparse.Namespace:
    """Return the options of a process. End it with code 2 if something can't be used."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_option(first)
    named, _ = first.parse_known_args(arguments)
    try:
        settings = configured(parser, process, read_file(named.config), os.environ)
        for setting in settings:
            _set_default(_options(parser)[setting.key][1], setting)
    except BadConfiguration as error:
        parser.error(str(error))
    return parser.parse_args(arguments)


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """The tables of a file. Without one there are none, and `path` is None."""

    path: Path | None
    tables: Mapping[str, Mapping[str, Any]]


def read_file(path: Path | None) -> ConfigurationFile:
    """Read the file of this path, or the first of the usual ones. Raise BadConfiguration."""
    if path is None and (text := os.environ.get(VARIABLE)):
        path = Path(text)
    if path is None:
        path = next(filter(Path.is_file, _usual_places()), None)
    if path is None:
        return ConfigurationFile(None, {})
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
            others_may_write = bool(os.fstat(file.fileno()).st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    except OSError as error:
        raise BadConfiguration(f"{path} can't be read: {error.strerror}") from None
    except ValueError as error:
        raise BadConfiguration(f"{path}: {error}") from None
    for name, table in content.items():
        if name not in (*PROCESSES, *GROUPS):
            hint = _suggestion(name, (*PROCESSES, *GROUPS))
            raise BadConfiguration(f"{path}: there is no table [{name}]; {hint}")
        if not isinstance(table, Mapping):
            raise BadConfiguration(f"{path}: {name} must be a table, as [{name}]")
    if others_may_write and "identity" in content:
        raise BadConfiguration(
            f"{path} says who may call, and other users may change it: chmod go-w {path}"
        )
    return ConfigurationFile(path, content)


def configured(
    parser: argparse.ArgumentParser,
    process: str,
    file: ConfigurationFile,
    environment: Mapping[str, str],
) -> list[Setting]:
    """Return the settings of a process that the file and the environment give, in the order of the
    flags. Raise BadConfiguration."""
    options = _options(parser)
    _check_keys(file, process, options)
    settings = []
    for key, (table, action) in options.items():
        setting = None
        # The later ones win.
        for name in dict.fromkeys((table, process)):
            values = file.tables.get(name, {})
            if key in values:
                place = f"{file.path} [{name}] {key}"
                setting = Setting(key, _texts(action, values[key], place), place)
        for name in dict.fromkeys((table, process)):
            if (text := environment.get(variable(name, key))) is not None:
                place = variable(name, key)
                setting = Setting(key, _variable_texts(action, text, place), place)
        if setting is not None:
            _check_values(action, setting)
            settings.append(setting)
    return settings


def variable(table: str, key: str) -> str:
    """Return the name of the variable for a key: PSOUP_SERVER_MEMORY; PSOUP_LOG for log.log."""
    words = ["psoup", table] if key == table else ["psoup", table, key]
    return "_".join(words).replace("-", "_").upper()


def keys_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.Action]]:
    """Yield the key of each flag that a file may have, the table it stands in ("" for that of the
    process), and what the parser does with it."""
    tables = {
        action.dest: group.title.split(" ")[0]
        for group in parser._action_groups
        if group.title and group.title.split(" ")[0] in GROUPS
        for action in group._group_actions
    }
    for action in parser._actions:
        if action.help is argparse.SUPPRESS or not action.option_strings:
            continue
        key = action.option_strings[-1].removeprefix("--")
        if key not in _NOT_IN_FILES:
            yield key, tables.get(action.dest, ""), action


def _options(parser: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.Action]]:
    """Return by key the table of each flag, and its action."""
    process = parser.prog.rpartition(" ")[2]
    return {key: (table or process, action) for key, table, action in keys_of(parser)}


def _usual_places() -> Iterator[Path]:
    yield Path(_FILE_NAME)
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    yield Path(home) / "psoup" / _FILE_NAME
    yield Path("/etc/psoup") / _FILE_NAME


def _check_keys(
    file: ConfigurationFile, process: str, options: Mapping[str, tuple[str, argparse.Action]]
) -> None:
    """Raise BadConfiguration for a key that this process does not know, in its own table or in that
    of a group that it has."""
    for name in dict.fromkeys((process, *(table for table, _ in options.values()))):
        keys = [key for key, (table, _) in options.items() if name in (process, table)]
        for key in file.tables.get(name, {}):
            if key not in keys and (name, key) not in _ONE_PROCESS_KEYS:
                hint = _suggestion(key, keys)
                raise BadConfiguration(f"{file.path} [{name}] {key}: there is no such key; {hint}")


def _suggestion(name: str, names: Sequence[str] | Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, list(names), 1)
    return f"did you mean {near[0]}?" if near else f"one of {', '.join(names)}"


def _texts(action: argparse.Action, value: Any, place: str) -> tuple[str, ...]:
    """Return the values of a key of the file as the texts that a command line would have."""
    if isinstance(action, argparse._StoreTrueAction):
        if not isinstance(value, bool):
            raise BadConfiguration(f"{place}: true or false, not {value!r}")
        return ("true",) if value else ()
    values = value if isinstance(value, list) else [value]
    if isinstance(value, list) and not isinstance(action, argparse._AppendAction):
        raise BadConfiguration(f"{place}: one value, not a list")
    for item in values:
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise BadConfiguration(f"{place}: a text or a number, not {item!r}")
    return tuple(map(str, values))


def _variable_texts(action: argparse.Action, text: str, place: str) -> tuple[str, ...]:
    if isinstance(action, argparse._StoreTrueAction):
        if text.lower() not in ("true", "false", "1", "0"):
            raise BadConfiguration(f"{place}: true or false, not {text!r}")
        return ("true",) if text.lower() in ("true", "1") else ()
    return tuple(text.split(",")) if isinstance(action, argparse._AppendAction) else (text,)


def _check_values(action: argparse.Action, setting: Setting) -> None:
    """Raise BadConfiguration for a value that the flag would refuse."""
    if isinstance(action, argparse._StoreTrueAction):
        return
    for text in setting.values:
        try:
            value = action.type(text) if callable(action.type) else text
        except (ValueError, TypeError, argparse.ArgumentTypeError) as error:
            message = str(error) if isinstance(error, argparse.ArgumentTypeError) else repr(text)
            raise BadConfiguration(f"{setting.source}: {message} can't be used") from None
        if action.choices is not None and value not in action.choices:
            choices = ", ".join(map(str, action.choices))
            raise BadConfiguration(f"{setting.source}: {text!r} is not one of {choices}")


def _set_default(action: argparse.Action, setting: Setting) -> None:
    action.required = False
    if isinstance(action, argparse._StoreTrueAction):
        action.default = bool(setting.values)
    elif isinstance(action, argparse._AppendAction):
        parse = action.type if callable(action.type) else str
        action.default = [parse(text) for text in setting.values]
    else:
        # argparse reads a default that is a text as it reads a value.
        (action.default,) = setting.values
