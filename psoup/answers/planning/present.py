"""NOW of a query: the clock, or the ts that the streams it waits for have reached.

With event time a query waits for the slowest stream, so that a join has no holes. It waits only for
references whose window, or a window over them, depends on NOW: a table of names that gets a row a
month delays nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import compress

from datastem.schema import StreamSchema
from psoup.answers.replicas.view import View
from psoup.store import StreamState
from querystem.clocks import is_apart, is_awaited, is_by_clock, is_timed
from querystem.query import Query


@dataclass(frozen=True, slots=True)
class Reached:
    """The progress of a query's event-time streams: `least` is the ts that all of them have
    reached, `greatest` the one that any has. None if there is no such ts or no such stream."""

    least: int | None = None
    greatest: int | None = None


@dataclass(frozen=True, slots=True)
class QueryClocks:
    """How a query follows clocks: whether NOW is the machine's (`by_clock`); and of each leg,
    whether its rows move NOW (`timed`), whether the query waits for its stream
    (`awaited`), and whether it is taken at its stream's own NOW (`apart`).

    If streams have both kinds of time, the references of one kind don't depend on NOW.
    """

    by_clock: bool
    timed: tuple[bool, ...]
    awaited: tuple[bool, ...]
    apart: tuple[bool, ...]

    @classmethod
    def of(cls, query: Query, schemas: Sequence[StreamSchema]) -> QueryClocks:
        """Return the clocks of a query whose legs refer to streams of these schemas."""
        by_clock = is_by_clock(query.moving, schemas)
        moves = zip(schemas, query.moving, strict=True)
        return cls(
            by_clock,
            tuple(is_timed(schema) for schema in schemas),
            tuple(is_awaited(schema, moving) for schema, moving in moves),
            tuple(is_apart(schema, by_clock) for schema in schemas),
        )

    def reached(self, streams: Sequence[StreamState]) -> Reached:
        """Return how far the streams of the legs have come."""
        instants = list(compress([stream.reached for stream in streams], self.timed))
        return Reached(_least(instants), _greatest(instants))


@dataclass(frozen=True, slots=True)
class Present:
    """NOW of a query, and the NOW that each of its legs is taken at; None before there is one."""

    now: int | None
    legs: tuple[int | None, ...]


def present_of(
    view: View,
    clocks: QueryClocks,
    streams: Sequence[StreamState],
    latest: bool = False,
    hidden: Sequence[int | None] = (),
) -> Present:
    """Return NOW of a query whose legs refer to `streams`.

    With `latest` the query waits for no stream, except those that a view waits for and that have
    reached the instants `hidden`: the caller may not look behind the view.
    """
    reached = [stream.reached for stream in streams]
    if clocks.by_clock:
        now: int | None = view.now
    elif any(clocks.awaited) and not latest:
        now = _least(list(compress(reached, clocks.awaited)))
    else:
        now = _least([_greatest(list(compress(reached, clocks.timed))), *hidden])
    legs = [
        view.now_of(stream) if apart else now
        for stream, apart in zip(streams, clocks.apart, strict=True)
    ]
    return Present(now, tuple(legs))


def hidden_reached(
    query: Query, streams: Sequence[StreamState], hidden: Collection[int]
) -> list[int | None]:
    """Return the ts reached by those event-time streams of `hidden` ids that a view in the query
    waits for. An answer as of a later instant would look behind the view."""
    return [
        stream.reached
        for moving, windows, stream in zip(query.moving, query.view_windows, streams, strict=True)
        if stream.id in hidden and windows and is_awaited(stream.schema, moving)
    ]


def _least(reached: Sequence[int | None]) -> int | None:
    """Return the least ts; None if a stream has reached none yet."""
    instants = [ts for ts in reached if ts is not None]
    return min(instants) if instants and len(instants) == len(reached) else None


def _greatest(reached: Sequence[int | None]) -> int | None:
    return max((ts for ts in reached if ts is not None), default=None)
