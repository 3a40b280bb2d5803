"""Answers of queries over several streams with REFRESH, from a list of events: walk them all.

The rules are those of the specification, one after the other: which references hold a point back,
which event takes the last of them to its instant, what a leg with points of its own shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from datastem.schema import StreamSchema
from querystem.expressions import Scalar
from querystem.legs import Leg
from querystem.query import Item, Query, Source
from querystem.refresh import Refresh, RefreshAny, RefreshEvery, RefreshOn
from querystem.sources import From, LeftJoin, SetOperation
from tests.oracle.clocks import Clocks, Known, clocks, references
from tests.oracle.evaluator import evaluate_row
from tests.oracle.refresh import Event
from tests.oracle.trees import PartPoints, Row, World
from tests.oracle.windows import Shown, everything

# Parts that may have points of their own.
Part: TypeAlias = Query | Leg


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
    """Events in the order of the log, and when a query is asked over them. For streams with
    policies `shown` says whether a row is visible."""

    schemas: Mapping[str, StreamSchema]
    events: Sequence[Event]
    clock: int
    as_of: int | None = None
    today: bool = False
    shown: Mapping[str, Shown] = field(default_factory=dict)

    def ask(self, query: Query) -> RefreshedTree:
        moment = self._whole(query)
        points = _Inside(self, moment)
        world = World(self.streams(moment.events), self.clock, points=points)
        answer = world.answer_at(query, moment.times)
        inside = list(self._parts(query.source, moment))
        if moment.times.now is None or not inside:
            return RefreshedTree(moment.instant, moment.times.now, None, answer)
        instants = [
            part_moment.instant for _, part_moment in inside if part_moment.instant is not None
        ]
        instant = max(instants, default=None) if query.refresh is None else moment.instant
        parts = inside if query.refresh is None else [(query, moment), *inside]
        full = _full([(part.refresh, part_moment.instant) for part, part_moment in parts])
        legs = [leg for part, _ in inside for leg in legs_of(part)]
        began = full is not None and any(self._had_begun(leg.stream, full) for leg in legs)
        every = all(isinstance(part.refresh, RefreshEvery) for part, _ in parts)
        return RefreshedTree(
            instant, moment.times.now, full if began or not every else None, answer
        )

    def _parts(self, source: Source | Item, around: _Moment) -> Iterator[tuple[Part, _Moment]]:
        """Yield the parts inside that have points, with the moment each is of."""
        if isinstance(source, Query | Leg) and source.refresh is not None:
            around = self.inside(source, around)
            yield source, around
        for inner in inside(source):
            yield from self._parts(inner, around)

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

    def retains(self, stream: str, instant: int) -> bool:
        """Return whether rows of an instant are still there, for certain."""
        retain, present = self.schemas[stream].retain, self.present(stream)
        return retain is None or present is None or instant > present - retain

    def _had_begun(self, stream: str, instant: int) -> bool:
        if not self.retains(stream, instant):
            return True
        return any(row["ts"] <= instant for row in rows_of(self.events, stream))

    def has_retained(self, event: Event) -> bool:
        """Return whether a row of an event is still there, for certain."""
        return any(self.retains(event.stream, row["ts"]) for row in event.rows)

    def _is_unknown_heartbeat(self, event: Event, as_of: int) -> bool:
        retained = self.retains(event.stream, event.reached)
        return not event.rows and event.stamp > as_of and retained

    def streams(self, events: Sequence[Event]) -> dict[str, Known]:
        """Return all streams, of which the rows of some events are known."""
        return {
            name: Known(
                schema,
                rows_of(self.events, name),
                self.present(name),
                high(events, name),
                self.shown.get(name, everything),
            )
            for name, schema in self.schemas.items()
        }

    # ---- moments

    def _whole(self, query: Query) -> _Moment:
        times = clocks(references(query), self.streams(self.events), self.clock, self.as_of)
        if times.now is None:
            return _Moment(_NEVER, self.known, None)
        around = _Moment(times, self.known, None)
        return around if query.refresh is None else self._at_point(query, around, whole=True)

    def inside(self, part: Part, around: _Moment) -> _Moment:
        """Return the moment of a part that has points, given the moment of what is around it."""
        if around.times.now is None:
            return replace(around, instant=None)
        return self._at_point(part, around, whole=False)

    def _at_point(self, part: Part, around: _Moment, whole: bool) -> _Moment:
        rows = part if isinstance(part, Leg) else part.source
        part_references = references(rows)
        event = [reference for reference in part_references if self._by_event(reference.stream)]
        by_clock = not event or (
            len(event) < len(part_references) and not any(reference.depends for reference in event)
        )
        timed = [leg for leg in legs_of(rows) if self._by_event(leg.stream)]
        plain = [leg for leg in timed if not self.schemas[leg.stream].key and leg.as_of is None]
        holding = [leg.stream for leg in plain or timed]
        point = _Pointing(self, around, by_clock, holding, whole)
        if point.now is None:
            return _Moment(_NEVER, (), None)
        return point.last(part.refresh)

    def around(self, stream: str, place: int) -> int | None:
        """NOW of a stream before its first retained row after an event, and no later than the
        present; as of an instant, before its first retained heartbeat after that, too."""
        present = self.present(stream)
        places = [n for n, event in enumerate(self.events) if event.stream == stream]
        later = [n for n in places if n > place and self.has_retained(self.events[n])]
        if self.as_of is not None and not self.today:
            later += [n for n in places if self._is_unknown_heartbeat(self.events[n], self.as_of)]
        after = min(later, default=None)
        reached = present if after is None else self.reached(stream, self.events[:after])
        if reached is None or present is None:
            return None
        asked_instant = [] if self.as_of is None else [self.as_of]
        return min(reached, present, *asked_instant)

    def matching(self, refresh: RefreshOn, events: Sequence[Event]) -> list[tuple[int, Row]]:
        return [
            (place, row)
            for place, event in enumerate(events)
            for row in event.rows
            if event.stream == refresh.stream
            and row.get("_op", "row") == "row"
            and evaluate_row(refresh.where, row) is True
            and self.shown.get(refresh.stream, everything)(row)
            and self.retains(refresh.stream, row["ts"])
        ]


@dataclass(frozen=True)
class _Pointing:
    """Finds the last point of a part at a moment of what is around it; `holding` are the streams
    whose least NOW a point waits for."""

    history: TreeHistory
    moment: _Moment
    by_clock: bool
    holding: Sequence[str]
    whole: bool

    @property
    def now(self) -> int | None:
        times = self.moment.times
        if self.whole:
            return times.now
        return times.arrival if self.by_clock else times.event

    def _least(self, instants: Sequence[int | None]) -> int | None:
        return (
            None
            if None in instants
            else min(instant for instant in instants if instant is not None)
        )

    def _at(self, now: int | None) -> Clocks:
        """Return the clocks of a point: the others stay at their own NOW."""
        times = self.moment.times
        if now is None:
            return _NEVER
        if self.by_clock:
            return replace(times, now=now, arrival=now)
        return Clocks(now, now, times.arrival)

    def last(self, refresh: Refresh | None) -> _Moment:
        """Return the latest of the points of all parts: a row counts as later than a like
        instant."""
        match refresh:
            case RefreshEvery():
                return self.every(refresh)
            case RefreshOn():
                return self.on(refresh)
            case RefreshAny(parts):
                candidates = [(self.last(part), isinstance(part, RefreshOn)) for part in parts]
                return max(candidates, key=_rank)[0]
        raise AssertionError("the part has points")

    def every(self, refresh: RefreshEvery) -> _Moment:
        history, now, events = self.history, self.now, self.moment.events
        if not history.today and not self.by_clock:
            place = len(events) - 1
            reached = [history.around(stream, place) for stream in self.holding]
            fresh = self.whole and history.as_of is None
            now = self._least(reached if fresh else [*reached, now])
        if now is None:
            return _Moment(_NEVER, (), None)
        instant = (now - refresh.offset) // refresh.period * refresh.period + refresh.offset
        return _Moment(self._at(instant), self._until(instant), instant)

    def _until(self, instant: int) -> Sequence[Event]:
        events, history = self.moment.events, self.history
        if history.today:
            return events
        if self.by_clock:
            return [event for event in events if event.stamp <= instant]
        crossings = [self._crossing(stream, instant) for stream in self.holding]
        counts = [count for count in crossings if count is not None]
        bounded = history.as_of is not None or self.moment.instant is not None
        return events[: max(counts, default=len(events) if bounded else 0)]

    def _crossing(self, stream: str, instant: int) -> int | None:
        """Return how many events there are up to the one that took a stream to an instant; all of
        them if it is yet to come, None if it may be deleted. It does not matter whether it was
        known then: for a deleted event that can't be found out."""
        history, keyed = self.history, bool(self.history.schemas[stream].key)
        for count, event in enumerate(history.events, 1):
            if event.stream == stream and event.reached >= instant:
                is_known = keyed or history.retains(stream, instant) or history.has_retained(event)
                return count if is_known else None
        return len(history.events)

    def on(self, refresh: RefreshOn) -> _Moment:
        history, events_known, now = self.history, self.moment.events, self.now
        matching = history.matching(refresh, events_known)
        if history.today:
            instants = [
                events_known[n].stamp if self.by_clock else row["ts"] for n, row in matching
            ]
            last = max(
                (instant for instant in instants if now is not None and instant <= now),
                default=None,
            )
            return (
                _Moment(_NEVER, (), None)
                if last is None
                else _Moment(self._at(last), events_known, last)
            )
        if not matching:
            return _Moment(_NEVER, (), None)
        place, row = matching[-1]
        stamp, events = events_known[place].stamp, events_known[: place + 1]
        if self.by_clock:
            return _Moment(self._at(stamp), events, stamp)
        reached = [history.around(stream, place) for stream in self.holding]
        now = self._least([row["ts"], *reached, *([] if self.whole else [now])])
        return _Moment(self._at(now), events, row["ts"])


