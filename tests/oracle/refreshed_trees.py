"""What a query over several streams answers with REFRESH, over a list of events: walk them all.

The rules are those of the specification, one after the other: which references hold a point back,
which event takes the last of them to its instant, what a leg with points of its own shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from datastem.schema import StreamSchema
from querystem.expressions import Scalar
from querystem.query import Leg, Query
from querystem.refresh import RefreshEvery, RefreshOn
from tests.oracle.clocks import Awaited, Clocks, Known, clocks, references
from tests.oracle.evaluator import evaluate_row
from tests.oracle.refresh import Event
from tests.oracle.trees import Row, World


@dataclass(frozen=True)
class RefreshedTree:
    """An answer, the point it is of (`instant`), its NOW, and the last instant at which all legs
    with points of their own were full."""

    instant: int | None
    now: int | None
    full: int | None
    answer: list[tuple[Scalar, ...]]


@dataclass(frozen=True)
class _Moment:
    """The clocks an answer is of, the events known then, and the point's instant."""

    times: Clocks
    events: Sequence[Event]
    instant: int | None


_NEVER = Clocks(None, None, 0)


@dataclass(frozen=True)
class TreeHistory:
    """Events in the order of the log, and when they are asked about."""

    schemas: Mapping[str, StreamSchema]
    events: Sequence[Event]
    clock: int
    as_of: int | None = None
    today: bool = False

    def ask(self, query: Query) -> RefreshedTree:
        moment = self._moment(query)
        legs = _OwnPoints(self, query, moment.events)
        answer = World(self._streams(moment.events), self.clock, points=legs).answer_at(
            query, moment.times
        )
        own = [leg for leg in query.legs if leg.refresh is not None]
        if moment.times.now is None or not own:
            return RefreshedTree(moment.instant, moment.times.now, None, answer)
        points = [legs.instant(leg, moment.times) for leg in own]
        known = [point for point in points if point is not None]
        instant = max(known, default=None) if moment.instant is None else moment.instant
        full = None if None in points else self._full(query, own, min(known), moment)
        return RefreshedTree(instant, moment.times.now, full, answer)

    # ---- streams

    def _by_event(self, stream: str) -> bool:
        return self.schemas[stream].ordered_by is not None

    def present(self, stream: str) -> int | None:
        """NOW of a stream, whatever instant is asked about."""
        return self.reached(stream, self.events) if self._by_event(stream) else self.clock

    def reached(self, stream: str, events: Sequence[Event]) -> int | None:
        return max((event.reached for event in events if event.stream == stream), default=None)

    @property
    def known(self) -> Sequence[Event]:
        if self.as_of is None or self.today:
            return self.events
        return [event for event in self.events if event.stamp <= self.as_of]

    def _streams(self, events: Sequence[Event]) -> dict[str, Known]:
        """All streams, of which the rows of some events are known."""
        return {
            name: Known(schema, rows_of(self.events, name), self.present(name), high(events, name))
            for name, schema in self.schemas.items()
        }

    # ---- moments

    def _moment(self, query: Query) -> _Moment:
        times = clocks(references(query), self._streams(self.events), self.clock, self.as_of)
        if times.now is None:
            return _Moment(_NEVER, self.known, None)
        by_clock = self.goes_by_clock(references(query))
        match query.refresh:
            case RefreshEvery():
                return self._every(query, query.refresh, times, by_clock)
            case RefreshOn():
                return self._on(query, query.refresh, times, by_clock)
        return _Moment(times, self.known, None)

    def goes_by_clock(self, found: Sequence[Awaited]) -> bool:
        event = [one for one in found if self._by_event(one.stream)]
        return not event or (len(event) < len(found) and not any(one.depends for one in event))

    def holding(self, legs: Sequence[Leg]) -> list[str]:
        """The streams whose least NOW a point waits for."""
        timed = [leg for leg in legs if self._by_event(leg.stream)]
        plain = [leg for leg in timed if not self.schemas[leg.stream].key and leg.as_of is None]
        return [leg.stream for leg in plain or timed]

    def least(self, legs: Sequence[Leg], events: Sequence[Event]) -> int | None:
        found = [self.reached(stream, events) for stream in self.holding(legs)]
        return None if None in found else min(one for one in found if one is not None)

    def _at(self, times: Clocks, by_clock: bool, now: int | None) -> Clocks:
        """The clocks of a point: the others stay at their own NOW."""
        if now is None:
            return _NEVER
        if by_clock:
            return replace(times, now=now, arrival=now)
        return replace(times, now=now, event=now)

    def _every(self, query: Query, refresh: RefreshEvery, times: Clocks, by_clock: bool) -> _Moment:
        now = self.as_of
        if now is None:
            now = self.clock if by_clock else self.least(query.legs, self.events)
        if now is None:
            return _Moment(_NEVER, (), None)
        instant = now // refresh.period * refresh.period
        return _Moment(
            self._at(times, by_clock, instant), self._until(query, instant, by_clock), instant
        )

    def _until(self, query: Query, instant: int, by_clock: bool) -> Sequence[Event]:
        known = self.known
        if self.today:
            return known
        if by_clock:
            return [event for event in known if event.stamp <= instant]
        for count in range(len(known) + 1):
            least = self.least(query.legs, known[:count])
            if least is not None and least >= instant:
                return known[:count]
        return known

    def _on(self, query: Query, refresh: RefreshOn, times: Clocks, by_clock: bool) -> _Moment:
        known = self.known
        matching = self._matching(refresh, known)
        if self.today and self.as_of is not None:
            instants = [known[n].stamp if by_clock else row["ts"] for n, row in matching]
            last = max((one for one in instants if one <= self.as_of), default=None)
            if last is None:
                return _Moment(_NEVER, (), None)
            return _Moment(self._at(times, by_clock, last), known, last)
        if not matching:
            return _Moment(_NEVER, (), None)
        place, row = matching[-1]
        stamp, events = known[place].stamp, known[: place + 1]
        if by_clock:
            return _Moment(self._at(times, True, stamp), events, stamp)
        found = [self.around(stream, place) for stream in self.holding(query.legs)]
        now = None if None in found else min(row["ts"], *(one for one in found if one is not None))
        return _Moment(self._at(times, False, now), events, row["ts"])

    def around(self, stream: str, place: int) -> int | None:
        """NOW of a stream before its first row after an event, and no later than the present."""
        present = self.present(stream) if self.as_of is None else self.as_of
        known = self.known
        later = (n for n, one in enumerate(known) if one.stream == stream and one.rows)
        after = next((n for n in later if n > place), None)
        reached = present if after is None else self.reached(stream, known[:after])
        return None if reached is None or present is None else min(reached, present)

    def _matching(self, refresh: RefreshOn, known: Sequence[Event]) -> list[tuple[int, Row]]:
        retain, present = self.schemas[refresh.stream].retain, self.present(refresh.stream)
        return [
            (place, row)
            for place, event in enumerate(known)
            for row in event.rows
            if event.stream == refresh.stream
            and row.get("_op", "row") == "row"
            and evaluate_row(refresh.where, row) is True
            and (retain is None or present is None or row["ts"] > present - retain)
        ]

    # ---- legs with points of their own

    def _full(self, query: Query, own: Sequence[Leg], last: int, moment: _Moment) -> int | None:
        periods = [leg.refresh.period for leg in own if leg.refresh is not None]
        match query.refresh:
            case RefreshEvery(period):
                periods.append(period)
            case RefreshOn():
                legs = _OwnPoints(self, query, moment.events)
                points = {legs.instant(leg, moment.times) for leg in own}
                return last if points == {moment.instant} else None
        full = last // math.lcm(*periods) * math.lcm(*periods)
        rows = [row for leg in own for row in rows_of(self.events, leg.stream)]
        return full if any(row["ts"] <= full for row in rows) else None


