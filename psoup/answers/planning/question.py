"""Questions: what is to be answered, independent of caller and wire.

A registration stores its query as text, and a caller may bring a window as text. Reading either
takes longer than many answers, so the queries that were read are cached.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from datastem.schema import StreamSchema
from datastem.zones import Zones
from psoup.access.principal import ANYONE, Principal
from psoup.answers.caches import Memo
from psoup.answers.planning.policies import Permission
from psoup.answers.planning.prepared import PreparedQuery
from psoup.errors import UnknownTimeZone
from psoup.lookup import TenantStreams, find_registration
from psoup.store import Position, Registration, State
from querystem.language import bind_query, bring_window
from querystem.pace import spending
from querystem.query import Query
from querystem.query_json import read_form
from querystem.zones import with_zones, zones_of

# For each character of a text: bytes of its query in memory, and units (`querystem.pace`) to read.
_BYTES_PER_CHARACTER, _UNITS_PER_CHARACTER = 20, 1000
# The bytes of a prepared query and its registration beside their texts, about.
_PREPARED_BYTES = 2000


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """The source of a question about a registration of a tenant, and of an owner; None means any
    owner.

    `text` is the position of the event that gave the registration the text that was read; None
    before a text was read.
    """

    tenant: str
    handle: bytes
    text: Position | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class BoundText:
    """The source of a question that is a text: the streams that its legs were bound to.

    `trigger_stream_ids` are those whose rows refresh the answer or parts of it.
    """

    stream_ids: tuple[int, ...]
    trigger_stream_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be answered; the windows are those of the query's legs.

    - `reader`: the caller. Rows that no policy permits it to see are not part of the answer.
    - `permission`: if set, planning fails as soon as other policies bind than these.
    - `as_of`: the instant of the answer, None for now. The answer is as it was known then, or with
      `known_today` with the rows that have come since.
    - `unrefreshed`: ignore REFRESH, and answer as of now.
    - `latest`: wait for no stream. NOW is the greatest ts that any event-time stream has reached.
    - `base_rows`: return the rows that the query would compute its answer from.
    - `ahead`: include rows that enter the window later.
    - `changes`: the client keeps a log of changes, and wants to know which row updates which.
    - `every_point`: the client wants the answer of each refresh point that it has missed, one after
      the other. The plan is not settled: which point is next depends on the copy.
    - `prepared`: the query as it was prepared when it was read; None if it was not.
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
    every_point: bool = False
    prepared: PreparedQuery | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of_text(
        cls, sql: str, state: State, tenant: str = "main", reader: Principal = ANYONE
    ) -> Question:
        """Return a question about now, from a text without parameters. Raises QueryError,
        UnknownTimeZone."""
        streams = TenantStreams(state, tenant)
        query = bind_query(sql, streams.lookup, {}, names=streams.names)
        query = in_zones(query, state.zones)
        return cls(text_source(query, streams), query, reader)


def text_source(query: Query, streams: TenantStreams) -> BoundText:
    """Return the source of a query that was bound to some of the streams."""
    legs, triggers = (
        tuple(streams.stream(reference.stream).id for reference in references)
        for references in (query.legs, query.triggers)
    )
    return BoundText(legs, triggers)


def in_zones(query: Query, zones: Zones) -> Query:
    """Return a query with the rules of its time zones. Raises UnknownTimeZone if the store has none
    of one of them."""
    check_zones(zones_of(query), zones)
    return with_zones(query, zones)


def check_zones(names: frozenset[str], zones: Zones) -> None:
    """Raise UnknownTimeZone if the store has no rules of one of these time zones."""
    if missing := names - zones.keys():
        raise UnknownTimeZone(missing)


# ---- the texts of registrations


@dataclass(frozen=True, slots=True)
class StoredTexts:
    """The texts that a question about a registration is read from.

    `window` is the caller's, for all legs that have none of their own; empty without one.
    `stream_ids` and `schemas` are those of the legs, `zones` the store's. `source` names the
    registration as having these texts, and `registration` is what it was then.
    """

    form: str
    predicate_keys: tuple[str, ...]
    window: str
    unrefreshed: bool
    stream_ids: tuple[int, ...]
    schemas: tuple[StreamSchema, ...] = field(compare=False)
    zones: Zones = field(compare=False)
    source: RegisteredQuery = field(compare=False)
    registration: Registration = field(compare=False)


def texts_of(state: State, source: RegisteredQuery, window: str, unrefreshed: bool) -> StoredTexts:
    """Return the texts of a registration. Raises UnknownHandle, RegistrationExpired."""
    registration = find_registration(state, source.tenant, source.handle, source.owner)
    legs = registration.legs
    return StoredTexts(
        registration.query,
        tuple(state.predicates[leg.predicate_id].key for leg in legs),
        window,
        unrefreshed,
        tuple(leg.stream_id for leg in legs),
        tuple(state.streams[leg.stream_id].schema for leg in legs),
        state.zones,
        replace(source, text=registration.position),
        registration,
    )


def cached_query(memo: Memo, texts: StoredTexts) -> Query | None:
    """Return the query of texts, with the caller's window; None if it is not cached."""
    cached = memo.get(_reading_key(texts))
    return cached if isinstance(cached, Query) else None


