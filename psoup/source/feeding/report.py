"""What a feed reports about itself, for people and programs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from psoup.source.feeding.piece import BadRow

_SHOWN_BAD_ROWS = 20


@dataclass
class Report:
    """The state of one feed: `reading`, `waiting` with a reason, `stopped` with a reason, `done`.

    `rows` counts what this process has published, `bad` the bad rows it left out or put aside.
    `notice` is called with lines for the person who runs it.
    """

    publisher: str
    notice: Callable[[str], None] = lambda line: None
    state: str = "starting"
    reason: str = ""
    since: float = field(default_factory=time.time)
    rows: int = 0
    bad: int = 0
    mark: dict[str, Any] = field(default_factory=dict)
    changed: bool = True

    def now(self, state: str, reason: str = "") -> None:
        """Note another state; a new reason is reported once."""
        if (state, reason) == (self.state, self.reason):
            return
        if reason:
            self.notice(f"{self.publisher}: {state}: {reason}")
        elif self.state == "waiting":
            self.notice(f"{self.publisher}: {state} again")
        self.state, self.reason, self.since, self.changed = state, reason, time.time(), True

    def bad_row(self, row: BadRow) -> None:
        """Note a bad row; the first few are shown."""
        self.bad += 1
        self.changed = True
        if self.bad <= _SHOWN_BAD_ROWS:
            self.notice(str(row))

    def published(self, rows: int, mark: dict[str, Any]) -> None:
        """Note what the store has acknowledged."""
        self.rows += rows
        self.mark = mark
        self.changed = True
