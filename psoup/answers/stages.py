"""The stages of one answer: where its time goes, for Explain and for traces."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

_UNTIMED = nullcontext()


@dataclass
class Stages:
    """Seconds by name, and the instant at which each stage first began in nanoseconds since 1970,
    in the order they began."""

    seconds: dict[str, float] = field(default_factory=dict)
    began: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        self.began.setdefault(name, time.time_ns())
        # Here too, for the order of the stages: one that is inside another begins after it.
        self.seconds.setdefault(name, 0.0)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - started)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds to a stage, which may be negative."""
        if name not in self.began:
            self.began[name] = time.time_ns() - round(max(0.0, seconds) * 1e9)
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def timed(stages: Stages | None, name: str) -> AbstractContextManager[None]:
    """Return the timer of a stage; one that does nothing if nobody wants to know."""
    return _UNTIMED if stages is None else stages.time(name)
