"""NOW of a query over several streams, and of each of its legs: the rules one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datastem.schema import StreamSchema
from querystem.legs import Leg
from querystem.query import Item, Query, Source
from querystem.sources import From, LeftJoin, SetOperation
from results.window import CountWindow, RowWindow, TimeWindow, Window
from tests.oracle.windows import Shown, everything

Row = Mapping[str, Any]


class MixedClocks(Exception):
    """Event time and arrival time in one query, and both kinds depend on NOW."""


@dataclass(frozen=True)
class Known:
    """A stream: all rows ever accepted, and how far its time has come (`reached`; None: nowhere).

    Rows with an id below `high` are known when the query is asked; None: all. Answers are made of
    rows that are `shown`.
    """

    schema: StreamSchema
    rows: Sequence[Row]
    reached: int | None
    high: int | None = None
    shown: Shown = everything

    @property
    def seen(self) -> list[Row]:
        return [row for row in self.rows if self.high is None or row["row_id"] < self.high]


@dataclass(frozen=True)
class Awaited:
    """A reference to a stream, and whether its window, or one over it, depends on NOW."""

    stream: str
    depends: bool


@dataclass(frozen=True)
class Clocks:
    """NOW of a query, and NOW at which the legs over event time and those over arrival time are
    taken; None if there is none. `apart`: a leg over event time is taken at its stream's own."""

    now: int | None
    event: int | None
    arrival: int
    apart: bool = False

    def of(self, stream: Known) -> int | None:
        if stream.schema.ordered_by is None:
            return self.arrival
        return stream.reached if self.apart else self.event


def clocks(
    references: Sequence[Awaited],
    streams: Mapping[str, Known],
    clock: int,
    as_of: int | None = None,
    latest: bool = False,
) -> Clocks:
    """NOW over event time is the least of the references that depend on it, else the greatest of
    all. Where only those of one kind of time depend on it, NOW is theirs. Raises MixedClocks."""
    if as_of is not None:
        return Clocks(as_of, as_of, as_of)
    event = [
        reference
        for reference in references
        if streams[reference.stream].schema.ordered_by is not None
    ]
    arrival = [
        reference for reference in references if streams[reference.stream].schema.ordered_by is None
    ]
    event_waits, arrival_waits = (
        any(reference.depends for reference in kind) for kind in (event, arrival)
    )
    if event_waits and arrival_waits:
        raise MixedClocks
    reached = _reached(
        [(streams[reference.stream].reached, reference.depends) for reference in event], latest
    )
    by_clock = bool(arrival) and not event_waits
    return Clocks(clock if by_clock else reached, reached, clock, apart=by_clock)


def _reached(legs: Sequence[tuple[int | None, bool]], latest: bool) -> int | None:
    every = [reached for reached, _ in legs if reached is not None]
    waited_for = [reached for reached, depends in legs if depends]
    if not waited_for or latest:
        return max(every, default=None)
    return (
        None
        if None in waited_for
        else min(instant for instant in waited_for if instant is not None)
    )


def references(source: Source | Item, below: bool = False) -> list[Awaited]:
    """Return the legs of a tree; `below` a window that depends on NOW each of them does."""
    match source:
        case Leg():
            return [Awaited(source.stream, below or depends_on_now(source.window))]
        case From(items, _, subqueries):
            inner = [*items, *(subquery.query for subquery in subqueries)]
            return [reference for item in inner for reference in references(item, below)]
        case LeftJoin(left_side, right_side):
            return [*references(left_side, below), *references(right_side, below)]
        case SetOperation(_, queries):
            return [reference for query in queries for reference in references(query, below)]
        case Query():
            below = below or (source.over is not None and depends_on_now(source.over))
            return references(source.source, below)


def depends_on_now(window: Window) -> bool:
    """Return whether a window holds other rows as time goes by, though none comes.

    Without an end a window reaches up to NOW: what came is there, and counts for nothing.
    """
    match window:
        case TimeWindow(begin, end, slide):
            ends = [bound for bound in (begin, end) if bound is not None]
            return slide is not None or any(bound.relative for bound in ends)
        case RowWindow():
            return False
        case CountWindow():
            return True
