"""The streams and predicates of a question, as they are at the moment of its plan."""

from __future__ import annotations

from dataclasses import dataclass, replace

from psoup.answers.caches import UnregisteredIds
from psoup.answers.planning.prepared import PreparedQuery, schemas_of
from psoup.answers.planning.question import BoundText, Question
from psoup.answers.replicas.view import View
from psoup.errors import StreamDropped
from psoup.lookup import find_registration
from psoup.store import RegisteredLeg, StreamState

_DROPPED = "stream {} was dropped, and its rows with it"
_DROPPED_HINT = "unregister this query"
_TRIGGER_DROPPED = "stream {}, whose rows refresh this query, was dropped"
_TRIGGER_DROPPED_HINT = "ask for the unrefreshed answer, or register the query again"


class TextReplaced(Exception):
    """The registration has another text than the one that was read, or other policies bind its
    reader than before. The caller must read it again."""


@dataclass(frozen=True, slots=True)
class Matched:
    """A stream, and a predicate that is matched over its rows."""

    stream: StreamState
    predicate_id: int


@dataclass(frozen=True, slots=True)
class QuerySource:
    """The streams and predicates of a query's legs, and those whose rows refresh it or parts of it;
    and the ids of the views that a registration was bound through."""

    legs: tuple[Matched, ...]
    triggers: tuple[Matched, ...] = ()
    views: tuple[int, ...] = ()


def find_source(view: View, question: Question, unregistered: UnregisteredIds) -> QuerySource:
    """Return the streams and predicates of a question. Raises what `prepared_query` and
    `live_source` raise."""
    prepared = prepared_query(view, question, unregistered)
    return live_source(view, prepared, question.unrefreshed)


def prepared_query(view: View, question: Question, unregistered: UnregisteredIds) -> PreparedQuery:
    """Return the query of a question as it is prepared, or prepare it.

    A registration is looked up for every plan, since it may have ended or have another text. The
    predicate of a text may be registered by now. Raises UnknownHandle, RegistrationExpired,
    TextReplaced.
    """
    source, query, state = question.source, question.query, view.state
    if isinstance(source, BoundText):
        named = zip(source.stream_ids, query.predicate_keys, strict=True)
        legs = tuple(_named(view, *leg, unregistered) for leg in named)
        refreshes = zip(source.trigger_stream_ids, query.triggers, strict=True)
        triggers = tuple(
            _named(view, stream_id, refresh.predicate_key, unregistered)
            for stream_id, refresh in refreshes
        )
        return PreparedQuery.of(query, schemas_of(state, legs), legs, triggers)
    registration = find_registration(state, source.tenant, source.handle, source.owner)
    if source.text not in (None, registration.position):
        raise TextReplaced
    if question.prepared is not None and question.prepared.holds(state, registration):
        prepared = question.prepared
    else:
        schemas = schemas_of(state, registration.legs)
        prepared = PreparedQuery.of_registration(query, schemas, registration)
    return _renewed(view, prepared, unregistered) if prepared.zones else prepared


def _renewed(view: View, prepared: PreparedQuery, unregistered: UnregisteredIds) -> PreparedQuery:
    """Return a prepared query with the predicates that it has by the present rules of time zones,
    which may not be those that it was registered with."""
    query = prepared.query
    legs = zip(prepared.legs, query.predicate_keys, strict=True)
    triggers = zip(prepared.triggers, query.triggers, strict=True)
    return replace(
        prepared,
        legs=tuple(_named(view, leg.stream_id, key, unregistered) for leg, key in legs),
        triggers=tuple(
            _named(view, trigger.stream_id, refresh.predicate_key, unregistered)
            for trigger, refresh in triggers
        ),
    )


def _named(view: View, stream_id: int, key: str, unregistered: UnregisteredIds) -> RegisteredLeg:
    registered = view.state.predicates.find(stream_id, key)
    predicate_id = unregistered.id_of(stream_id, key) if registered is None else registered
    return RegisteredLeg(stream_id, predicate_id)


def live_source(view: View, prepared: PreparedQuery, unrefreshed: bool) -> QuerySource:
    """Return the streams of a prepared query as they are now. Raises StreamDropped if a stream or
    view was dropped."""
    views = prepared.views
    for view_id in views:
        through = view.state.views[view_id]
        if through.dropped:
            raise StreamDropped(
                f"view {through.definition.name} was dropped", hint="unregister this query"
            )
    legs = tuple(_live(view, leg, _DROPPED, _DROPPED_HINT) for leg in prepared.legs)
    # If REFRESH is ignored, it does not matter that a stream which refreshes was dropped.
    if unrefreshed:
        return QuerySource(legs, views=views)
    triggers = tuple(
        _live(view, trigger, _TRIGGER_DROPPED, _TRIGGER_DROPPED_HINT)
        for trigger in prepared.triggers
    )
    return QuerySource(legs, triggers, views)


def _live(view: View, leg: RegisteredLeg, message: str, hint: str) -> Matched:
    """Return the stream of a leg with its predicate. Raises StreamDropped."""
    stream = view.state.streams[leg.stream_id]
    if stream.dropped:
        raise StreamDropped(message.format(stream.schema.name), hint=hint)
    return Matched(stream, leg.predicate_id)
