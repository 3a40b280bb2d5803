"""NOW of a query: the clock, or the ts that the streams it waits for have reached.

With event time a query waits for the slowest stream, so that a join has no holes. It waits only for
references whose window, or a window over them, depends on NOW: a table of names that gets a row a
month delays nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

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

    @classmethod
    def of(cls, streams: Sequence[StreamState]) -> Reached:
        timed = [stream.reached for stream in streams if is_timed(stream.schema)]
        return cls(_least(timed), _greatest(timed))


@dataclass(frozen=True, slots=True)
class Present:
    """NOW of a query, and the NOW that each of its legs is taken at; None before there is one."""

    now: int | None
    legs: tuple[int | None, ...]


def present_of(
    view: View,
    query: Query,
    streams: Sequence[StreamState],
    latest: bool = False,
    hidden: Collection[int] = (),
) -> Present:
    """Return NOW of a query whose legs refer to `streams`.

    With `latest` the query waits for no stream, except those of `hidden` ids that a view waits for:
    the caller may not look behind the view. If streams have both kinds of time, the references of
    one kind don't depend on NOW: each is then taken at its stream's own NOW.
    """
    by_clock = is_by_clock(query.moving, [stream.schema for stream in streams])
    timed = [stream.reached for stream in streams if is_timed(stream.schema)]
    waited_for = [
        stream.reached
        for moving, stream in zip(query.moving, streams, strict=True)
        if is_awaited(stream.schema, moving)
    ]
    if by_clock:
        now: int | None = view.now
    elif waited_for and not latest:
        now = _least(waited_for)
    else:
        now = _least([_greatest(timed), *hidden_reached(query, streams, hidden)])
    legs = [view.now_of(stream) if is_apart(stream.schema, by_clock) else now for stream in streams]
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
