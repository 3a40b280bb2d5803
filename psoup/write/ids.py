"""Ids of new objects: random ones for objects that clients see, and counted ones for predicates,
which no client sees."""

from __future__ import annotations

import secrets

from psoup.store import Composite, State
from querystem.composites import Composition


def new_id(state: State) -> int:
    """Draw an id for a stream, view, composite or policy: a positive int64 that says nothing about
    how many others there are, and that none of them has or had."""
    while True:
        # 0 stands for "all" in grants.
        drawn = secrets.randbits(63)
        if drawn and not state.has_id(drawn):
            return drawn


class PredicateIds:
    """The ids of the predicates of one registration.

    Existing predicates keep their ids. New ones get the next ids in the order of the calls; equal
    predicates share one id.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._new: dict[tuple[int, str], int] = {}

    def id_of(self, stream_id: int, key: str) -> int:
        """Return the id of the predicate with this predicate key."""
        existing_id = self._state.predicates.find(stream_id, key)
        if existing_id is not None:
            return existing_id
        # The state does not count these ids before the event of the registration is applied.
        free = self._state.next_predicate_id + len(self._new)
        return self._new.setdefault((stream_id, key), free)

    def composite(self, composition: Composition) -> Composite:
        """Return the composite of the registration, with its predicate. An existing composite keeps
        its id, a new one gets a random id."""
        shape, key = composition.shape, composition.key
        parts = shape.legs, shape.factors_key, shape.span
        existing_id = self._state.composites.find(*parts)
        composite_id = new_id(self._state) if existing_id is None else existing_id
        return Composite(composite_id, *parts, self.id_of(composite_id, key), key)