@dataclass(frozen=True)
class _Inside:
    """The points of the parts inside something that is of one moment."""

    history: TreeHistory
    moment: _Moment

    def within(self, part: Part) -> tuple[Mapping[str, Known], Clocks, PartPoints]:
        moment = self.history.inside(part, self.moment)
        return self.history.streams(moment.events), moment.times, _Inside(self.history, moment)


def _full(points: Sequence[tuple[Refresh | None, int | None]]) -> int | None:
    """Return the last instant that is a point of all; of rows only the last one is looked at."""
    instants = [instant for _, instant in points if instant is not None]
    if len(instants) < len(points):
        return None
    every = [refresh for refresh, _ in points if isinstance(refresh, RefreshEvery)]
    if len(every) < len(points):
        return instants[0] if len(set(instants)) == 1 else None
    step, last = every[0].period, every[0].offset
    begun = min(instants) - (min(instants) - last) % step
    seconds = range(begun, begun - math.lcm(*(refresh.period for refresh in every)), -step)
    full = (
        at
        for at in seconds
        if all((at - refresh.offset) % refresh.period == 0 for refresh in every)
    )
    return next(full, None)


def _rank(candidate: tuple[_Moment, bool]) -> tuple[int, int, bool, int]:
    moment, by_row = candidate
    now, instant = moment.times.now, moment.instant
    ranked = -(1 << 62) if instant is None else instant
    return ranked, -(1 << 62) if now is None else now, by_row, len(moment.events)


def inside(source: Source | Item) -> Sequence[Source | Item]:
    """Return the sources that one is made of."""
    match source:
        case Leg():
            return ()
        case From(items, _, subqueries):
            return (*items, *(subquery.query for subquery in subqueries))
        case LeftJoin(left_side, right_side):
            return (left_side, right_side)
        case SetOperation(_, queries):
            return queries
        case Query():
            return (source.source,)


def legs_of(source: Source | Item) -> list[Leg]:
    if isinstance(source, Leg):
        return [source]
    return [leg for inner in inside(source) for leg in legs_of(inner)]


def rows_of(events: Sequence[Event], stream: str) -> list[Row]:
    return [row for event in events if event.stream == stream for row in event.rows]


def high(events: Sequence[Event], stream: str) -> int:
    """Return the next row id of a stream after some events."""
    return len(rows_of(events, stream))
