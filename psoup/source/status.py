"""The status file, beside sources.toml if not elsewhere: what a process reports of its sources."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psoup.source.feeding.report import Report

WRITE_SECONDS = 1.0


@dataclass
class StatusFile:
    """The states of sources, and of the feeds of each. It is written at most once a second, and
    only if something changed. `notice` is called with a line for people if that is impossible.
    """

    path: Path
    notice: Callable[[str], None] = lambda line: None
    _sources: dict[str, dict[str, Any]] = field(default_factory=dict)
    _reports: dict[str, list[Report]] = field(default_factory=dict)
    # Of feeds that are done.
    _bad_rows: Counter[str] = field(default_factory=Counter)
    # The ids of the stores that sources publish to, also those of earlier runs.
    _stores: dict[str, str] = field(default_factory=dict)
    _changed: bool = True
    _problem: str = ""

    _left_out: dict[str, dict[str, int]] = field(default_factory=dict)
    # By source and publisher: instants and ends, as LagHistory has them.
    _lags: dict[str, dict[str, list[tuple[float, int]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            content = json.loads(self.path.read_text())
            self._stores = {name: str(store) for name, store in content["stores"].items()}
            self._lags = {
                name: {
                    publisher: [(float(instant), int(end)) for instant, end in ends]
                    for publisher, ends in lags.items()
                }
                for name, lags in content.get("lags", {}).items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return

    @classmethod
    def beside(cls, settings: Path) -> StatusFile:
        return cls(settings.with_name(f"{settings.name}.status"))

    def source(self, name: str, state: str, reason: str = "") -> None:
        """Note the state of a source."""
        self._sources[name] = {"state": state, "reason": reason, "since": time.time()}
        self._changed = True

    def store(self, name: str) -> str:
        """Return the id of the store that a source last published to; empty if it is unknown."""
        return self._stores.get(name, "")

    def note_store(self, name: str, store_id: str) -> None:
        """Note the store that a source publishes to, for this process and later ones."""
        self._stores[name] = store_id
        self._changed = True

    def lags(self, name: str) -> dict[str, list[tuple[float, int]]]:
        """Return what an earlier process noted of the lag of a source, by publisher."""
        return self._lags.get(name, {})

    def note_left_out(self, name: str, fields: Mapping[str, int]) -> None:
        """Note the fields of a source that no column takes."""
        # A copy: another thread counts on.
        copy = dict(fields)
        self._changed = self._changed or copy != self._left_out.get(name, {})
        self._left_out[name] = copy

    def note_lags(self, name: str, lags: dict[str, list[tuple[float, int]]]) -> None:
        """Note since when records are unread, for a later process."""
        self._changed = self._changed or lags != self._lags.get(name)
        self._lags[name] = lags

    def add(self, name: str, report: Report) -> None:
        """Note a feed of a source, instead of an earlier one of the same publisher."""
        reports = self._reports.get(name, [])
        self._bad_rows[name] += sum(r.bad for r in reports if r.publisher == report.publisher)
        self._reports[name] = [
            *(item for item in reports if item.publisher != report.publisher),
            report,
        ]

    def remove(self, name: str, report: Report) -> None:
        """Forget a feed that is done."""
        self._reports[name] = [item for item in self._reports[name] if item is not report]
        self._bad_rows[name] += report.bad
        self._changed = True

    def bad_rows(self, name: str) -> int:
        """Return how many bad rows this process has put aside or left out."""
        return self._bad_rows[name] + sum(report.bad for report in self._reports.get(name, ()))

    def is_running(self, name: str) -> bool:
        """Return whether a source runs, and none of its feeds waits for something."""
        return self._sources.get(name, {}).get("state") == "running" and not any(
            report.state in ("waiting", "stopped") for report in self._reports.get(name, ())
        )

    async def write_regularly(self) -> None:
        """Write until the task is cancelled."""
        while True:
            self.write()
            await asyncio.sleep(WRITE_SECONDS)

    def write(self) -> None:
        """Write the file as a whole, if something changed."""
        reports = [report for feeds in self._reports.values() for report in feeds]
        if not self._changed and not any(report.changed for report in reports):
            return
        for report in reports:
            report.changed = False
        content = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "at": time.time(),
            "stores": self._stores,
            "lags": self._lags,
            "sources": {
                name: state
                | {
                    "feeds": [_plain(r) for r in self._reports.get(name, [])],
                    "left_out": self._left_out.get(name, {}),
                }
                for name, state in self._sources.items()
            },
        }
        problem = self._replace(json.dumps(content))
        # Sources run on without the file; it is tried again with the next look.
        self._changed = bool(problem)
        if problem and problem != self._problem:
            self.notice(f"the status can't be written to {self.path}: {problem}; see --status")
        self._problem = problem

    def _replace(self, content: str) -> str:
        """Write the file as a whole; return why that is impossible, or nothing."""
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            temporary.write_text(content)
            os.replace(temporary, self.path)
        except OSError as error:
            return error.strerror or type(error).__name__
        return ""

    def read(self) -> dict[str, Any]:
        """Return the states that the last process wrote, by name of the source.

        Those of a process that was killed on this machine are `killed`.
        """
        try:
            content = json.loads(self.path.read_text())
            sources: dict[str, Any] = dict(content["sources"])
            is_gone = content["host"] == socket.gethostname() and not _is_alive(content["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        if not is_gone:
            return sources
        ends = ("stopped", "ended")
        return {
            name: state if state["state"] in ends else {**state, "state": "killed"}
            for name, state in sources.items()
        }


def _is_alive(pid: int) -> bool:
    if os.name != "posix":
        return True  # signal 0 is no question there
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # of another user
    return True


def _plain(report: Report) -> dict[str, Any]:
    return {
        "publisher": report.publisher,
        "state": report.state,
        "reason": report.reason[:1000],
        "since": report.since,
        "rows": report.rows,
        "bad": report.bad,
        "mark": report.mark,
    }
