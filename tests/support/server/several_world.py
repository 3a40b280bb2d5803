"""The world of machines over several streams: random texts, and the naive answer at a position."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from datastem.instants import SECOND
from psoup.server.calls.publish import publish
from psoup.store import Position
from psoup.v1 import psoup_pb2 as pb
from querystem.language import bind_query
from querystem.query import Query
from tests.oracle.clocks import Known, MixedClocks, clocks
from tests.oracle.comparing import Values, difference
from tests.oracle.refresh import Event
from tests.oracle.refreshed_trees import TreeHistory
from tests.oracle.several.chance import Chance, Seeded
from tests.oracle.several.refreshes import written_refreshed
from tests.oracle.several.texts import our_text, placed
from tests.support.server.callers import new_call
from tests.support.server.sync_world import NAMES, START
from tests.support.server.sync_world import World as SyncWorld

_TEXTS = 4
_TIMED = ("event", "latest")

_FEW = (1, 2, 3, 0, -1, None), ("a", "b", "ab", None)
_few_values = st.tuples(*map(st.sampled_from, _FEW), st.integers(0, 20))

SEEDS = st.integers(0, 1 << 32)


@dataclass(frozen=True)
class SeveralAsked:
    """A text over several streams; `ordered`: the rows of its answer have one order."""

    text: str
    query: Query
    ordered: bool

    def check(self, expected: Sequence[Values], answer: Sequence[Values], *more: object) -> None:
        problem = difference(expected, answer, self.ordered)
        assert not problem, "\n".join([problem, self.text, *map(str, more)])


@dataclass(frozen=True)
class Mixed:
    """A text that the store must refuse, since both kinds of time depend on NOW."""

    text: str


class SeveralWorld(SyncWorld):
    """Publishes, heartbeats, late rows, updates and deletes of keys; servers that restart."""

    @initialize(seed=st.integers(0, 2**32), batches=st.integers(0, 3))
    def open(self, seed: int, batches: int) -> None:
        """With some rows in every stream, or with none."""
        super().open(seed)
        for name in NAMES * batches:
            self.publish(0, name, _some_rows(self.chance))

    @rule(
        server=st.integers(0, 1),
        name=st.sampled_from(NAMES),
        batch=st.lists(_few_values, min_size=1, max_size=8),
    )
    def publish(self, server: int, name: str, batch: list[Any]) -> None:
        """Rows with the few values that texts name."""
        super().publish(server, name, batch)

    @rule(server=st.integers(0, 1), name=st.sampled_from(_TIMED), seconds=st.integers(-5, 40))
    def heartbeat(self, server: int, name: str, seconds: int) -> None:
        ts = self.clock + seconds * SECOND
        request = pb.PublishRequest(stream=name, heartbeat=Timestamp(seconds=ts // SECOND))
        response = self.run(publish(self.cores[server], new_call(), request))
        position = self.cores[server].positions.decode(response.position).position
        self.events.append((position, Event(name, self.clock, [], ts)))

    def happens(self, dice: random.Random) -> None:
        """Something happens in this world, without Hypothesis; rows come more often than not."""
        server = dice.randrange(2)
        match dice.randrange(10):
            case 0:
                self.step()
            case 1:
                self.restart(server)
            case 2:
                self.wait(dice.randint(0, 40))
            case 3:
                self.heartbeat(server, dice.choice(_TIMED), dice.randint(-5, 40))
            case _:
                self.publish(server, dice.choice(NAMES), _some_rows(dice))

    def write(self, seed: int) -> list[SeveralAsked | Mixed]:
        """Return texts over the streams of this world. One number stands for all of it: to draw
        every choice takes longer than to answer."""
        chance = Seeded(random.Random(seed))
        return [self._written(chance) for _ in range(_TEXTS)]

    def _written(self, chance: Chance) -> SeveralAsked | Mixed:
        schemas = {name: table.schema for name, table in self.tables.items()}
        whole = written_refreshed(chance, [*schemas.values()], START)
        text = our_text(whole)
        try:
            streams = {name: Known(schema, (), None) for name, schema in schemas.items()}
            clocks([place.awaited for place in placed(whole)], streams, self.clock)
        except MixedClocks:
            return Mixed(text)
        return SeveralAsked(text, bind_query(text, schemas.get), whole.ordered)

    def history(
        self,
        position: Position | None = None,
        clock: int | None = None,
        as_of: int | None = None,
        then: bool = False,
    ) -> TreeHistory:
        """Return the streams at a position (None: all there is); with `then` known as of the
        instant."""
        events = [event for at, event in self.events if position is None or at <= position]
        schemas = {name: table.schema for name, table in self.tables.items()}
        clock = self.clock if clock is None else clock
        today = as_of is not None and not then
        return TreeHistory(schemas, events, clock, as_of, today, shown=self.shown)


def _some_rows(dice: random.Random) -> list[Any]:
    return [
        (*(dice.choice(values) for values in _FEW), dice.randint(0, 20))
        for _ in range(dice.randint(1, 6))
    ]
