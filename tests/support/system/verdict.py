"""Is an answer right? It must be the naive one at the position and the NOW it names, and these must
be the ones that were asked for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from client_sdk import Answer
from psoup.store import Position
from tests.oracle.comparing import difference
from tests.oracle.strategies import Row
from tests.oracle.written import WrittenWindow
from tests.support.system.question import Question, values_of
from tests.support.system.streams import Stream


@dataclass(frozen=True)
class Instant:
    """An instant of the clock, and what had been acknowledged by then."""

    at: datetime
    position: Position


@dataclass(frozen=True)
class Asked:
    """A question as it was put; what had been acknowledged, and the clock, just before."""

    question: Question
    stream: Stream
    acknowledged: Position
    before: datetime
    window: WrittenWindow | None = None
    as_of: datetime | None = None
    then: Instant | None = None

    @property
    def options(self) -> dict[str, Any]:
        """As the client takes them."""
        options: dict[str, Any] = {}
        if self.window is not None:
            options["window"] = self.window.text or "UNBOUNDED"
        if self.as_of is not None:
            options |= {"as_of": self.as_of, "knowledge": "then" if self.then else "today"}
        return options


def judge(asked: Asked, answer: Answer, position: Position) -> bool:
    """Raises AssertionError; False where the clock left open which rows were retained."""
    rows = asked.stream.accepted.rows(position)
    _check_position(asked, position, rows)
    _check_now(asked, position, rows, answer.now)
    window = None if asked.window is None else asked.window.window
    every = asked.stream.accepted.every
    answers = [
        asked.question.naive(rows, answer.now, window, current, every)
        for current in _currents(asked)
    ]
    if difference(answers[0], answers[-1]):
        return False
    wrong = difference(answers[0], values_of(answer))
    assert not wrong, f"{asked.question.sql}\n{asked.options} at {position}, {answer.now}: {wrong}"
    return True


def _check_position(asked: Asked, position: Position, rows: list[Row]) -> None:
    if asked.then is None:
        assert position >= asked.acknowledged, f"{position} lacks {asked.acknowledged}"
    else:
        assert rows == asked.stream.accepted.rows(asked.then.position), "not what was known then"


def _check_now(asked: Asked, position: Position, rows: list[Row], now: datetime | None) -> None:
    if asked.as_of is not None:
        assert now == asked.as_of
    elif asked.stream.schema.ordered_by:
        assert now == asked.stream.accepted.reached(position)
    else:
        assert now is not None and asked.before <= now <= datetime.now(UTC)


def _currents(asked: Asked) -> list[datetime | None]:
    """The stream's own NOW, which retention counts from; of the clock only the bounds."""
    if asked.as_of is None:
        return [None]
    if asked.stream.schema.ordered_by:
        return [asked.stream.accepted.reached(asked.acknowledged)]
    return [asked.before, datetime.now(UTC)]
