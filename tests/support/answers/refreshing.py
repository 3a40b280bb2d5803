"""Random trees with REFRESH, over a store whose events are written down for the oracle."""

from __future__ import annotations

import random
from dataclasses import replace

from datastem.instants import SECOND
from datastem.types import BIGINT, BOOLEAN
from psoup.answers import Question
from psoup.answers.question import BoundText
from psoup.server.calls.publish import publish
from psoup.v1 import psoup_pb2 as pb
from querystem.expressions import TRUE, Call, ColumnRef, Literal, Op
from querystem.query import Leg, Query
from querystem.refresh import Refresh, RefreshEvery, RefreshOn
from tests.oracle.refresh import Event
from tests.oracle.refreshed_trees import RefreshedTree, TreeHistory
from tests.support.answers.copies import CopyWorld, Values
from tests.support.answers.trees import ARRIVAL, EVENT, TreeMaker

_PERIODS = (1, 3, 5, 12, 30)


class RefreshWorld(CopyWorld):
    """A world that writes down what happens, in the order of the log."""

    events: list[Event]

    def happens(self, names: list[str]) -> None:
        """Heartbeats and steps of the engine are more frequent here."""
        match self.chance.randrange(8):
            case 0:
                self.step()
            case 1:
                self.beat(self.chance.choice(names))
            case _:
                super().happens(names)

    def step(self) -> None:
        """A step of the engine, which one of the servers takes notice of: it goes on, or opens the
        store anew."""
        self.engine.step()
        follower = self.core().follower
        if self.chance.random() < 0.3:
            self.run(follower.refresh())
        else:
            self.run(follower._look(thorough=True))

    def beat(self, name: str) -> None:
        if self.streams[name].timed:
            self.beat_at(name, self.clock + self.chance.randint(-12, 2) * SECOND)

    def beat_at(self, name: str, at: int) -> None:
        request = pb.PublishRequest(stream=name)
        request.heartbeat.FromMicroseconds(at)
        self.run(publish(self.cores[0], request))
        self._note(name, 0, at)

    def publish(self, name: str, rows: list[tuple[int | None, str, int]]) -> None:
        before = len(self.streams[name].rows)
        super().publish(name, rows)
        self._note(name, len(self.streams[name].rows) - before, None)

    def _note(self, name: str, count: int, at: int | None) -> None:
        rows = self.streams[name].rows
        made = rows[len(rows) - count :]
        reached = max(row["ts"] for row in made) if at is None else at
        if not hasattr(self, "events"):
            self.events = []
        self.events.append(Event(name, self.clock, made, reached))

    # ---- questions

    def asked(self, query: Query, as_of: int | None, today: bool) -> Question:
        question = self.question(query)
        assert isinstance(question.source, BoundText)
        source = question.source
        if isinstance(query.refresh, RefreshOn):
            state = self.cores[0].follower.state
            ids = {one.schema.name: one.id for one in state.streams.values()}
            source = replace(source, trigger_stream_id=ids[query.refresh.stream])
        return replace(question, source=source, as_of=as_of, known_today=today, ahead=False)

    def found(self, question: Question) -> RefreshedTree:
        """The answer of one of the servers."""
        core = self.core()
        work = core.maker.work()
        plan = core.maker.settle(core.maker.plan(core.follower.view, question), work)
        table = core.maker.evaluate(plan, work).table
        rows: list[Values] = list(
            zip(*(column.to_pylist() for column in table.columns), strict=True)
        )
        return RefreshedTree(plan.refreshed_at, plan.now, plan.full_at, rows)

    def told(self, question: Question) -> RefreshedTree:
        """The naive answer."""
        schemas = {name: stream.schema for name, stream in self.streams.items()}
        events = getattr(self, "events", [])
        history = TreeHistory(schemas, events, self.clock, question.as_of, question.known_today)
        return history.ask(question.query)


class RefreshMaker:
    """Draws queries with REFRESH: of the whole, of some legs, or both."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def query(self) -> Query:
        maker = TreeMaker.drawn(self.chance)
        query = maker.result() if self.chance.random() < 0.4 else maker.query()
        kind = self.chance.randrange(3)
        if kind > 0:
            query = replace(query, refresh=self._refresh(query))
        if kind != 1:
            query = query.with_legs(self._leg)
        return query

    def _refresh(self, query: Query) -> Refresh:
        if self.chance.random() < 0.6:
            return self._every()
        timed = any(leg.stream in EVENT for leg in query.legs)
        stream = self.chance.choice([*EVENT] if timed else [*EVENT, *ARRIVAL])
        where = Call(Op.GT, (ColumnRef("a", BIGINT), Literal(2, BIGINT)), BOOLEAN)
        return RefreshOn(stream, self.chance.choice((where, TRUE)))

    def _every(self) -> RefreshEvery:
        return RefreshEvery(self.chance.choice(_PERIODS) * SECOND)

    def _leg(self, leg: Leg) -> Leg:
        return leg if self.chance.random() < 0.3 else replace(leg, refresh=self._every())
