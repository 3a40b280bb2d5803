"""NOW of a query: the clock, or how far the streams have come that it waits for.

Over event time a query waits for the stream that lags, so that a join is not made with holes. Only
references whose window, or a window over them, depends on NOW are waited for: a table of names that
gets a row a month holds nothing back.
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
    """How far the event-time streams of a query have come: `least` is the ts that all of them have
    reached, `greatest` the one that any has. None where there is no such ts or no such stream."""

    least: int | None = None
    greatest: int | None = None

    @classmethod
    def of(cls, streams: Sequence[StreamState]) -> Reached:
        timed = [stream.reached for stream in streams if is_timed(stream.schema)]
        return cls(_least(timed), _greatest(timed))


@dataclass(frozen=True, slots=True)
class Present:
    """NOW of a query, and the NOW each of its legs is taken at; None where there is none yet."""

    now: int | None
    legs: tuple[int | None, ...]


def present_of(
    view: View,
    query: Query,
    streams: Sequence[StreamState],
    latest: bool = False,
    hidden: Collection[int] = (),
) -> Present:
    """NOW of a query whose legs refer to `streams`; with `latest` no stream is waited for, but for
    those of `hidden` ids that a view waits for: the caller may not look behind it.

    Where streams have both kinds of time, the references of one kind don't depend on NOW: each is
    then taken at its stream's own NOW.
    """
    by_clock = is_by_clock(query.moving, [stream.schema for stream in streams])
    timed = [stream.reached for stream in streams if is_timed(stream.schema)]
    awaited = [
        stream.reached
        for moving, stream in zip(query.moving, streams, strict=True)
        if is_awaited(stream.schema, moving)
    ]
    if by_clock:
        now: int | None = view.now
    elif awaited and not latest:
        now = _least(awaited)
    else:
        now = _least([_greatest(timed), *hidden_reached(query, streams, hidden)])
    taken = [view.now_of(one) if is_apart(one.schema, by_clock) else now for one in streams]
    return Present(now, tuple(taken))


def hidden_reached(
    query: Query, streams: Sequence[StreamState], hidden: Collection[int]
) -> list[int | None]:
    """Return how far the event-time streams of `hidden` ids have come that a view in the query
    waits for. No instant past those may be asked about without looking behind the view."""
    return [
        stream.reached
        for moving, windows, stream in zip(query.moving, query.view_windows, streams, strict=True)
        if stream.id in hidden and windows and is_awaited(stream.schema, moving)
    ]


def _least(reached: Sequence[int | None]) -> int | None:
    """The least ts; None where a stream has reached none yet."""
    known = [ts for ts in reached if ts is not None]
    return min(known) if known and len(known) == len(reached) else None


def _greatest(reached: Sequence[int | None]) -> int | None:
    return max((ts for ts in reached if ts is not None), default=None)
