"""The refresh points that an answer goes through: a walk along the log answers each naively, as it
was when it came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datastem.schema import StreamSchema
from querystem.legs import Leg
from querystem.query import Query
from querystem.refresh import RefreshEvery, periodic
from results.window import TimeWindow
from tests.oracle.answers import naive_answer
from tests.oracle.keyed import Keyed
from tests.oracle.refresh import Event
from tests.oracle.refreshed_trees import TreeHistory
from tests.oracle.windows import Shown


@dataclass(frozen=True, slots=True)
class PassedPoint:
    """A point, with the answer at its `now`."""

    now: int | None
    answer: list[tuple[Any, ...]]


@dataclass
class PointWalk:
    """A walk along a log that grows, from `since` on. By the clock, and for REFRESH EVERY over one
    stream, it stops at every point. Over event time otherwise only at those that a batch ended at:
    a batch that passes several shows the last one."""

    query: Query
    schemas: Mapping[str, StreamSchema]
    since: int
    visible: Mapping[str, Shown] = field(default_factory=dict)
    _answers: dict[Any, tuple[Any, PassedPoint]] = field(default_factory=dict)

    @property
    def by_clock(self) -> bool:
        return all(self.schemas[leg.stream].now_is_clock for leg in self.query.legs)

    @property
    def is_exact(self) -> bool:
        """Whether the walk stops at every point."""
        return self.by_clock or self._is_simple

    @property
    def _is_simple(self) -> bool:
        return len(self.query.legs) == 1 and isinstance(self.query.refresh, RefreshEvery)

    def points(self, events: Sequence[Event], clock: int) -> list[PassedPoint]:
        """Return the points up to a moment. Those that an earlier call returned are the same."""
        if self._is_simple and not self.by_clock:
            return [*self._multiples(events)]
        return [*self._states(events, clock)]

    def _states(self, events: Sequence[Event], clock: int) -> Iterator[PassedPoint]:
        last: Any = None
        for moment, prefix in self._moments(events, clock):
            if moment not in self._answers:
                at = moment if self.by_clock else clock
                naive = TreeHistory(self.schemas, prefix, at, shown=self.visible).ask(self.query)
                state = PassedPoint(naive.now, naive.answer)
                # By the clock one point has one instant; rows of two batches may have one, too.
                named = naive.instant, naive.now, () if self.by_clock else state.answer
                self._answers[moment] = named, state
            named, state = self._answers[moment]
            if named[0] is not None and named != last:
                yield state
            last = named

    def _moments(
        self, events: Sequence[Event], clock: int
    ) -> Iterator[tuple[int, Sequence[Event]]]:
        if not self.by_clock:
            yield from ((place, events[:place]) for place in range(1, len(events) + 1))
            return
        moments = {event.stamp for event in events if event.stamp > self.since}
        for every in periodic(self.query.refresh):
            moments.update(range(every.following(self.since), clock + 1, every.period))
        for moment in sorted(moments):
            yield moment, [event for event in events if event.stamp <= moment]

    def _multiples(self, events: Sequence[Event]) -> Iterator[PassedPoint]:
        """Yield the points that each batch takes the stream past."""
        (every,), stream = periodic(self.query.refresh), self.query.leg.stream
        rows: list[Any] = []
        reached: int | None = None
        for event in (event for event in events if event.stream == stream):
            rows += event.rows
            before = min(row["ts"] for row in event.rows) - 1 if reached is None else reached
            reached = max(event.reached, before)
            for instant in range(every.following(before), reached + 1, every.period):
                if instant not in self._answers:
                    self._answers[instant] = None, self._answered(instant, rows)
                yield self._answers[instant][1]

    def _answered(self, now: int, rows: Sequence[Any]) -> PassedPoint:
        schema, stream = self.schemas[self.query.leg.stream], self.query.leg.stream
        keyed = Keyed(schema.key) if schema.key else None
        is_visible = self.visible.get(stream, lambda row: True)
        return PassedPoint(
            now, naive_answer(self.query, rows, now, schema.retain, keyed, is_visible)
        )


def begin_of(leg: Leg, schema: StreamSchema, now: int) -> int | None:
    """Return the least ts, or in a keyed stream the least end, that a leg at NOW depends on; None
    for any."""
    window = leg.window
    if not isinstance(window, TimeWindow):
        return now + 1 if schema.key else None
    return window.present(now) + 1 if schema.key else window.at(now)[0]
