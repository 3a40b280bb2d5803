"""The clocks a puller lives by, so that tests can bring their own."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """`wait` returns after so many seconds of the monotonic clock, or sooner; True to stop."""

    def wall(self) -> float: ...

    def monotonic(self) -> float: ...

    def wait(self, seconds: float) -> bool: ...


class SystemClock:
    """The machine's. `stop` ends a wait from another thread."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> bool:
        return self._stop.wait(seconds)
