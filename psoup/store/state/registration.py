"""A registered query, as the state has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from psoup.store.log.events import Composite, Entry, LegPredicate, Register, Replace, Trigger
from psoup.store.log.position import Position
from psoup.store.state.legs import RegisteredComposite, RegisteredLeg


@dataclass(frozen=True, slots=True)
class Registration:
    """A registered query. `query` is the bound form without the predicates of its legs, which are
    in the order of the text.

    `position` is that of the event that set the text: Register or Replace. `stamp` is that of
    Register. `triggers` are the predicates whose rows refresh it or parts of it, in the order of
    the query. `contact` is the stamp of the last renewal of its lease; 0 if there was none. `views`
    are the ids of the views that its text was bound through.
    """

    handle: bytes
    tenant: str
    owner: str
    client_key: str
    legs: tuple[RegisteredLeg, ...]
    triggers: tuple[RegisteredLeg, ...]
    text: str
    parameters: str
    query: str
    lease: int
    stamp: int
    position: Position
    contact: int = 0
    composite: RegisteredComposite | None = None
    views: tuple[int, ...] = ()

    @classmethod
    def of(cls, entry: Entry, event: Register) -> Registration:
        """Return the registration that an event makes."""
        return cls(
            event.handle,
            entry.tenant,
            entry.owner,
            event.client_key,
            _registered_legs(event.legs),
            _registered_legs(event.triggers),
            event.text,
            event.parameters,
            event.query,
            event.lease,
            entry.stamp,
            entry.position,
            composite=_registered(event.composite),
            views=event.views,
        )

    def replaced(self, entry: Entry, event: Replace) -> Registration:
        """Return this registration with the query of an event."""
        return replace(
            self,
            legs=_registered_legs(event.legs),
            triggers=_registered_legs(event.triggers),
            text=event.text,
            parameters=event.parameters,
            query=event.query,
            position=self.position if event.same_text else entry.position,
            contact=self.contact if event.same_text else entry.stamp,
            composite=_registered(event.composite),
            views=event.views,
        )

    @property
    def since(self) -> int:
        """The instant at which the lease began, the last time."""
        return max(self.contact, self.stamp)

    @property
    def stream_id(self) -> int:
        """The stream of the first leg."""
        return self.legs[0].stream_id

    @property
    def predicate_id(self) -> int:
        """The predicate of the first leg."""
        return self.legs[0].predicate_id

    @property
    def streams(self) -> set[int]:
        """The ids of the streams whose rows the registration reads."""
        return {leg.stream_id for leg in self.legs}

    @property
    def predicates(self) -> tuple[int, ...]:
        """The ids of the predicates that the registration needs matched: one for each leg, equal or
        not, those of triggers that no leg has, each once, and the one over its composite."""
        ids = tuple(leg.predicate_id for leg in self.legs)
        triggers = dict.fromkeys(trigger.predicate_id for trigger in self.triggers)
        ids = (*ids, *(id_ for id_ in triggers if id_ not in ids))
        return ids if self.composite is None else (*ids, self.composite.predicate_id)


class KeyedRegistration(NamedTuple):
    """The fields of a registration that are compared when its client key is used again. `position`
    is packed."""

    handle: bytes
    stream_id: int
    text: str
    parameters: str
    position: int


def _registered(composite: Composite | None) -> RegisteredComposite | None:
    if composite is None:
        return None
    return RegisteredComposite(composite.composite_id, composite.predicate_id)


def _registered_legs(legs: Iterable[LegPredicate | Trigger]) -> tuple[RegisteredLeg, ...]:
    return tuple(RegisteredLeg(leg.stream_id, leg.predicate_id) for leg in legs)
