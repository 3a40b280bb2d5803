"""Made-up traffic readings, and what a query over them means in plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

START = datetime(2025, 3, 3, 8, tzinfo=UTC)
STREAM = """CREATE STREAM traffic (lane BIGINT, station BIGINT, speed DOUBLE, at TIMESTAMP)
    ORDERED BY at RETAIN 1 DAY"""


class Reading(NamedTuple):
    lane: int
    station: int
    speed: float
    at: datetime


def readings(count: int, seed: int = 2003) -> list[Reading]:
    """Forty a second from START on; one in fifty is up to half a minute late."""
    dice = random.Random(seed)
    rows = []
    for turn in range(count):
        late = dice.uniform(0, 30) if dice.random() < 0.02 else 0.0
        at = START + timedelta(seconds=round(turn / 40 - late, 3))
        rows.append(Reading(dice.randint(1, 8), dice.randint(1, 9), dice.randint(0, 400) / 4, at))
    return rows


@dataclass(frozen=True)
class Window:
    """A window as SQL, and the test it stands for: is a row of `at` inside it at `now`?"""

    sql: str
    holds: Callable[[datetime, datetime], bool]


def since(begin: datetime) -> Window:
    return Window(f"BEGIN '{begin:%Y-%m-%d %H:%M}' END NOW", lambda at, now: begin <= at <= now)


def between(oldest: int, newest: int) -> Window:
    """From `oldest` to `newest` minutes ago, both instants included."""
    return Window(
        f"BEGIN NOW - {_minutes(oldest)} END NOW - {_minutes(newest)}",
        lambda at, now: now - timedelta(minutes=oldest) <= at <= now - timedelta(minutes=newest),
    )


def last(minutes: int) -> Window:
    """RANGE leaves out the row that is exactly as old as the window is wide."""
    return Window(
        f"RANGE {_minutes(minutes)}", lambda at, now: now - timedelta(minutes=minutes) < at <= now
    )


def _minutes(count: int) -> str:
    return f"{count} MINUTE" if count == 1 else f"{count} MINUTES"


@dataclass(frozen=True)
class Question:
    """One client wants to know this: a WHERE clause and the same thing in Python."""

    client: str
    where: str
    holds: Callable[[Reading], bool]
    window: Window
    other: Window

    @property
    def sql(self) -> str:
        return f"    SELECT * FROM traffic\n    WHERE {self.where}\n    {self.window.sql}"

    def naive(self, rows: Iterable[Reading], window: Window, now: datetime) -> list[Reading]:
        """The answer as a loop over every row, in the store's order: by ts, then by arrival."""
        matches = [row for row in rows if window.holds(row.at, now) and self.holds(row)]
        return sorted(matches, key=lambda row: row.at)


PHONE = Question(
    "phone",
    "lane = 1 AND speed < 5",
    lambda row: row.lane == 1 and row.speed < 5,
    window=last(2),
    other=last(10),
)
CAR = Question(
    "car",
    "station BETWEEN 3 AND 5 AND (speed > 99 OR lane IN (7, 8) AND speed < 1)",
    lambda row: (
        3 <= row.station <= 5 and (row.speed > 99 or (row.lane in (7, 8) and row.speed < 1))
    ),
    window=between(5, 1),
    other=last(1),
)
LAPTOP = Question(
    "laptop",
    "NOT (speed >= 0.5 OR station <> 9)",
    lambda row: not (row.speed >= 0.5 or row.station != 9),
    window=since(START + timedelta(minutes=5)),
    other=last(3),
)
