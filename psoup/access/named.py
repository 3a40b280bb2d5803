"""The streams and views that a query names directly, not through a view: a caller needs permission
to read these.

A caller who may read a view needs no permission for the streams behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from psoup.store import Registration, State
from querystem.legs import Leg
from querystem.query import Item, Query, Source
from querystem.refresh import Refresh, triggers_of
from querystem.sources import From, LeftJoin, SetOperation


@dataclass(frozen=True, slots=True)
class NamedObjects:
    """The names of streams and of views that a text has."""

    streams: frozenset[str]
    views: frozenset[str]


def named_objects(query: Query) -> NamedObjects:
    """Return the names in a query outside of views: in FROM, in sub-queries, and after REFRESH
    ON."""
    names = list(_named(query))
    streams = frozenset(name for kind, name in names if kind == "stream")
    return NamedObjects(streams, frozenset(name for kind, name in names if kind == "view"))


def objects_of(state: State, registration: Registration, query: Query) -> set[int]:
    """Return the ids of the streams and views that a registration's text names directly; `query` is
    its bound query."""
    named = named_objects(query)
    legs = zip(query.legs, registration.legs, strict=True)
    triggers = zip(query.triggers, registration.triggers, strict=True)
    ids = {registered.stream_id for leg, registered in legs if leg.stream in named.streams}
    ids |= {
        registered.stream_id for trigger, registered in triggers if trigger.stream in named.streams
    }
    views = ((id_, state.views[id_].definition.name) for id_ in registration.views)
    return ids | {id_ for id_, name in views if name in named.views}


def _named(part: Source | Item) -> Iterator[tuple[str, str]]:
    """Yield the kind and the name of all that a part names outside views."""
    if isinstance(part, LeftJoin):
        yield from _named(part.left)
        yield from _named(part.right)
        return
    if isinstance(part, From):
        for item in part.items:
            yield from _named(item)
        for inner in part.subqueries:
            yield from _named(inner.query)
        return
    if part.view:
        yield "view", part.view
        # A window after the view's name may have a REFRESH, which is then of a query around it.
        if isinstance(part, Query) and _is_around(part):
            yield from _refreshing(part.refresh)
        return
    if isinstance(part, SetOperation):
        for query in part.queries:
            yield from _named(query)
        return
    yield from _refreshing(part.refresh)
    if isinstance(part, Leg):
        yield "stream", part.stream
    else:
        yield from _named(part.source)


def _is_around(query: Query) -> bool:
    """Return True if a query may be the wrapper that binding puts around a view for a REFRESH of
    its own. A view that shows all of an inner query looks the same, and also counts."""
    source = query.source
    return (
        isinstance(source, From) and len(source.items) == 1 and isinstance(source.items[0], Query)
    )


def _refreshing(refresh: Refresh | None) -> Iterable[tuple[str, str]]:
    triggers = () if refresh is None else triggers_of(refresh)
    return [("stream", trigger.stream) for trigger in triggers]
