"""The log of a process: lines of text for people, or objects of JSON for programs.

Each record has an `event`, a stable name that does not change with the words of its message. The
names are those of `EVENTS`, by the text of the message before values are filled in.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from psoup.escaping import escaped, escaped_json
from psoup.log_events import EVENTS

LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("text", "json")
_LINES_PER_SECOND = 100
UNNAMED = "unnamed"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How lines are written, the least level, and how many seconds a call takes before it gets a
    line; None for never."""

    format: str = "text"
    level: str = "info"
    call_seconds: float | None = 1.0


def add_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options of the log; return their group."""
    group = parser.add_argument_group("log (docs/reference/metrics.md)")
    group.add_argument(
        "--log", choices=_FORMATS, default="text", help="how lines of the log are written"
    )
    group.add_argument(
        "--log-level", choices=LEVELS, default="info", help="the least level that is written"
    )
    return group


def add_call_option(group: argparse._ArgumentGroup) -> None:
    """Add the option that only a process with calls has."""
    group.add_argument(
        "--log-calls",
        type=parse_calls,
        default="slow:1s",
        metavar="none|all|slow:TIME",
        help="which calls get a line: none, all, or those that took longer, such as slow:200ms",
    )


def parse_calls(text: str) -> float | None:
    """Return the seconds after which a call gets a line; None for never. Raise
    ArgumentTypeError."""
    if text in ("none", "all"):
        return None if text == "none" else 0.0
    match = re.fullmatch(r"slow:(\d+(?:\.\d+)?)(ms|s)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r}: write none, all, or slow:200ms")
    return float(match[1]) / (1000 if match[2] == "ms" else 1)


def read_options(options: argparse.Namespace) -> LogSettings:
    return LogSettings(options.log, options.log_level, getattr(options, "log_calls", None))


def start_log(settings: LogSettings) -> None:
    """Send this process's log to standard error, in place of how it was sent before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    handler.addFilter(Flood())
    level = settings.level.upper()
    root = logging.getLogger()
    is_again = any(isinstance(old.formatter, _OWN_FORMATTERS) for old in root.handlers)
    logging.basicConfig(level=level, handlers=[handler], force=is_again)


def event_of(record: logging.LogRecord) -> str:
    """Return the stable name of what a record tells, which a note of a flood keeps."""
    return getattr(record, "event", "") or EVENTS.get(str(record.msg), UNNAMED)


# The store that this process serves; empty until it is open.
_store_id = ""


def name_store(store_id: str) -> None:
    """Name the store in the lines for programs from now on."""
    global _store_id
    _store_id = store_id


# Errors of Python and Arrow whose messages may quote a value of a row.
_QUOTING = (ValueError, TypeError, LookupError, ArithmeticError)
_OWN_PACKAGES = ("psoup", "querystem", "datastem", "results", "client_sdk")


def trace_of(error: BaseException) -> str:
    """Return the traceback of an error, without messages that may quote a value of a row."""
    shown = traceback.TracebackException.from_exception(error)
    for part, cause in _chain(shown, error):
        is_own = type(cause).__module__.partition(".")[0] in _OWN_PACKAGES
        if isinstance(cause, _QUOTING) and not is_own:
            part._str = "(its message may quote a value of a row)"  # type: ignore[attr-defined]
    return "".join(shown.format())


def _chain(
    shown: traceback.TracebackException | None, error: BaseException | None
) -> Iterator[tuple[traceback.TracebackException, BaseException]]:
    """Yield an error and those that led to it, each with what is shown of it."""
    while shown is not None and error is not None:
        yield shown, error
        for part, inner in zip(
            shown.exceptions or (), getattr(error, "exceptions", ()), strict=False
        ):
            yield from _chain(part, inner)
        is_cause = shown.__cause__ is not None
        shown = shown.__cause__ if is_cause else shown.__context__
        error = error.__cause__ if is_cause else error.__context__


class TextFormatter(logging.Formatter):
    """Writes records as one line each, but for a traceback below."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return escaped(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return trace_of(ei[1]).rstrip("\n") if ei[1] is not None else ""


def process_name() -> str:
    """Return the name of this process in logs and metrics: its machine and its number there."""
    return f"{socket.gethostname()}/{os.getpid()}"


class JsonFormatter(logging.Formatter):
    """Writes records as one object each, in one line."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        fields = {
            "ts": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": event_of(record),
            "message": record.getMessage(),
            "logger": record.name,
            "store": _store_id,
            "server": process_name(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            kind, error, _ = record.exc_info
            fields["error.type"] = kind.__name__
            fields["error.stack"] = trace_of(error)
        return escaped_json(json.dumps(fields, ensure_ascii=False, default=str))


_OWN_FORMATTERS = (TextFormatter, JsonFormatter)


@dataclass(slots=True)
class _Second:
    """The lines of one kind in one second: when it began, how many, and how many were left out."""

    began: float
    lines: int = 0
    omitted: int = 0


@dataclass(slots=True)
class Flood:
    """Lets at most so many lines of one kind through in a second, and says how many it left out
    with the next one."""

    limit: int = _LINES_PER_SECOND
    _seconds: dict[str, _Second] = field(default_factory=dict)

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = event_of(record), time.monotonic()
        second = self._seconds.get(kind)
        if second is None or now - second.began >= 1.0:
            if second is not None and second.omitted:
                record.event = kind
                record.msg = f"{record.getMessage()} … and {second.omitted:,} like it before"
                record.args = ()
            self._seconds[kind] = second = _Second(now)
        second.lines += 1
        second.omitted += second.lines > self.limit
        return second.lines <= self.limit
