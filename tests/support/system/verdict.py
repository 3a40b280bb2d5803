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


def judge(request: Asked, answer: Answer, position: Position) -> bool:
    """Raise AssertionError for a wrong answer; return False if the clock leaves open which rows
    were retained."""
    rows = request.stream.accepted.rows(position)
    _check_position(request, position, rows)
    _check_now(request, position, rows, answer.now)
    window = None if request.window is None else request.window.window
    every = request.stream.accepted.every
    answers = [
        request.question.naive(rows, answer.now, window, current, every)
        for current in _currents(request)
    ]
    if difference(answers[0], answers[-1]):
        return False
    wrong = difference(answers[0], values_of(answer))
    assert not wrong, (
        f"{request.question.sql}\n{request.options} at {position}, {answer.now}: {wrong}"
    )
    return True


def _check_position(request: Asked, position: Position, rows: list[Row]) -> None:
    if request.then is None:
        assert position >= request.acknowledged, f"{position} lacks {request.acknowledged}"
    else:
        assert rows == request.stream.accepted.rows(request.then.position), (
            "not what was known then"
        )


def _check_now(request: Asked, position: Position, rows: list[Row], now: datetime | None) -> None:
    if request.as_of is not None:
        assert now == request.as_of
    elif request.stream.schema.ordered_by:
        assert now == request.stream.accepted.reached(position)
    else:
        assert now is not None and request.before <= now <= datetime.now(UTC)


def _currents(request: Asked) -> list[datetime | None]:
    """Return the stream's own NOW, which retention counts from; of the clock only the bounds."""
    if request.as_of is None:
        return [None]
    if request.stream.schema.ordered_by:
        return [request.stream.accepted.reached(request.acknowledged)]
    return [request.before, datetime.now(UTC)]