@dataclass(frozen=True)
class _OwnPoints:
    """The points of legs with REFRESH inside WINDOW() or of a view, where some events are known.
    Legs of one view have theirs together."""

    history: TreeHistory
    query: Query
    events: Sequence[Event]

    def of(self, leg: Leg, known: Known, times: Clocks) -> tuple[Known, Clocks]:
        instant = self.instant(leg, times)
        if instant is None:
            return known, _NEVER
        found = replace(known, high=high(self._until(leg, instant), leg.stream))
        if self._by_clock(leg):
            return found, Clocks(times.now, times.event, instant)
        return found, Clocks(times.now, instant, times.arrival)

    def instant(self, leg: Leg, times: Clocks) -> int | None:
        history, refresh, by_clock = self.history, leg.refresh, self._by_clock(leg)
        assert refresh is not None
        found = [times.arrival if by_clock else times.event]
        if not by_clock and history.as_of is None:
            place = len(self.events) - 1
            found += [history.around(one, place) for one in history.holding(self._legs(leg))]
        if None in found:
            return None
        return min(one for one in found if one is not None) // refresh.period * refresh.period

    def _legs(self, leg: Leg) -> list[Leg]:
        """The legs that have their points together with one."""
        if leg.together is None:
            return [leg]
        return [one for one in self.query.legs if one.together == leg.together]

    def _by_clock(self, leg: Leg) -> bool:
        legs = self._legs(leg)
        pairs = zip(self.query.legs, references(self.query), strict=True)
        return self.history.goes_by_clock([one for other, one in pairs if other in legs])

    def _until(self, leg: Leg, instant: int) -> Sequence[Event]:
        """The events known at the point of an instant."""
        if self.history.today:
            return self.events
        if self._by_clock(leg):
            return [event for event in self.events if event.stamp <= instant]
        for count in range(len(self.events) + 1):
            reached = self.history.least(self._legs(leg), self.events[:count])
            if reached is not None and reached >= instant:
                return self.events[:count]
        return self.events


def rows_of(events: Sequence[Event], stream: str) -> list[Row]:
    return [row for event in events if event.stream == stream for row in event.rows]


def high(events: Sequence[Event], stream: str) -> int:
    """The next row id of a stream after some events."""
    return len(rows_of(events, stream))
