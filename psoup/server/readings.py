"""Texts of registrations and calls, read in a thread and remembered: nothing is read on the loop.

A registration keeps its query as text, and a call may bring a window as text. To read either takes
longer than many an answer, and as long as somebody makes it take.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from datastem.schema import StreamSchema
from psoup.lookup import find_registration
from psoup.server.core import Core
from psoup.server.names import default_name
from psoup.server.summaries import Entry
from psoup.v1 import psoup_pb2 as pb
from querystem.language import bind_window
from querystem.pace import spending
from querystem.query import Query
from results.window import Window

# Bytes that are held for each character of a text that was read; units (`querystem.pace`) to read.
_HELD, _UNITS = 20, 1000


@dataclass(frozen=True, slots=True)
class Texts:
    """What an answer of a registration is to be read from; `window` is empty where a call brings
    none, and else is one of a stream with that schema."""

    form: str
    predicate_key: str
    window: str
    unrefreshed: bool
    stream_id: int
    schema: StreamSchema = field(compare=False)


@dataclass(frozen=True, slots=True)
class Reading:
    """The query, and the window to answer it for."""

    query: Query
    window: Window


def texts_of(core: Core, request: pb.InvokeRequest) -> Texts:
    """Raises UnknownHandle."""
    tenant = default_name(request.tenant, "tenant", core.settings)
    registration = find_registration(core.follower.state, tenant, request.handle)
    return Texts(
        registration.query,
        core.follower.state.predicates[registration.predicate_id].key,
        request.window,
        request.unrefreshed,
        registration.stream_id,
        core.follower.state.streams[registration.stream_id].schema,
    )


async def reading_of(core: Core, request: pb.InvokeRequest) -> Reading:
    """Raises UnknownHandle; QueryError for a window that is none."""
    texts = texts_of(core, request)
    known = known_reading(core, texts)
    return await core.in_thread(read, core, texts) if known is None else known


def known_reading(core: Core, texts: Texts) -> Reading | None:
    """What was read before and is remembered."""
    query = core.summaries.probe(_query_key(texts.form, texts.predicate_key))
    if query is None or not texts.window:
        return None if query is None else Reading(query.value, query.value.window)
    window = core.summaries.probe(_window_key(texts, query.value))
    return None if window is None else Reading(query.value, window.value)


def read(core: Core, texts: Texts) -> Reading:
    """In any thread. Raises QueryError for a window that is none."""
    query = read_query(core, texts.form, texts.predicate_key)
    if not texts.window:
        return Reading(query, query.window)
    spending()(len(texts.window) * _UNITS)
    period = None if texts.unrefreshed else query.period
    window = bind_window(texts.window, texts.schema, period)
    core.summaries.insert(_window_key(texts, query), _entry(window, len(texts.window)))
    return Reading(query, window)


def read_query(core: Core, form: str, predicate_key: str) -> Query:
    """In any thread."""
    held = core.summaries.probe(_query_key(form, predicate_key))
    if held is not None:
        found: Query = held.value
        return found
    size = len(form) + len(predicate_key)
    spending()(size * _UNITS)
    query = Query.read(form, predicate_key)
    core.summaries.insert(_query_key(form, predicate_key), _entry(query, size))
    return query


def _entry(value: Query | Window, size: int) -> Entry:
    return Entry(0, 0, 0, 0, value, size * _HELD)


def _query_key(form: str, predicate_key: str) -> tuple[str, str, str]:
    return "query", form, predicate_key


def _window_key(texts: Texts, query: Query) -> tuple[object, ...]:
    period = None if texts.unrefreshed else query.period
    return "window", texts.window, texts.stream_id, period
