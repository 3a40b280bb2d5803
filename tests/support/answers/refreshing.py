"""Random trees with REFRESH, over a store whose events are written down for the oracle."""

from __future__ import annotations

import random
from dataclasses import replace

from datastem.instants import SECOND
from datastem.types import BIGINT, BOOLEAN
from psoup.answers import Question
from psoup.answers.planning.question import BoundText
from psoup.server.calls.publish import publish
from psoup.v1 import psoup_pb2 as pb
from querystem.expressions import TRUE, Call, ColumnRef, Literal, Op
from querystem.legs import Leg
from querystem.query import Item, Output, Query, SortKey
from querystem.refresh import Refresh, RefreshAny, RefreshEvery, RefreshOn
from querystem.sources import From, SetOperation, item_column
from results.window import Bound, TimeWindow
from tests.oracle.refresh import Event
from tests.oracle.refreshed_trees import RefreshedTree, TreeHistory
from tests.support.answers.copies import CopyWorld, Values
from tests.support.answers.trees import ARRIVAL, EVENT, TreeMaker
from tests.support.server.callers import new_call

_PERIODS = (1, 3, 5, 12, 30)


class RefreshWorld(CopyWorld):
    """A world that writes down what happens, in the order of the log."""

    events: list[Event]

    def happens(self, names: list[str]) -> None:
        """Let something happen; heartbeats and steps of the engine are more frequent here."""
        match self.chance.randrange(8):
            case 0:
                self.step()
            case 1:
                self.beat(self.chance.choice(names))
            case _:
                super().happens(names)

    def step(self) -> None:
        """Make a step of the engine; one of the servers follows it, or opens the store again."""
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
        self.run(publish(self.cores[0], new_call(), request))
        self._note(name, 0, at)

    def publish(self, name: str, rows: list[tuple[int | None, str, int]]) -> None:
        before = len(self.streams[name].rows)
        super().publish(name, rows)
        self._note(name, len(self.streams[name].rows) - before, None)

    def _note(self, name: str, count: int, at: int | None) -> None:
        rows = self.streams[name].rows
        published = rows[len(rows) - count :]
        reached = max(row["ts"] for row in published) if at is None else at
        if not hasattr(self, "events"):
            self.events = []
        self.events.append(Event(name, self.clock, published, reached))

    # ---- what the streams have come to

    def reached(self, name: str, instant: int | None = None) -> int | None:
        """Return how far a stream with event time has come, or had come at an instant."""
        events = [event for event in getattr(self, "events", []) if event.stream == name]
        return max(
            (event.reached for event in events if instant is None or event.stamp <= instant),
            default=None,
        )

    def retains_what_it_did(self, name: str, instant: int) -> bool:
        """Return True if a stream still retains all that it did at an instant, and all rows that
        came later."""
        schema = self.streams[name].schema
        if schema.retain is None:
            return True
        timed = name in EVENT
        then = self.reached(name, instant) if timed else instant
        present = self.reached(name) if timed else self.clock
        assert then is not None and present is not None, "the stream had a NOW"
        events = [event for event in self.events if event.stream == name]
        rows = [(row["ts"], event.stamp) for event in events for row in event.rows]
        oldest_then, oldest = then - schema.retain, present - schema.retain
        if any(oldest_then < ts <= oldest for ts, _ in rows):
            return False
        # A late row ends the one before it at its own ts, which may be too long ago by now.
        ended = any(ts <= oldest and stamp > instant for ts, stamp in rows)
        return not schema.key or (oldest < then and not ended)

    # ---- questions

    def asked(self, query: Query, as_of: int | None, today: bool) -> Question:
        question = self.question(query)
        assert isinstance(question.source, BoundText)
        state = self.cores[0].follower.state
        ids = {stream.schema.name: stream.id for stream in state.streams.values()}
        triggers = tuple(ids[refresh.stream] for refresh in query.triggers)
        source = replace(question.source, trigger_stream_ids=triggers)
        return replace(question, source=source, as_of=as_of, known_today=today, ahead=False)

    def found(self, question: Question) -> RefreshedTree:
        """Return the answer of one of the servers."""
        core = self.core()
        work = core.maker.work()
        plan = core.maker.settle(core.maker.plan(core.follower.view, question), work)
        table = core.maker.evaluate(plan, work).table
        rows: list[Values] = list(
            zip(*(column.to_pylist() for column in table.columns), strict=True)
        )
        return RefreshedTree(plan.refreshed_at, plan.now, plan.full_at, rows)

    def told(self, question: Question) -> RefreshedTree:
        """Return the naive answer."""
        schemas = {name: stream.schema for name, stream in self.streams.items()}
        events = getattr(self, "events", [])
        history = TreeHistory(schemas, events, self.clock, question.as_of, question.known_today)
        return history.ask(question.query)


