"""The parameters of a URL: each at most once, none that a resource does not know."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from psoup.errors import BadRequest
from psoup.v1 import psoup_pb2 as pb

_MAX_PARAMETERS = 1000
# Values of the query's own parameters are named `p.NAME`, or `p.NAME:TYPE`.
VALUE_PREFIX = "p."
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(us|ms|s|m|h|d)")
_UNIT_MICROS = {"us": 1, "ms": 10**3, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6}
_UNIT_MICROS["d"] = 24 * _UNIT_MICROS["h"]
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters by name, as they stand in the URL."""

    texts: Mapping[str, str]

    @classmethod
    def of(cls, query_string: bytes, names: Iterable[str]) -> Parameters:
        """Read a query string. Raise BadRequest for unknown names and repeated ones."""
        try:
            pairs = parse_qsl(
                query_string.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_MAX_PARAMETERS,
            )
        except ValueError as error:
            raise BadRequest(
                f"the query of the URL can't be read: {error}", reason="BAD_PARAMETER"
            ) from None
        texts: dict[str, str] = {}
        known = frozenset(names)
        for name, text in pairs:
            is_value = name.startswith(VALUE_PREFIX) and VALUE_PREFIX in known
            if name not in known and not is_value:
                raise BadRequest(
                    f"there is no parameter {name[:60]!r} here",
                    reason="UNKNOWN_PARAMETER",
                    field=name[:60],
                    expected=", ".join(sorted(known)) or "no parameters",
                )
            if name in texts:
                raise bad_parameter(name, "once", "twice")
            texts[name] = text
        return cls(texts)

    def text(self, name: str) -> str:
        return self.texts.get(name, "")

    def flag(self, name: str) -> bool:
        """Return whether a flag is set: `?latest`, `?latest=true`."""
        text = self.texts.get(name, "false").lower()
        if text not in ("", "1", "true", "0", "false"):
            raise bad_parameter(name, "true or false", text)
        return text in ("", "1", "true")

    def count(self, name: str) -> int | None:
        """Return a whole number from 0 on; None without the parameter."""
        text = self.texts.get(name)
        if text is None:
            return None
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
            raise bad_parameter(name, "a whole number", text)
        return int(text)

    def choice(self, name: str, choices: Iterable[str]) -> str:
        """Return one of the choices, or an empty text without the parameter."""
        text, allowed = self.text(name), tuple(choices)
        if text and text not in allowed:
            raise bad_parameter(name, " or ".join(allowed), text)
        return text

    def instant(self, name: str) -> Timestamp | None:
        text = self.texts.get(name)
        return None if text is None else _instant(name, text)

    def seconds(self, name: str) -> float | None:
        micros = self._micros(name)
        return None if micros is None else micros / 10**6

    def duration(self, name: str) -> Duration | None:
        micros = self._micros(name)
        if micros is None:
            return None
        message = Duration()
        message.FromMicroseconds(micros)
        return message

    def _micros(self, name: str) -> int | None:
        text = self.texts.get(name)
        if text is None:
            return None
        match = _DURATION.fullmatch(text)
        if match is None:
            raise bad_parameter(name, "a duration such as 500ms, 5s, 15m, 24h or 30d", text)
        return round(float(match[1]) * _UNIT_MICROS[match[2]])

    def position(self, name: str) -> bytes:
        try:
            return bytes.fromhex(self.text(name))
        except ValueError:
            raise bad_parameter(name, "hexadecimal digits", self.text(name)) from None

    def values(self) -> dict[str, pb.Value]:
        """Return the values of the query's own parameters, by name.

        5, 1.5, true and null are what they look like, anything else is TEXT. `p.NAME:TYPE` names
        the type.
        """
        values = {}
        for label, text in self.texts.items():
            if label.startswith(VALUE_PREFIX):
                name, _, kind = label.removeprefix(VALUE_PREFIX).partition(":")
                try:
                    values[name] = _typed(label, text, kind.lower()) if kind else _guessed(text)
                except UnicodeEncodeError:
                    # JSON can write half of a surrogate pair.
                    raise bad_parameter(label, "text in UTF-8", ascii(text)) from None
        return values


def bad_parameter(name: str, expected: str, got: str) -> BadRequest:
    return BadRequest(
        f"{name}: expected {expected}, got {got[:60]!r}",
        reason="BAD_PARAMETER",
        field=name,
        expected=expected,
        got=got[:60],
    )


def _instant(name: str, text: str) -> Timestamp:
    # A plus sign of an offset reads as a space if it was not escaped.
    try:
        moment = datetime.fromisoformat(re.sub(r" (\d\d:?\d\d)$", r"+\1", text))
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise bad_parameter(name, "an instant such as 2026-11-16T09:00:00Z", text) from None
    message = Timestamp()
    message.FromMicroseconds(
        (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    )
    return message


def _guessed(text: str) -> pb.Value:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return pb.Value(text=text)
    match value:
        case None:
            return pb.Value()
        case bool():
            return pb.Value(boolean=value)
        case int() if value in _INT64:
            return pb.Value(bigint=value)
        case float() if math.isfinite(value):
            return pb.Value(double=value)
        case str():
            return pb.Value(text=value)
    return pb.Value(text=text)


def _typed(label: str, text: str, kind: str) -> pb.Value:
    kinds: dict[str, Callable[[str], Any]] = {
        "text": lambda text: pb.Value(text=text),
        "bigint": lambda text: pb.Value(bigint=int(text)),
        "double": lambda text: pb.Value(double=float(text)),
        "decimal": lambda text: pb.Value(decimal=text),
        "timestamp": lambda text: pb.Value(timestamp=_instant(label, text)),
        "date": lambda text: pb.Value(date=date.fromisoformat(text).isoformat()),
        "boolean": lambda text: pb.Value(boolean={"true": True, "false": False}[text.lower()]),
    }
    if kind not in kinds:
        raise bad_parameter(label, f"one of the types {', '.join(kinds)}", kind)
    try:
        value: pb.Value = kinds[kind](text)
    except (ValueError, KeyError):
        raise bad_parameter(label, kind, text) from None
    return value
