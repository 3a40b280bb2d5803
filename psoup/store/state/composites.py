"""The composites of a state: the joins that registrations share, by id and by their definition."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from psoup.store.log.events import Composite
from psoup.store.log.position import Position
from psoup.store.state.overlay import Overlay

# The streams of a composite, the conditions between them as JSON, and its span.
Identity: TypeAlias = tuple[tuple[int, ...], str, int | None]


@dataclass(frozen=True, slots=True)
class CompositeState:
    """A composite, maintained for all registrations that share it.

    It ends with the last of them, or when one of its streams is dropped. No stream has its id.
    `legs`, `factors` and `span` are those of `psoup.store.log.events.Composite`.
    """

    id: int
    tenant: str
    legs: tuple[int, ...]
    factors: str
    span: int | None
    position: Position
    registrations: int = 1

    @property
    def identity(self) -> Identity:
        return self.legs, self.factors, self.span


class Composites(MutableMapping[int, CompositeState]):
    """The composites of a state by id; no two have the same legs, factors and span."""

    def __init__(self) -> None:
        self._states: MutableMapping[int, CompositeState] = {}
        self._ids: MutableMapping[Identity, int] = {}

    def draft(self) -> Composites:
        """Return an overlay over these: its changes do not reach these."""
        draft = Composites()
        draft._states, draft._ids = Overlay(self._states), Overlay(self._ids)
        return draft

    def find(self, legs: tuple[int, ...], factors: str, span: int | None) -> int | None:
        """Return the id of the composite with this definition; None if there is no such
        composite."""
        return self._ids.get((legs, factors, span))

    def share(self, composite: Composite, tenant: str, position: Position) -> bool:
        """Count one more registration of a composite; return True if it is new."""
        existing = self.get(composite.composite_id)
        if existing is not None:
            self[existing.id] = replace(existing, registrations=existing.registrations + 1)
            return False
        parts = composite.legs, composite.factors, composite.span
        self[composite.composite_id] = CompositeState(
            composite.composite_id, tenant, *parts, position
        )
        return True

    def release(self, composite_id: int) -> bool:
        """Count one registration less; return True if it was the last. Do nothing if the composite
        has ended with one of its streams."""
        existing = self.get(composite_id)
        if existing is None:
            return False
        if existing.registrations == 1:
            del self[composite_id]
            return True
        self[composite_id] = replace(existing, registrations=existing.registrations - 1)
        return False

    def end_with(self, stream_id: int) -> list[int]:
        """End the composites that a stream is a leg of; return their ids."""
        ended = [composite.id for composite in self.values() if stream_id in composite.legs]
        for composite_id in ended:
            del self[composite_id]
        return ended

    # ---- a mapping

    def __getitem__(self, key: int) -> CompositeState:
        return self._states[key]

    def __setitem__(self, key: int, value: CompositeState) -> None:
        self._states[key] = value
        self._ids[value.identity] = key

    def __delitem__(self, key: int) -> None:
        del self._ids[self._states.pop(key).identity]

    def __iter__(self) -> Iterator[int]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)
