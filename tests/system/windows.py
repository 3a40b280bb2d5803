"""Windows as text, and apart from the language what each one means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from tests.system.streams import Shape

Holds = Callable[[datetime, datetime], bool]


@dataclass(frozen=True)
class TimeWindow:
    """`holds(ts, now)`: is a row of that ts in the window at that NOW?"""

    sql: str
    holds: Holds

    def keeps(
        self, ts: datetime, now: datetime, retain: timedelta | None, current: datetime | None = None
    ) -> bool:
        """Rows after NOW wait, rows past the retention are gone.

        `current` is the stream's own NOW where `now` is set back: what is gone then stays gone.
        """
        retained = retain is None or ts > max(now, current or now) - retain
        return retained and ts <= now and self.holds(ts, now)


EVERYTHING = TimeWindow("", lambda ts, now: True)


def last(seconds: int) -> TimeWindow:
    wide = timedelta(seconds=seconds)
    return TimeWindow(f"RANGE {seconds} SECONDS", lambda ts, now: now - wide < ts)


def sliding(oldest: int, newest: int) -> TimeWindow:
    """From `oldest` to `newest` seconds ago, both instants included."""
    begin, end = timedelta(seconds=oldest), timedelta(seconds=newest)
    late = f"NOW - INTERVAL '{newest}' SECOND" if newest else "NOW"
    return TimeWindow(
        f"BEGIN NOW - {oldest} END {late}", lambda ts, now: now - begin <= ts <= now - end
    )


def landmark(begin: datetime) -> TimeWindow:
    return TimeWindow(f"BEGIN '{_text(begin)}' END NOW", lambda ts, now: begin <= ts)


def snapshot(begin: datetime, end: datetime) -> TimeWindow:
    return TimeWindow(
        f"BEGIN '{_text(begin)}' END '{_text(end)}'", lambda ts, now: begin <= ts <= end
    )


def random_window(dice: Random, shape: Shape) -> TimeWindow:
    """One the stream allows: it reaches no further back than the retention."""
    longest = int(shape.retain.total_seconds()) - 1 if shape.retain else 1500
    wide = min(longest, dice.choice([1, 5, 30, 60, 300, 1500]))
    instant = shape.start + timedelta(seconds=dice.randint(0, 2000))
    match dice.randint(0, 5):
        case 0:
            return EVERYTHING
        case 1:
            return TimeWindow("UNBOUNDED", lambda ts, now: True)
        case 2:
            return last(wide)
        case 3:
            return sliding(wide, dice.randint(0, wide))
        case 4:
            return landmark(instant)
    return snapshot(instant, instant + timedelta(seconds=dice.randint(0, 1500)))


def _text(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%d %H:%M:%S.%f")
