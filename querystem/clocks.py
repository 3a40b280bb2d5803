"""NOW of a query: the clock, or how far the event-time streams that it waits for have come."""

from __future__ import annotations

from collections.abc import Sequence

from datastem.schema import StreamSchema


def is_timed(schema: StreamSchema) -> bool:
    """Return whether rows and heartbeats of a stream move its NOW."""
    return not schema.now_is_clock


def is_by_clock(moves: Sequence[bool], schemas: Sequence[StreamSchema]) -> bool:
    """Return whether the clock is the NOW of a query whose legs refer to streams of these schemas.
    `moves` says of each leg whether NOW moves it."""
    timed = [moving for moving, schema in zip(moves, schemas, strict=True) if is_timed(schema)]
    return not timed or (len(timed) < len(schemas) and not any(timed))


def is_apart(schema: StreamSchema, by_clock: bool) -> bool:
    """Return whether a leg is taken at its stream's own NOW, which is not of the query's kind."""
    return is_timed(schema) is by_clock


def is_awaited(schema: StreamSchema, moving: bool) -> bool:
    """Return whether a query over event time waits for the stream of a leg that NOW moves or
    not."""
    return moving and is_timed(schema)
