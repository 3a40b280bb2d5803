"""Questions: what is to be answered, whoever asks and by whatever wire.

A registration keeps its query as text, and a caller may bring a window as text. To read either
takes longer than many an answer, so texts that were read are remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from datastem.schema import StreamSchema
from psoup.answers.caches import Memo
from psoup.lookup import TenantStreams, find_registration
from psoup.store import State
from querystem.language import bind_query, bind_window
from querystem.pace import spending
from querystem.query import Query
from querystem.refresh import RefreshOn
from results.window import Window

# Bytes that are held for each character of a text that was read; units (`querystem.pace`) to read.
_HELD, _UNITS = 20, 1000


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """The source of a question about a registration of a tenant."""

    tenant: str
    handle: bytes


@dataclass(frozen=True, slots=True)
class BoundText:
    """The source of a question that is a text: the streams it was bound to.

    `trigger_stream_id` is the stream whose rows refresh the answer, if any do.
    """

    stream_id: int
    trigger_stream_id: int | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question is what is to be answered. `window` may be another than the query's.

    The answer is as of the instant `as_of`, or of now: as it was known then, or with `known_today`
    as the rows that have come since make it. `unrefreshed` asks for it as of now although the query
    has REFRESH. `base_rows` asks for the rows the query would compute its answer from. `ahead` says
    that rows are wanted too that enter the window later.
    """

    source: RegisteredQuery | BoundText
    query: Query
    window: Window
    as_of: int | None = None
    known_today: bool = False
    unrefreshed: bool = False
    base_rows: bool = False
    ahead: bool = False

    @classmethod
    def of_text(cls, sql: str, state: State, tenant: str = "main") -> Question:
        """A question about now, of a text without parameters. Raises QueryError."""
        streams = TenantStreams(state, tenant)
        query = bind_query(sql, streams.lookup, {}, names=streams.names)
        return cls(text_source(query, streams), query, query.leg.window)


def text_source(query: Query, streams: TenantStreams) -> BoundText:
    """The source of a query that was bound to some of the streams."""
    refresh = query.refresh
    trigger = streams.stream(refresh.stream).id if isinstance(refresh, RefreshOn) else None
    return BoundText(streams.bound.id, trigger)


# ---- the texts of registrations


@dataclass(frozen=True, slots=True)
class StoredTexts:
    """The texts that a question about a registration is read from: the query's form and, in the
    order of its legs, the keys of their predicates.

    `window` is empty where the caller brings none; else it is a text about a stream of the schema.
    """

    form: str
    predicate_keys: tuple[str, ...]
    window: str
    unrefreshed: bool
    stream_id: int
    schema: StreamSchema = field(compare=False)


@dataclass(frozen=True, slots=True)
class Reading:
    """A query, and the window to answer it for."""

    query: Query
    window: Window


def texts_of(state: State, source: RegisteredQuery, window: str, unrefreshed: bool) -> StoredTexts:
    """Raises UnknownHandle, RegistrationExpired."""
    registration = find_registration(state, source.tenant, source.handle)
    return StoredTexts(
        registration.query,
        tuple(state.predicates[leg.predicate_id].key for leg in registration.legs),
        window,
        unrefreshed,
        registration.stream_id,
        state.streams[registration.stream_id].schema,
    )


def known_reading(memo: Memo, texts: StoredTexts) -> Reading | None:
    """The reading of texts, where it is remembered."""
    query = memo.get(_query_key(texts.form, texts.predicate_keys))
    if not isinstance(query, Query):
        return None
    if not texts.window:
        return Reading(query, query.leg.window)
    window = memo.get(_window_key(texts, query))
    return None if window is None else Reading(query, window)  # type: ignore[arg-type]


def read_texts(memo: Memo, texts: StoredTexts) -> Reading:
    """Reads texts, in any thread. Raises QueryError for a window that is none."""
    query = read_query(memo, texts.form, texts.predicate_keys)
    if not texts.window:
        return Reading(query, query.leg.window)
    spending()(len(texts.window) * _UNITS)
    period = None if texts.unrefreshed else query.period
    window = bind_window(texts.window, texts.schema, period)
    memo.put(_window_key(texts, query), window, len(texts.window) * _HELD)
    return Reading(query, window)


def read_query(memo: Memo, form: str, predicate_keys: tuple[str, ...]) -> Query:
    """The query that was stored as this form, with a key for each of its legs. In any thread."""
    held = memo.get(_query_key(form, predicate_keys))
    if isinstance(held, Query):
        return held
    size = len(form) + sum(map(len, predicate_keys))
    spending()(size * _UNITS)
    query = Query.read(form, predicate_keys)
    memo.put(_query_key(form, predicate_keys), query, size * _HELD)
    return query


def _query_key(form: str, predicate_keys: tuple[str, ...]) -> tuple[str, str, tuple[str, ...]]:
    return "query", form, predicate_keys


def _window_key(texts: StoredTexts, query: Query) -> tuple[object, ...]:
    period = None if texts.unrefreshed else query.period
    return "window", texts.window, texts.stream_id, period