def without_refresh(part: Item) -> Item:
    """Return a query, or an item of one, as if it were always fresh."""
    if isinstance(part, SetOperation):
        return replace(part, queries=tuple(map(fresh_query, part.queries)))
    if isinstance(part, Query):
        return fresh_query(part)
    assert isinstance(part, Leg), "no other items are drawn"
    return replace(part, refresh=None)


def fresh_query(query: Query) -> Query:
    """Return a query without any REFRESH."""
    source = query.source
    assert isinstance(source, From | Leg)
    if isinstance(source, From):
        source = replace(source, items=tuple(map(without_refresh, source.items)))
    else:
        source = replace(source, refresh=None)
    return replace(query, refresh=None, source=source)


def streams_of(query: Query) -> list[str]:
    """Return the streams that a query reads, or whose rows refresh parts of it."""
    legs, triggers = (leg.stream for leg in query.legs), (leg.stream for leg in query.triggers)
    return [*legs, *triggers]


class RefreshMaker:
    """Draws queries with REFRESH: of the whole, of queries inside, of some legs."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def query(self) -> Query:
        maker = TreeMaker.drawn(self.chance)
        query = maker.result() if self.chance.random() < 0.4 else maker.query()
        kind = self.chance.randrange(4)
        if kind > 1:
            query = self._inside(query)
        if kind % 2:
            query = replace(query, refresh=self._refresh(query))
        if kind in (0, 3) or self.chance.random() < 0.3:
            query = query.with_legs(self._leg)
        return query

    def _inside(self, query: Query) -> Query:
        """Return the rows of a query with REFRESH, beside those of a stream or alone; or a query
        some of whose items have it."""
        source = query.source
        if isinstance(source, From) and self.chance.random() < 0.4:
            refreshed = tuple(self._refreshed_item(item) for item in source.items)
            return replace(query, source=replace(source, items=refreshed))
        inner = replace(query, refresh=self._refresh(query), order_by=())
        if query.limit is not None or query.offset:
            inner = replace(inner, order_by=query.order_by)
        alike = len({leg.stream in EVENT for leg in query.legs}) == 1
        if inner.timed and alike and self.chance.random() < 0.3:
            inner = replace(inner, over=TimeWindow(Bound(-9 * SECOND, True)))
        items: list[Item] = [inner]
        if self.chance.random() < 0.5:
            items.append(replace(self.chance.choice(query.legs), where=TRUE))
        outputs = [
            Output(output.name, ColumnRef(item_column(0, output.name), output.type))
            for output in inner.columns
        ]
        # Rows without a ts have no promised order.
        order = (
            () if inner.timed else [SortKey(output.expression, False, False) for output in outputs]
        )
        return Query(From(tuple(items)), tuple(outputs), order_by=tuple(order))

    def _refreshed_item(self, item: Item) -> Item:
        if not isinstance(item, SetOperation):
            return item
        queries = [
            query if self.chance.random() < 0.4 else replace(query, refresh=self._refresh(query))
            for query in item.queries
        ]
        return replace(item, queries=tuple(queries))

    def _refresh(self, part: Query | Leg) -> Refresh:
        if self.chance.random() < 0.25:
            parts = [self._points(part) for _ in range(self.chance.choice((2, 2, 3)))]
            return RefreshAny(tuple(parts))
        return self._points(part)

    def _points(self, part: Query | Leg) -> RefreshEvery | RefreshOn:
        if self.chance.random() < 0.5:
            return self._every()
        legs = (part,) if isinstance(part, Leg) else part.legs
        timed = any(leg.stream in EVENT for leg in legs)
        stream = self.chance.choice([*EVENT] if timed else [*EVENT, *ARRIVAL])
        where = Call(Op.GT, (ColumnRef("a", BIGINT), Literal(2, BIGINT)), BOOLEAN)
        return RefreshOn(stream, self.chance.choice((where, TRUE)))

    def _every(self) -> RefreshEvery:
        period = self.chance.choice(_PERIODS)
        offset = self.chance.randrange(period) if self.chance.random() < 0.4 else 0
        return RefreshEvery(period * SECOND, offset * SECOND)

    def _leg(self, leg: Leg) -> Leg:
        return leg if self.chance.random() < 0.3 else replace(leg, refresh=self._refresh(leg))
