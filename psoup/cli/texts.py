"""Parsers of arguments: SQL, instants, durations, sizes, parameters, names; shared options."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TypeVar

import click

from client_sdk.pulls import parse_duration
from psoup.cli.problems import fail

_Command = TypeVar("_Command", bound=Callable[..., Any])

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

_SIZE_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*(b|kb|mb|gb|kib|mib|gib)?")
_UNIT_BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_HANDLE = re.compile(r"[0-9a-fA-F]{32}")


def sql_text(text: str | None, file: Path | None) -> str:
    """Return the statement, or the content of the file; fail unless exactly one is given."""
    if file is not None and text is None:
        return file.read_text("utf-8")
    if text is None or file is not None:
        fail("give the SQL as an argument or with --file FILE, not both")
    if len(text.split()) == 1:
        _refuse_path(text.strip())
    return text


def first_words(text: str, count: int) -> str:
    """Return the first words of a statement, in capitals, without comments."""
    words = _COMMENT.sub(" ", text).split(None, count)[:count]
    return " ".join(words).upper()


def _refuse_path(word: str) -> None:
    """Fail if a word is a file, or is named like one: say how to give a file."""
    if os.path.isfile(word):
        fail(f"{word} is a file, not SQL; write --file {word}")
    if Path(word).suffix or len(Path(word).parts) > 1:
        excerpt = word[:100]
        fail(f"{excerpt} is not SQL, and there is no such file; --file FILE reads a file")


def instant(text: str) -> datetime:
    """Return the instant of an ISO 8601 text; without an offset it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        fail(
            f"{text!r} is not an instant; write 2026-11-16T09:00:00, in UTC unless it has an offset"
        )
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def duration(text: str) -> timedelta:
    """Return the duration of a text such as 15m; fail for another text."""
    try:
        return parse_duration(text)
    except ValueError as error:
        fail(str(error))


def size(text: str) -> int:
    """Return the bytes of a text such as 100kB; fail for another text."""
    match = _SIZE_TEXT.fullmatch(text.strip().lower())
    if match is None:
        fail(f"{text!r} is not a size; write 20000, 100kB, 2MB or 1MiB")
    return int(float(match[1]) * _UNIT_BYTES[match[2] or "b"])


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return the values of `name=value` texts, by name; `option` is named in errors."""
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            fail(f"{option} {text!r}: write {option} name=value")
        values[name] = value
    return values


def parameters(texts: Iterable[str]) -> dict[str, Any]:
    """Return the values of `name=value` texts, by name.

    5, 1.5, true and null are what they look like, anything else is TEXT. `name:type=value` names
    the type: text, bigint, double, decimal, timestamp, date,
    boolean.
    """
    values = {}
    for label, text in pairs(texts, "--param").items():
        name, _, kind = label.partition(":")
        values[name] = _typed(text, kind.lower()) if kind else _guessed(text)
    return values


def _guessed(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | str | None) else text


def _typed(text: str, kind: str) -> Any:
    kinds: dict[str, Any] = {
        "text": str,
        "bigint": int,
        "double": float,
        "decimal": Decimal,
        "timestamp": instant,
        "date": date.fromisoformat,
        "boolean": {"true": True, "false": False}.__getitem__,
    }
    if kind not in kinds:
        fail(f"--param: {kind!r} is not a type; one of {', '.join(kinds)}")
    try:
        return kinds[kind](text)
    except (ValueError, KeyError, InvalidOperation):
        fail(f"--param: {text!r} is not {kind}")


def is_handle(text: str) -> bool:
    """Return whether a text is a handle: 32 hexadecimal digits."""
    return _HANDLE.fullmatch(text) is not None


def column_options(argument: str) -> Callable[[_Command], _Command]:
    """Give a command the options that fit the columns of a file to those of a stream. `argument`
    is what the command's help calls the file."""
    options = (
        click.option(
            "--rename",
            multiple=True,
            metavar="FILE_COLUMN=COLUMN",
            help=f"Map a column of {argument} to one of the stream. May be repeated.",
        ),
        click.option(
            "--drop",
            multiple=True,
            metavar="COLUMN",
            help=f"Leave out a column of {argument}. May be repeated.",
        ),
        click.option(
            "--null",
            default="",
            show_default="nothing",
            metavar="TEXT",
            help="The text for NULL in CSV.",
        ),
    )

    def decorate(command: _Command) -> _Command:
        # As with a stack of decorators, the last one is applied first.
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
