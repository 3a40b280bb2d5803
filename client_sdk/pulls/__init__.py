"""Answers pulled on a schedule into files.

    from client_sdk import Client, Pull, Schedule, pull_once, run_pulls

    dear = Pull("dear", Path("dear.parquet"), key="dear", schedule=Schedule(timedelta(minutes=15)))
    with Client("localhost:7181") as client:
        pull_once(client, dear)          # now
    run_pulls([dear])                    # until the end of time, or until `stop` is set

A pull keeps an offline copy beside its output, so that only what changed is transferred, and
writes the output only if the answer is another one. See docs/reference/pulls.md.
"""

from __future__ import annotations

from client_sdk._exceptions import (
    BadPull,
    HookFailed,
    Incomplete,
    OutputBusy,
    OutputFailed,
    PullError,
)
from client_sdk.pulls._changes import change_sink_for
from client_sdk.pulls._deliver import HookRun, PullReport
from client_sdk.pulls._file import load_pulls
from client_sdk.pulls._pull import Hook, Pull, Store, name_from
from client_sdk.pulls._puller import Puller, hopeless, passes, run_pulls
from client_sdk.pulls._pulling import pull_many, pull_once
from client_sdk.pulls._receivers import Receivers
from client_sdk.pulls._schedule import Clock, Schedule, SystemClock, parse_duration, show_duration
from client_sdk.pulls._sinks import FORMATS, format_of, sink_for
from client_sdk.pulls._watching import watch_pull
from psoup.formats.csv_safe import formula_safe, formula_safe_schema

__all__ = [
    "FORMATS",
    "BadPull",
    "Clock",
    "Hook",
    "HookFailed",
    "HookRun",
    "Incomplete",
    "OutputBusy",
    "OutputFailed",
    "Pull",
    "PullError",
    "PullReport",
    "Puller",
    "Schedule",
    "Store",
    "SystemClock",
    "Receivers",
    "change_sink_for",
    "format_of",
    "formula_safe",
    "formula_safe_schema",
    "hopeless",
    "load_pulls",
    "name_from",
    "parse_duration",
    "passes",
    "pull_many",
    "pull_once",
    "run_pulls",
    "show_duration",
    "sink_for",
    "watch_pull",
]
