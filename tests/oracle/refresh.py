"""What a query with REFRESH answers over a list of events: walk them all, then ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from datastem.schema import StreamSchema
from querystem.expressions import Scalar
from querystem.query import Query
from querystem.refresh import RefreshEvery, RefreshOn
from tests.oracle.answers import Row, naive_answer
from tests.oracle.evaluator import evaluate_row
from tests.oracle.keyed import Keyed
from tests.oracle.windows import Shown, everything


@dataclass(frozen=True, slots=True)
class Event:
    """A batch of rows, or a heartbeat where it has none; `reached` is its greatest ts."""

    stream: str
    stamp: int
    rows: Sequence[Row]
    reached: int


@dataclass(frozen=True, slots=True)
class Point:
    """`instant` names it; the answer is that at `now` over `rows`, or over none without a NOW."""

    instant: int
    now: int | None
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Refreshed:
    """`instant` is None if nothing has refreshed the answer yet."""

    instant: int | None
    now: int | None
    answer: list[tuple[Scalar, ...]]


@dataclass(frozen=True, slots=True)
class History:
    """Events in the order of the log, and when they are asked about.

    `now` is NOW of the query without its refresh: `as_of` where that is given. `clock` is that of
    the streams with arrival time. `shown` tells of the streams with policies which rows are.
    """

    schemas: Mapping[str, StreamSchema]
    events: Sequence[Event]
    clock: int
    as_of: int | None = None
    today: bool = False
    shown: Mapping[str, Shown] = field(default_factory=dict)

    def ask(self, query: Query) -> Refreshed:
        now = self.present(query.leg.stream) if self.as_of is None else self.as_of
        point = None if now is None else self._point(query, now)
        if point is None or point.now is None:
            instant = None if point is None else point.instant
            return Refreshed(instant, None, naive_answer(query, [], 0))
        schema, present = self.schemas[query.leg.stream], self.present(query.leg.stream)
        retain, keyed = schema.retain, Keyed(schema.key) if schema.key else None
        if retain is not None and present is not None:
            retain += point.now - max(point.now, present)
        is_visible = self.shown.get(query.leg.stream, everything)
        answer = naive_answer(query, point.rows, point.now, retain, keyed, is_visible)
        return Refreshed(point.instant, point.now, answer)

    def present(self, stream: str) -> int | None:
        """NOW of a stream, whatever instant is asked about."""
        if self.schemas[stream].now_is_clock:
            return self.clock
        return max((event.reached for event in self.events if event.stream == stream), default=None)

    @property
    def known(self) -> Sequence[Event]:
        if self.as_of is None or self.today:
            return self.events
        return [event for event in self.events if event.stamp <= self.as_of]

    def _point(self, query: Query, now: int) -> Point | None:
        match query.refresh:
            case RefreshEvery(period):
                if not self.today and not self.schemas[query.leg.stream].now_is_clock:
                    passed = self._passed(query.leg.stream, len(self.known))
                    if passed is None:
                        return None
                    now = min(now, passed)
                return self._every(query.leg.stream, now // period * period)
            case RefreshOn() as refresh if self.today:
                return self._on_today(query.leg.stream, refresh)
            case RefreshOn() as refresh:
                return self._on(query.leg.stream, refresh, now)
        raise TypeError("the query has no REFRESH")

    def _every(self, stream: str, instant: int) -> Point:
        rows: list[Row] = []
        reached: int | None = None
        arrival = self.schemas[stream].now_is_clock
        for event in [event for event in self.known if event.stream == stream]:
            over = event.stamp > instant if arrival else reached is not None and reached >= instant
            if over and not self.today:
                break
            rows += event.rows
            reached = event.reached if reached is None else max(reached, event.reached)
        return Point(instant, instant, rows)

    def _on(self, stream: str, refresh: RefreshOn, now: int) -> Point | None:
        matching = self._matching(refresh)
        if not matching:
            return None
        place, row = matching[-1]
        rows = _rows(self.known[: place + 1], stream)
        if self.schemas[stream].now_is_clock:
            stamp = self.known[place].stamp
            return Point(stamp, stamp, rows)
        reached = self._passed(stream, place + 1)
        return Point(row["ts"], None if reached is None else min(now, row["ts"], reached), rows)

    def _passed(self, stream: str, count: int) -> int | None:
        """Return what a stream had reached before its first retained row after some events, or
        heartbeat after the instant asked about; what it has reached if there is none."""
        stream_events = [
            (n, event) for n, event in enumerate(self.events) if event.stream == stream
        ]
        later = [
            n
            for n, event in stream_events
            if n >= count and any(self._retains(stream, row["ts"]) for row in event.rows)
        ]
        if self.as_of is not None and not self.today:
            later += [
                n
                for n, event in stream_events
                if not event.rows
                and event.stamp > self.as_of
                and self._retains(stream, event.reached)
            ]
        after = min(later, default=None)
        before = [event.reached for event in self.events[:after] if event.stream == stream]
        return max(before, default=None)

    def _on_today(self, stream: str, refresh: RefreshOn) -> Point | None:
        assert self.as_of is not None
        rows = _rows(self.known, stream)
        arrival = self.schemas[stream].now_is_clock
        instants = [
            self.known[place].stamp if arrival else row["ts"]
            for place, row in self._matching(refresh)
        ]
        last = max((instant for instant in instants if instant <= self.as_of), default=None)
        return None if last is None else Point(last, last, rows)

    def _matching(self, refresh: RefreshOn) -> list[tuple[int, Row]]:
        """Return the rows that refresh, with the place of their event."""
        return [
            (place, row)
            for place, event in enumerate(self.known)
            for row in event.rows
            if event.stream == refresh.stream
            and evaluate_row(refresh.where, row) is True
            and self.shown.get(refresh.stream, everything)(row)
            and self._retains(refresh.stream, row["ts"])
        ]

    def _retains(self, stream: str, ts: int) -> bool:
        retain, present = self.schemas[stream].retain, self.present(stream)
        return retain is None or present is None or ts > present - retain


def _rows(events: Sequence[Event], stream: str) -> list[Row]:
    return [row for event in events if event.stream == stream for row in event.rows]
