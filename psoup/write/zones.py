"""The proposals that give a store the rules of a time zone, and registrations the predicates that
they have by other rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datastem.zones import ZoneRules, Zones
from psoup.errors import BadRequest
from psoup.store import (
    LegPredicate,
    Registration,
    Replace,
    State,
    StreamState,
    Trigger,
    ZoneDefined,
)
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft
from psoup.write.ids import PredicateIds
from psoup.write.registrations import composition_of
from querystem.composites import ComposedStream, Composition
from querystem.query import Query
from querystem.query_json import query_form, read_form
from querystem.zones import ZONE_MARK, is_outdated, with_zones

# Of a change in the rules, as JSON.
_CHANGE_BYTES = 20


@dataclass(frozen=True, slots=True)
class DefineZone:
    """Proposal to give the store these rules of a zone, if it has none. With `renew` they also take
    the place of other rules, as their next version."""

    rules: ZoneRules
    renew: bool = False
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return HEADER_BYTES + _CHANGE_BYTES * len(self.rules.starts)

    def propose(self, draft: CommitDraft) -> ZoneRules:
        """Return the rules that the store has from here on."""
        rules, present = self.rules, draft.state.zones.get(self.rules.name)
        if present is not None and (not self.renew or present.has_rules_of(rules)):
            return present
        defined = rules.of_version(1 if present is None else present.version + 1)
        draft.append("", "", ZoneDefined(defined))
        return defined


# ---- registrations by other rules


@dataclass(frozen=True, slots=True)
class OutdatedQuery:
    """A registration with the predicate keys and the streams of its legs."""

    registration: Registration
    keys: tuple[str, ...]
    streams: tuple[StreamState, ...]

    def renewed(self, zones: Zones) -> RenewedQuery:
        """Return it by these rules. Thread-safe."""
        query = with_zones(read_form(self.registration.query, self.keys), zones)
        composed = [ComposedStream(stream.id, stream.schema) for stream in self.streams]
        return RenewedQuery(self.registration, query, composition_of(query, composed))


@dataclass(frozen=True, slots=True)
class RenewedQuery:
    """A registration as it was read, and its query by other rules."""

    registration: Registration
    query: Query
    composition: Composition | None


def outdated_handles(state: State) -> list[bytes]:
    """Return the handles of the registrations with a predicate, or a join that is shared, by rules
    that the store had before. It looks through all predicates."""
    registrations, predicates = state.columns
    naming = predicates.naming(ZONE_MARK)
    ids = [id_ for id_, key in naming if is_outdated(key, state.zones)]
    for composite in state.composites.values():
        if is_outdated(composite.factors, state.zones):
            ids += predicates.of_stream(composite.id).tolist()
    return registrations.having(np.array(ids, np.int64))


def outdated_query(state: State, handle: bytes) -> OutdatedQuery | None:
    """Return a registration with what it is read from; None if it has ended, or a stream of it."""
    registration = state.registrations.get(handle)
    if registration is None:
        return None
    streams = tuple(state.streams[leg.stream_id] for leg in registration.legs)
    if any(stream.dropped for stream in streams):
        return None
    keys = tuple(state.predicates[leg.predicate_id].key for leg in registration.legs)
    return OutdatedQuery(registration, keys, streams)


@dataclass(frozen=True, slots=True)
class RenewQueries:
    """Proposal to give registrations their queries by other rules of time zones, except those that
    have ended or were replaced since."""

    queries: Sequence[RenewedQuery]
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        texts = (renewed.registration.text for renewed in self.queries)
        return sum(HEADER_BYTES + 4 * len(text) for text in texts)

    def propose(self, draft: CommitDraft) -> int:
        """Return how many registrations got another query."""
        if len(self.queries) > draft.room:
            raise BadRequest(f"{len(self.queries)} registrations don't fit one commit")
        count = 0
        for renewed in self.queries:
            before = draft.state.registrations.get(renewed.registration.handle)
            if before == renewed.registration:
                draft.append(
                    before.tenant, before.owner, _event(renewed, PredicateIds(draft.state))
                )
                count += 1
        return count


def _event(renewed: RenewedQuery, ids: PredicateIds) -> Replace:
    registration, query = renewed.registration, renewed.query
    legs = zip(registration.legs, query.predicate_keys, strict=True)
    triggers = zip(registration.triggers, query.triggers, strict=True)
    composition = renewed.composition
    return Replace(
        registration.handle,
        tuple(LegPredicate(leg.stream_id, ids.id_of(leg.stream_id, key), key) for leg, key in legs),
        registration.text,
        registration.parameters,
        query_form(query),
        tuple(
            Trigger(
                trigger.stream_id,
                ids.id_of(trigger.stream_id, refresh.predicate_key),
                refresh.predicate_key,
            )
            for trigger, refresh in triggers
        ),
        None if composition is None else ids.composite(composition),
        registration.views,
        same_text=True,
    )
