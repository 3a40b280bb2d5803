"""What one pull came to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from client_sdk._exceptions import PsoupError
from client_sdk.pulls._hook import HookRun
from client_sdk.pulls._pull import Pull


@dataclass(frozen=True)
class PullReport:
    """`changed`: the answer is another one than was last written; `written`: it was written now.

    `rows` are in the answer, which is of `position` and NOW; `received` came over the wire, and
    `removed` were named as gone. `whole` with its `reason` where all of it was sent. With an
    `error` the output is as it was, unless the error is a HookFailed. `next_in` is None where
    there is no next time, and `given_up` says that there was to be one.
    """

    pull: Pull
    at: datetime
    seconds: float = 0.0
    changed: bool = False
    written: bool = False
    rows: int = 0
    received: int = 0
    removed: int = 0
    whole: bool = False
    reason: str = ""
    now: datetime | None = None
    position: bytes = b""
    error: PsoupError | None = None
    hook: HookRun | None = None
    next_in: timedelta | None = None
    given_up: bool = False

    @property
    def name(self) -> str:
        return self.pull.name

    @property
    def ok(self) -> bool:
        return self.error is None

    def as_dict(self) -> dict[str, Any]:
        """For a log: plain values only."""
        return {
            "at": self.at.isoformat(),
            "pull": self.name,
            "output": str(self.pull.to),
            "ok": self.ok,
            "changed": self.changed,
            "written": self.written,
            "rows": self.rows,
            "received": self.received,
            "removed": self.removed,
            "whole": self.whole,
            "reason": self.reason,
            "now": None if self.now is None else self.now.isoformat(),
            "position": self.position.hex(),
            "seconds": round(self.seconds, 3),
            "error": None if self.error is None else self.error.message,
            "error_reason": "" if self.error is None else self.error.reason,
            "hook_error": None
            if self.hook is None or self.hook.error is None
            else self.hook.error.message,
            "given_up": self.given_up,
            "next_in": None if self.next_in is None else round(self.next_in.total_seconds(), 3),
        }
