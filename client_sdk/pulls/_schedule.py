"""Schedules: when a pull is due, the clocks of a puller, and durations as people write them.

A schedule is pure: instants come in as numbers. Two clocks are needed. The wall clock runs while a
machine sleeps, but it may be set; the monotonic clock never jumps, but stands still during sleep. A
pull is due when **either** says so:

- after sleep the wall clock is past the instant, so one pull is made at once, however many turns
  were missed;
- if the wall clock was set back, the monotonic one still counts to the end of the wait;
- if it was set forward, one pull comes early, which costs a round trip.

Turns are at `origin + n * every`. The origin is the first pull, or with `aligned` 1970 in UTC, so
that 15 minutes are the quarters of an hour whenever the process started. Turns that have passed
when a pull ends are left out, and never made up for.
"""

from __future__ import annotations

import math
import re
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

ZERO = timedelta()


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule: a pull every `every`, up to `jitter` later, so that many clients don't come at
    once.

    After a failure it is tried again after `backoff`, then twice that, and so on up to
    `backoff_cap` (None: `every`). Each pause is shortened at random by up to a half.
    """

    every: timedelta
    jitter: timedelta = ZERO
    aligned: bool = False
    backoff: timedelta = timedelta(seconds=5)
    backoff_cap: timedelta | None = None

    def __post_init__(self) -> None:
        if self.every <= ZERO:
            raise ValueError("every: must be longer than nothing")
        if not ZERO <= self.jitter < self.every:
            raise ValueError("jitter: must be shorter than every")
        if self.backoff <= ZERO:
            raise ValueError("backoff: must be longer than nothing")
        if self.backoff_cap is not None and self.backoff_cap < self.backoff:
            raise ValueError("backoff_cap: must not be shorter than backoff")

    def turn_after(self, wall: float, origin: float) -> float:
        """Return the first turn later than `wall`."""
        every = self.every.total_seconds()
        start = 0.0 if self.aligned else origin
        turn = start + (math.floor((wall - start) / every) + 1) * every
        # Rounding of floats can put the turn at `wall` itself.
        return turn if turn > wall else turn + every

    def pause(self, failures: int, draw: float) -> float:
        """Return the seconds to wait after the nth failure in a row; `draw` is from [0, 1)."""
        cap = self.every if self.backoff_cap is None else self.backoff_cap
        # The exponent is limited, because a float overflows after many failures.
        doubled = self.backoff.total_seconds() * 2.0 ** min(failures - 1, 64)
        return min(cap.total_seconds(), doubled) * (0.5 + draw / 2)


class Timetable:
    """The place of one pull in its schedule: due at once, and then as `done` says."""

    def __init__(self, schedule: Schedule, wall: float, monotonic: float) -> None:
        self.schedule = schedule
        self.failures = 0
        self._origin = wall
        self._set(wall, monotonic, 0.0)

    def remaining(self, wall: float, monotonic: float) -> float:
        """Return the seconds until the pull is due; 0 if it is."""
        seconds = min(self._wall_due - wall, self._monotonic_due - monotonic)
        return max(0.0, seconds)

    def done(self, wall: float, monotonic: float, *, failed: bool, draw: float) -> float:
        """Note that a pull has ended at this instant, and return the seconds until the next."""
        if failed:
            self.failures += 1
            wait = self.schedule.pause(self.failures, draw)
        else:
            self.failures = 0
            turn = self.schedule.turn_after(wall, self._origin)
            wait = turn - wall + self.schedule.jitter.total_seconds() * draw
        self._set(wall, monotonic, wait)
        return wait

    def _set(self, wall: float, monotonic: float, wait: float) -> None:
        self._wall_due = wall + wait
        self._monotonic_due = monotonic + wait


class Clock(Protocol):
    """The clocks of a puller. Tests have their own.

    `wait` returns after `seconds` of the monotonic clock, or sooner; True means to stop.
    """

    def wall(self) -> float: ...

    def monotonic(self) -> float: ...

    def wait(self, seconds: float) -> bool: ...


class SystemClock:
    """The machine's clocks. `stop` ends a wait from another thread."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> bool:
        return self._stop.wait(seconds)


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(\d{1,9})\s*([smhdw])", re.ASCII)
_STEPS = (("d", 86_400), ("h", 3_600), ("m", 60))


def parse_duration(text: str) -> timedelta:
    """Return the duration of 90s, 15m, 12h, 30d, 4w. Raises ValueError for any other text."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write 90s, 15m, 12h, 30d or 4w")
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        raise ValueError(f"{text!r} is longer than any duration can be") from None


def show_duration(span: timedelta) -> str:
    """Return the two largest units of a duration, as 1h 5m, 15m, 42s, 0.4s."""
    seconds = span.total_seconds()
    if 0 < seconds < 10:
        return f"{seconds:.2g}s"
    remaining, parts = round(seconds), []
    for unit, size in _STEPS:
        count, remaining = divmod(remaining, size)
        if count:
            parts.append(f"{count}{unit}")
    if remaining or not parts:
        parts.append(f"{remaining}s")
    return " ".join(parts[:2])
