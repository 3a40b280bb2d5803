"""NOW of a query: the clock, or how far the streams have come that it waits for.

Over event time a query waits for the stream that lags, so that a join is not made with holes. Only
references whose window depends on NOW are waited for: a table of names that gets a row a month
holds nothing back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psoup.answers.view import View
from psoup.store import StreamState
from querystem.query import Leg
from results.window import depends_on_now


@dataclass(frozen=True, slots=True)
class Present:
    """NOW of a query, and the NOW each of its legs is taken at; None where there is none yet."""

    now: int | None
    legs: tuple[int | None, ...]


def present_of(view: View, legs: Sequence[Leg], streams: Sequence[StreamState]) -> Present:
    """NOW of a query whose legs refer to `streams`.

    Where streams have both kinds of time, the references of one kind don't depend on NOW: each is
    then taken at its stream's own NOW.
    """
    timed = [stream.reached for stream in streams if _is_timed(stream)]
    awaited = [
        stream.reached
        for leg, stream in zip(legs, streams, strict=True)
        if _is_timed(stream) and depends_on_now(leg.window)
    ]
    by_clock = not timed or (len(timed) < len(streams) and not awaited)
    now = view.now if by_clock else _reached(awaited, timed)
    taken = [view.now_of(one) if _is_timed(one) is by_clock else now for one in streams]
    return Present(now, tuple(taken))


def _is_timed(stream: StreamState) -> bool:
    """Tells whether rows bring their own ts."""
    return stream.schema.ordered_by is not None


def _reached(awaited: Sequence[int | None], every: Sequence[int | None]) -> int | None:
    """The least NOW of the streams that are waited for; the greatest of all where none is."""
    if awaited:
        known = [now for now in awaited if now is not None]
        return min(known) if len(known) == len(awaited) else None
    return max((now for now in every if now is not None), default=None)
