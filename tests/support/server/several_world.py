"""The world of machines over several streams: random texts, and the naive answer at a position."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import strategies as st
from hypothesis.stateful import rule
from hypothesis.strategies import SearchStrategy

from datastem.instants import SECOND
from psoup.server.calls.publish import publish
from psoup.store import Position
from psoup.v1 import psoup_pb2 as pb
from querystem.language import bind_query
from querystem.query import Query
from tests.oracle.clocks import Known, MixedClocks, clocks
from tests.oracle.refresh import Event
from tests.oracle.several.chance import Seeded
from tests.oracle.several.drawing import written_joins
from tests.oracle.several.texts import our_text, placed
from tests.oracle.trees import World
from tests.support.server.sync_world import START
from tests.support.server.sync_world import World as SyncWorld

_TIMED = ("event", "latest")

Draw = Callable[[SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class SeveralAsked:
    """A text over several streams; `query` is None where the store must refuse it, since both
    kinds of time depend on NOW."""

    text: str
    query: Query | None


class SeveralWorld(SyncWorld):
    """Publishes, heartbeats, late rows, updates and deletes of keys; servers that restart."""

    @rule(server=st.integers(0, 1), name=st.sampled_from(_TIMED), seconds=st.integers(-5, 40))
    def heartbeat(self, server: int, name: str, seconds: int) -> None:
        ts = self.clock + seconds * SECOND
        request = pb.PublishRequest(stream=name, heartbeat=Timestamp(seconds=ts // SECOND))
        response = self.run(publish(self.cores[server], request))
        position = self.cores[server].store.positions.decode(response.position)
        self.events.append((position, Event(name, self.clock, [], ts)))

    def write(self, draw: Draw) -> SeveralAsked:
        """A text over the streams of this world. One number stands for all of it: to draw every
        choice takes longer than to answer."""
        schemas = {name: table.schema for name, table in self.tables.items()}
        chance = Seeded(random.Random(draw(st.integers(0, 1 << 32))))
        whole = written_joins(chance, [*schemas.values()], START)
        text = our_text(whole)
        try:
            awaited = [one.awaited for one in placed(whole)]
            clocks(awaited, self.world(None).streams, self.clock)
        except MixedClocks:
            return SeveralAsked(text, None)
        return SeveralAsked(text, bind_query(text, schemas.get))

    def world(
        self,
        position: Position | None,
        clock: int | None = None,
        as_of: int | None = None,
        then: bool = False,
    ) -> World:
        """The streams at a position (None: all there is); with `then` known as of the instant."""
        events = [event for at, event in self.events if position is None or at <= position]
        clock = self.clock if clock is None else clock
        streams = {}
        for name, table in self.tables.items():
            mine = [event for event in events if event.stream == name]
            rows = [row for event in mine for row in event.rows]
            known = [row for event in mine if _by_then(event, as_of, then) for row in event.rows]
            reached = max((event.reached for event in mine), default=None)
            streams[name] = Known(
                table.schema, rows, clock if table.by_clock else reached, len(known)
            )
        return World(streams, clock, as_of)


def _by_then(event: Event, as_of: int | None, then: bool) -> bool:
    return not then or as_of is None or event.stamp <= as_of
