"""The engine's pulse: a small file that says every few seconds which engine runs, and that it does.

Servers look for a change, not for an instant in the file: it holds over a network file system and
between machines whose clocks differ.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

FILE = "engine.lock"

# How often the engine writes it, in seconds, and how long it may be still before the engine counts
# as gone. A busy machine may hold up the one or the other for a while.
EVERY = 2.0
GONE_AFTER = 10.0


@dataclass(frozen=True, slots=True)
class Pulse:
    """The `count`-th sign of life of one engine."""

    host: str
    pid: int
    count: int

    @classmethod
    def own(cls) -> Pulse:
        """The first one of this process."""
        return cls(socket.gethostname(), os.getpid(), 1)

    def write(self, descriptor: int) -> None:
        """In place, over what is there: the file itself carries the engine's lock."""
        form = {"host": self.host, "pid": self.pid, "count": self.count}
        content = json.dumps(form).encode() + b"\n"
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))

    @classmethod
    def read(cls, root: Path) -> Pulse | None:
        """None where no engine has run, the last one ended in order, or the file is being written.

        An engine of an older version writes only its process id, and has no pulse.
        """
        try:
            form = json.loads((root / FILE).read_bytes())
            return cls(str(form["host"]), int(form["pid"]), int(form["count"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None


class PulseWatch:
    """What a server knows of the engine, by looking every second or so."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: Pulse | None = None
        self._changed_at: float | None = None

    def look(self) -> None:
        """The first look has nothing to compare with, and goes by the file's own instant."""
        pulse, now = Pulse.read(self._root), time.monotonic()
        if pulse is None:
            self._seen = self._changed_at = None
        elif self._seen is None:
            self._changed_at = now - self._age()
        elif pulse != self._seen:
            self._changed_at = now
        self._seen = pulse

    def _age(self) -> float:
        try:
            return max(0.0, time.time() - (self._root / FILE).stat().st_mtime)
        except FileNotFoundError:
            return GONE_AFTER

    @property
    def engine(self) -> tuple[Pulse, float] | None:
        """The engine that wrote last and how many seconds ago; None where it ended in order."""
        if self._seen is None or self._changed_at is None:
            return None
        return self._seen, time.monotonic() - self._changed_at
