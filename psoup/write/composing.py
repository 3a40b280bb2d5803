"""Composites for registrations that have none: those that were made before there were any.

Whoever registers a join gives it its composite. So all that were made otherwise are there when a
server starts, and looking through them once is enough.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from psoup.errors import ServerError
from psoup.store import Compose, Registration, State, StoreError
from psoup.write.appender import Appender, LogTail
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft
from psoup.write.ids import PredicateIds
from querystem.composites import ComposedStream, Composition, compose
from querystem.pace import spending
from querystem.query import Query
from querystem.query_json import read_form

log = logging.getLogger("psoup.write")

_LOOK_SECONDS = 60.0
# So many are composed in one go, and so long nothing is done after it.
_SOME = 64
_PAUSE_SECONDS = 0.1


def composition_of(query: Query, streams: Sequence[ComposedStream]) -> Composition | None:
    """The composite of a query whose legs read these streams, its texts written already; None where
    it has none."""
    if len(streams) < 2:
        return None
    found = compose(query, streams)
    if not isinstance(found, Composition):
        return None
    spending()(len(found.key) + len(found.shape.factors_key))
    return found


@dataclass(frozen=True, slots=True)
class Composable:
    """A registration without a composite, as it was when its texts were read."""

    registration: Registration
    predicate_keys: tuple[str, ...]
    streams: tuple[ComposedStream, ...]

    @classmethod
    def of(cls, state: State, registration: Registration) -> Composable:
        legs = registration.legs
        return cls(
            registration,
            tuple(state.predicates[leg.predicate_id].key for leg in legs),
            tuple(
                ComposedStream(leg.stream_id, state.streams[leg.stream_id].schema) for leg in legs
            ),
        )

    def composition(self) -> Composition | None:
        """The composite that it can have; None where it has none."""
        query = read_form(self.registration.query, self.predicate_keys)
        return composition_of(query, self.streams)


@dataclass(frozen=True, slots=True)
class ComposeSome:
    """Gives registrations composites, but for those that have one by now, are gone, have another
    query, or read a stream that was dropped."""

    found: Sequence[tuple[Registration, Composition]]
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return sum(HEADER_BYTES + len(composition.key) for _, composition in self.found)

    def propose(self, draft: CommitDraft) -> int:
        """Counts the registrations that get one."""
        made = 0
        for registration, composition in self.found[: draft.room]:
            if self._still_without(draft.state, registration):
                composite = PredicateIds(draft.state).composite(composition)
                event = Compose(registration.handle, composite)
                draft.append(registration.tenant, registration.owner, event)
                made += 1
        return made

    def _still_without(self, state: State, registration: Registration) -> bool:
        known = state.registrations.get(registration.handle)
        if known is None or known.composite or known.position != registration.position:
            return False
        return not any(state.streams[stream_id].dropped for stream_id in known.streams)


class Composer:
    """Gives all registrations composites that can have one and have none."""

    def __init__(self, tail: LogTail, appender: Appender) -> None:
        self._tail = tail
        self._appender = appender

    async def run(self) -> None:
        """Looks through all registrations once, some time after the start."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                made = await self.compose_all()
                if made:
                    log.info("%d joins that were registered earlier are found ahead now", made)
                return
            except (ServerError, StoreError) as error:
                log.warning("joins that were registered earlier wait: %s", error)

    async def compose_all(self) -> int:
        """Counts the registrations that got a composite."""
        made, after = 0, (0, b"")
        while some := self._next(after):
            last = some[-1].registration
            after = last.position.packed, last.handle
            found = await asyncio.to_thread(_compositions, some)
            if found:
                made += await self._appender.enqueue(ComposeSome(found))
                await asyncio.sleep(_PAUSE_SECONDS)
        return made

    def _next(self, after: tuple[int, bytes]) -> list[Composable]:
        registrations, _ = self._tail.state.columns
        return [
            Composable.of(self._tail.state, registration)
            for registration in registrations.joins_without_composite(after, _SOME)
        ]


def _compositions(some: Sequence[Composable]) -> list[tuple[Registration, Composition]]:
    found = [(one.registration, one.composition()) for one in some]
    return [(registration, one) for registration, one in found if one is not None]
