"""The keys of pulls.toml: which there are, and how each value is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from client_sdk._values import Scalar
from client_sdk.pulls._durations import parse_duration
from client_sdk.pulls._sinks import FORMATS

Reader = Callable[[Any, Path], Any]


def _text(value: Any, folder: Path) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not empty")
    return value


def _flag(value: Any, folder: Path) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _number(value: Any, folder: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**31:
        raise ValueError("must be a whole number")
    return value


def _duration(value: Any, folder: Path) -> timedelta:
    if not isinstance(value, str):
        raise ValueError("must be a duration in quotes, as '15m'")
    return parse_duration(value)


def _format(value: Any, folder: Path) -> str:
    if value not in FORMATS:
        raise ValueError(f"{value!r} is none; one of {', '.join(FORMATS)}")
    return str(value)


def _path(value: Any, folder: Path) -> Path:
    """From the folder of the file, wherever the puller is started."""
    return folder / Path(_text(value, folder)).expanduser()


def _parameters(value: Any, folder: Path) -> dict[str, Scalar]:
    if not isinstance(value, Mapping):
        raise ValueError("must be a table, as { least = 184.5 }")
    return dict(_parameter(label, each) for label, each in value.items())


def _parameter(label: str, value: Any) -> tuple[str, Scalar]:
    """TOML has all types but DECIMAL, which is `"name:decimal" = "12.50"`."""
    name, colon, kind = label.partition(":")
    if colon:
        if kind.lower() != "decimal" or not isinstance(value, str):
            raise ValueError(f'{label!r}: only "name:decimal" = "12.50" says its type')
        try:
            return name, Decimal(value)
        except InvalidOperation:
            raise ValueError(f"{label!r}: {value!r} is not a decimal") from None
    if isinstance(value, time) or not isinstance(value, bool | int | float | str | datetime | date):
        raise ValueError(f"{label!r}: {type(value).__name__} has no type in the language")
    return name, value


# Those that a pull has of its own, and those that [defaults] may have too.
OWN: dict[str, Reader] = {
    "sql": _text,
    "key": _text,
    "handle": _text,
    "parameters": _parameters,
    "window": _text,
    "to": _path,
}
SHARED: dict[str, Reader] = {
    "format": _format,
    "state": _path,
    "lease": _duration,
    "priority": _number,
    "every": _duration,
    "jitter": _duration,
    "aligned": _flag,
    "backoff": _duration,
    "backoff_cap": _duration,
    "always": _flag,
    "on_change": _text,
    "on_change_limit": _duration,
    "on_change_must_succeed": _flag,
    "target": _text,
    "tenant": _text,
    "owner": _text,
    "timeout": _duration,
}
