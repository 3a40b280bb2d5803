"""Questions: what is to be answered, whoever asks and by whatever wire.

A registration keeps its query as text, and a caller may bring a window as text. To read either
takes longer than many an answer, so texts that were read are remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from datastem.schema import StreamSchema
from psoup.access.principal import ANYONE, Principal
from psoup.answers.caches import Memo
from psoup.answers.planning.policies import Permission
from psoup.lookup import TenantStreams, find_registration
from psoup.store import Position, State
from querystem.language import bind_query, bring_window
from querystem.pace import spending
from querystem.query import Query
from querystem.query_json import read_form

# Bytes that are held for each character of a text that was read; units (`querystem.pace`) to read.
_HELD, _UNITS = 20, 1000


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """The source of a question about a registration of a tenant, and of an owner; None stands for
    all owners.

    `text` is the position of the event that gave it the text that was read; None where no text was
    read yet.
    """

    tenant: str
    handle: bytes
    text: Position | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class BoundText:
    """The source of a question that is a text: the streams its legs were bound to.

    `trigger_stream_ids` are those whose rows refresh the answer or parts of it.
    """

    stream_ids: tuple[int, ...]
    trigger_stream_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A question is what is to be answered; the windows are those of the query's legs.

    Rows that no policy shows to the `reader` are no part of the answer. Where a `permission` is
    given, what the question is part of goes on only as long as the policies that bind are those.
    The answer is as of the instant `as_of`, or of now: as it was known then, or with `known_today`
    as the rows that have come since make it. `unrefreshed` asks for it as of now although the query
    has REFRESH. With `latest` no stream is waited for: NOW is the greatest ts that any of the
    event-time streams has reached. `base_rows` asks for the rows the query would compute its answer
    from. `ahead` says that rows are wanted too that enter the window later. With `changes` whoever
    asks keeps what changes, and wants to know which row is the update of which.
    """

    source: RegisteredQuery | BoundText
    query: Query
    reader: Principal
    permission: Permission | None = None
    as_of: int | None = None
    known_today: bool = False
    unrefreshed: bool = False
    latest: bool = False
    base_rows: bool = False
    ahead: bool = False
    changes: bool = False

    @classmethod
    def of_text(
        cls, sql: str, state: State, tenant: str = "main", reader: Principal = ANYONE
    ) -> Question:
        """A question about now, of a text without parameters. Raises QueryError."""
        streams = TenantStreams(state, tenant)
        query = bind_query(sql, streams.lookup, {}, names=streams.names)
        return cls(text_source(query, streams), query, reader)


def text_source(query: Query, streams: TenantStreams) -> BoundText:
    """The source of a query that was bound to some of the streams."""
    legs, triggers = (
        tuple(streams.stream(one.stream).id for one in several)
        for several in (query.legs, query.triggers)
    )
    return BoundText(legs, triggers)


# ---- the texts of registrations


@dataclass(frozen=True, slots=True)
class StoredTexts:
    """The texts that a question about a registration is read from.

    `window` is empty where the caller brings none; else it is for all legs that have none of their
    own. `stream_ids` and `schemas` are those of the legs. `source` names the registration as having
    these texts.
    """

    form: str
    predicate_keys: tuple[str, ...]
    window: str
    unrefreshed: bool
    stream_ids: tuple[int, ...]
    schemas: tuple[StreamSchema, ...] = field(compare=False)
    source: RegisteredQuery = field(compare=False)


def texts_of(state: State, source: RegisteredQuery, window: str, unrefreshed: bool) -> StoredTexts:
    """Raises UnknownHandle, RegistrationExpired."""
    registration = find_registration(state, source.tenant, source.handle, source.owner)
    legs = registration.legs
    return StoredTexts(
        registration.query,
        tuple(state.predicates[leg.predicate_id].key for leg in legs),
        window,
        unrefreshed,
        tuple(leg.stream_id for leg in legs),
        tuple(state.streams[leg.stream_id].schema for leg in legs),
        replace(source, text=registration.position),
    )


def known_reading(memo: Memo, texts: StoredTexts) -> Query | None:
    """The query that texts tell, with the window brought, where it is remembered."""
    held = memo.get(_reading_key(texts))
    return held if isinstance(held, Query) else None


def read_texts(memo: Memo, texts: StoredTexts) -> Query:
    """Reads texts, in any thread. Raises QueryError for a window that is none."""
    held = known_reading(memo, texts)
    if held is not None:
        return held
    query = read_query(memo, texts.form, texts.predicate_keys)
    if not texts.window:
        return query
    spending()(len(texts.window) * _UNITS)
    period = None if texts.unrefreshed else query.period
    query = bring_window(texts.window, query, texts.schemas, period)
    memo.put(_reading_key(texts), query, len(texts.window) * _HELD)
    return query


def read_query(memo: Memo, form: str, predicate_keys: tuple[str, ...]) -> Query:
    """The query that was stored as its form and the predicates of its legs. In any thread."""
    key = "query", form, predicate_keys
    held = memo.get(key)
    if isinstance(held, Query):
        return held
    size = len(form) + sum(map(len, predicate_keys))
    spending()(size * _UNITS)
    query = read_form(form, predicate_keys)
    memo.put(key, query, size * _HELD)
    return query


def _reading_key(texts: StoredTexts) -> tuple[object, ...]:
    if not texts.window:
        return "query", texts.form, texts.predicate_keys
    about = texts.window, texts.stream_ids, texts.unrefreshed
    return "query", texts.form, texts.predicate_keys, about
