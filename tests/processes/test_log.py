"""The log of a process: stable names, one line each, no flood, no secrets."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from psoup import process_log
from psoup.log_events import EVENTS
from psoup.process_log import (
    Flood,
    JsonFormatter,
    LogSettings,
    TextFormatter,
    event_of,
    parse_calls,
    start_log,
)
from psoup.store import StoreError

ROOT = Path(__file__).parents[2]
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


def templates() -> list[str]:
    """Return the message of every call of a logger in the product."""
    messages = []
    for package in ("psoup", "querystem", "datastem", "results"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in LEVELS
                    and isinstance(node.func.value, ast.Name)
                    and node.func.value.id in ("log", "logger")
                ):
                    assert isinstance(node.args[0], ast.Constant), f"{path}:{node.lineno}"
                    messages.append(str(node.args[0].value))
    return messages


def test_every_message_has_a_name() -> None:
    assert set(templates()) == set(EVENTS)
    assert [name for name, count in Counter(EVENTS.values()).items() if count > 1] == []


def test_every_name_is_documented() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    missing = [name for name in EVENTS.values() if f"`{name}`" not in page]
    assert missing == []


def record(message: str, *values: object, error: bool = False) -> logging.LogRecord:
    info = None
    if error:
        try:
            raise RuntimeError("no\nway")
        except RuntimeError:
            info = sys.exc_info()
    return logging.LogRecord("psoup.server", logging.WARNING, "", 0, message, values, info)


def test_json_is_one_line_with_a_stable_name() -> None:
    line = JsonFormatter().format(
        record("could not append to the log: %s", "a\nb\u202e", error=True)
    )
    assert "\n" not in line and "\u202e" not in line
    fields = json.loads(line)
    assert fields["event"] == "append-failed" and fields["level"] == "warning"
    assert fields["message"] == "could not append to the log: a\nb\u202e"
    assert fields["ts"].endswith("Z") and fields["error.type"] == "RuntimeError"
    assert "no\nway" in fields["error.stack"]
    assert json.loads(JsonFormatter().format(record("words of others")))["event"] == "unnamed"


def test_messages_that_may_quote_a_value_are_left_out() -> None:
    secret = "Annabella-Zyx"

    def failing() -> None:
        try:
            pa.array([secret]).cast(pa.int64())
        except pa.ArrowInvalid as cause:
            raise OSError("the disk is full") from cause

    try:
        failing()
    except OSError:
        info = sys.exc_info()
    try:
        raise ExceptionGroup("both", [KeyError(secret), UnicodeError(secret), StoreError("known")])
    except ExceptionGroup:
        group = sys.exc_info()
    for error in (info, group):
        values = ("warning", logging.WARNING, "", 0, "unexpected error %s", ("x",), error)
        for formatter in (JsonFormatter(), TextFormatter()):
            line = formatter.format(logging.LogRecord(*values))
            assert secret not in line and "may quote a value" in line
            assert "ArrowInvalid" in line or "KeyError" in line
            assert "the disk is full" in line or "known" in line


def test_every_line_names_its_store_and_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_log, "_store_id", "")
    assert json.loads(JsonFormatter().format(record("words")))["store"] == ""
    process_log.name_store("abc")
    fields = json.loads(JsonFormatter().format(record("words")))
    assert fields["store"] == "abc" and fields["server"].endswith(f"/{os.getpid()}")


def test_a_flood_of_one_kind_is_cut_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("psoup.process_log.time.monotonic", lambda: now[0])
    flood = Flood(limit=3)
    passed = [flood.filter(record("unexpected error %s", n)) for n in range(10)]
    assert passed == [True] * 3 + [False] * 7
    assert flood.filter(record("identity: %s", "another kind"))
    now[0] += 1
    late = record("unexpected error %s", 11)
    assert flood.filter(late) and late.getMessage().endswith("… and 7 like it before")
    assert event_of(late) == "unexpected-error"
    assert flood.filter(record("unexpected error %s", 12))


def test_levels_and_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, expected in (("text", "WARNING"), ("json", '"level": "warning"')):
        output = io.StringIO()
        monkeypatch.setattr(sys, "stderr", output)
        root = logging.Logger("root")
        monkeypatch.setattr(logging, "root", root)
        start_log(LogSettings(name, "warning"))
        root.info("identity: %s", "x")
        root.warning("identity: %s", "y")
        assert output.getvalue().count("\n") == 1 and expected in output.getvalue()


def test_which_calls_get_a_line() -> None:
    assert parse_calls("none") is None
    assert parse_calls("all") == 0
    assert parse_calls("slow:200ms") == 0.2
    assert parse_calls("slow:1.5s") == 1.5
    for text in ("", "slow", "slow:5", "slow:x", "fast"):
        with pytest.raises(Exception, match="slow:200ms"):
            parse_calls(text)


def test_names_do_not_depend_on_values() -> None:
    assert event_of(record("identity: %s", "a")) == event_of(record("identity: %s", "b"))
