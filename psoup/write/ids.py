"""The ids that a registration brings: those of its predicates, and of its composite."""

from __future__ import annotations

from psoup.store import Composite, State
from querystem.composites import Composition


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
        its id, a new one gets the next of the streams'."""
        shape, key = composition.shape, composition.key
        parts = shape.legs, shape.factors_key, shape.span
        known = self._state.composites.find(*parts)
        composite_id = self._state.next_stream_id if known is None else known
        return Composite(composite_id, *parts, self.id_of(composite_id, key), key)
