"""The ids of what is created: random ones of what clients are shown, and those of predicates, which
no client sees."""

from __future__ import annotations

import secrets

from psoup.store import Composite, State
from querystem.composites import Composition


def new_id(state: State) -> int:
    """Draw an id for a stream, view, composite or policy: a positive int64 that says nothing about
    how many others there are, and that none of them has or had."""
    while True:
        drawn = secrets.randbits(63)
        if drawn and not state.has_id(drawn):
            return drawn


class PredicateIds:
    """The ids of the predicates that one registration names: those that there are keep theirs, new
    ones get the next ids in the order they are asked for, and equal ones have one id."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._new: dict[tuple[int, str], int] = {}

    def id_of(self, stream_id: int, key: str) -> int:
        known = self._state.predicates.find(stream_id, key)
        if known is not None:
            return known
        free = self._state.next_predicate_id + len(self._new)
        return self._new.setdefault((stream_id, key), free)

    def composite(self, composition: Composition) -> Composite:
        """The composite of the registration, with its predicate. A composite that there is keeps
        its id, a new one gets a random one."""
        shape, key = composition.shape, composition.key
        parts = shape.legs, shape.factors_key, shape.span
        known = self._state.composites.find(*parts)
        composite_id = new_id(self._state) if known is None else known
        return Composite(composite_id, *parts, self.id_of(composite_id, key), key)