def read_texts(memo: Memo, texts: StoredTexts) -> Query:
    """Return the query of texts, with the caller's window. Thread-safe. Raises QueryError for a
    window that can't be read."""
    cached = cached_query(memo, texts)
    if cached is not None:
        return cached
    query = read_query(memo, texts.form, texts.predicate_keys)
    if not texts.window:
        return query
    spending()(len(texts.window) * _UNITS_PER_CHARACTER)
    period = None if texts.unrefreshed else query.period
    query = bring_window(texts.window, query, texts.schemas, period)
    memo.put(_reading_key(texts), query, len(texts.window) * _BYTES_PER_CHARACTER)
    return query


def read_query(memo: Memo, form: str, predicate_keys: tuple[str, ...]) -> Query:
    """Return the query that was stored as its form and the predicates of its legs. Thread-safe."""
    key = "query", form, predicate_keys
    cached = memo.get(key)
    if isinstance(cached, Query):
        return cached
    size = len(form) + sum(map(len, predicate_keys))
    spending()(size * _UNITS_PER_CHARACTER)
    query = read_form(form, predicate_keys)
    memo.put(key, query, size * _BYTES_PER_CHARACTER)
    return query


def cached_prepared(
    memo: Memo, state: State, registration: Registration, window: str, unrefreshed: bool
) -> PreparedQuery | None:
    """Return the query of a registration, with the caller's window, as `prepare` cached it; None if
    the registration or the rules of a time zone have changed since."""
    cached = memo.get(("prepared", registration.handle, window, unrefreshed))
    if not isinstance(cached, PreparedQuery) or cached.registration is not registration:
        return None
    return cached if cached.has_rules_of(state) else None


def prepare(memo: Memo, texts: StoredTexts, query: Query) -> PreparedQuery:
    """Prepare the query that was read from texts, and cache it. Thread-safe. Raises
    UnknownTimeZone."""
    registration, query = texts.registration, in_zones(query, texts.zones)
    prepared = PreparedQuery.of_registration(query, texts.schemas, registration)
    key = "prepared", registration.handle, texts.window, texts.unrefreshed
    # It keeps the query and the registration in memory, also if nothing else does.
    size = len(texts.form) + sum(map(len, texts.predicate_keys)) + len(texts.window)
    texts_bytes = len(registration.text) + len(registration.parameters)
    memo.put(key, prepared, size * _BYTES_PER_CHARACTER + texts_bytes + _PREPARED_BYTES)
    return prepared


def _reading_key(texts: StoredTexts) -> tuple[object, ...]:
    if not texts.window:
        return "query", texts.form, texts.predicate_keys
    # A window is read with the schemas of the streams, and with the period of REFRESH.
    altered = tuple(schema.altered_at for schema in texts.schemas)
    binding = texts.window, texts.stream_ids, altered, texts.unrefreshed
    return "query", texts.form, texts.predicate_keys, binding
