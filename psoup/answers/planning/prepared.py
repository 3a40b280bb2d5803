"""Prepared queries: the part of a plan that depends on neither caller nor clock nor rows.

The query of a registration is prepared when it is read, and cached. All else is looked up for every
plan: whether the registration still has this text, whether its streams and views were dropped, how
far they have come, and what the caller may read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from datastem.schema import StreamSchema
from datastem.zones import ZoneRules
from psoup.answers.planning.present import QueryClocks
from psoup.store import RegisteredLeg, Registration, State
from querystem.query import Query
from querystem.zones import rules_of


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query with the streams and predicates of its legs, and of the rows that refresh it or parts
    of it; the ids of the views that a registration was bound through; and how it follows clocks.

    `registration` is the one whose text was read, None for a text that a call brought. `schemas`
    are those of the legs, `stream_ids` all streams, also those whose rows refresh. `zones` has the
    rules of time zones that the windows move by.
    """

    query: Query
    registration: Registration | None
    legs: tuple[RegisteredLeg, ...]
    triggers: tuple[RegisteredLeg, ...]
    views: tuple[int, ...]
    schemas: tuple[StreamSchema, ...]
    clocks: QueryClocks
    leg_stream_ids: frozenset[int]
    stream_ids: frozenset[int]
    zones: tuple[ZoneRules, ...] = ()

    @classmethod
    def of(
        cls,
        query: Query,
        schemas: tuple[StreamSchema, ...],
        legs: tuple[RegisteredLeg, ...],
        triggers: tuple[RegisteredLeg, ...],
        registration: Registration | None = None,
    ) -> PreparedQuery:
        return cls(
            query,
            registration,
            legs,
            triggers,
            () if registration is None else registration.views,
            schemas,
            QueryClocks.of(query, schemas),
            frozenset(leg.stream_id for leg in legs),
            frozenset(leg.stream_id for leg in (*legs, *triggers)),
            rules_of(query),
        )

    @classmethod
    def of_registration(
        cls, query: Query, schemas: tuple[StreamSchema, ...], registration: Registration
    ) -> PreparedQuery:
        """Prepare the query of a registration, with the window that a call brought, if any."""
        return cls.of(query, schemas, registration.legs, registration.triggers, registration)

    def holds(self, state: State, registration: Registration) -> bool:
        """Return True if it was prepared from this very registration, its streams' schemas and the
        rules of its time zones."""
        if self.registration is not registration or not self.has_rules_of(state):
            return False
        legs = zip(self.legs, self.schemas, strict=True)
        return all(state.streams[leg.stream_id].schema is schema for leg, schema in legs)

    def has_rules_of(self, state: State) -> bool:
        """Return True if it was prepared with the rules of its time zones as they are now."""
        return all(state.zones.get(rules.name) == rules for rules in self.zones)


def schemas_of(state: State, legs: Iterable[RegisteredLeg]) -> tuple[StreamSchema, ...]:
    """Return the schemas of the streams of legs."""
    return tuple(state.streams[leg.stream_id].schema for leg in legs)
