"""Several streams of a store used at random: publish, register, invoke, ask, and copies of it all.

One client at a time, over one server or another, so that what was acknowledged is known exactly;
each answer is judged as it comes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

from client_sdk import Client, Copies
from datastem.instants import SECOND, from_micros
from datastem.schema import StreamSchema
from querystem.language import bind_query, stream_sql
from querystem.query import Query
from tests.oracle.clocks import Known
from tests.oracle.comparing import Values, difference
from tests.oracle.several.chance import Seeded
from tests.oracle.several.drawing import written_joins
from tests.oracle.several.texts import our_text
from tests.oracle.several.worlds import random_row, random_schema
from tests.oracle.trees import World
from tests.support.system.fleet import Fleet
from tests.support.system.story import Name, Story

STREAMS = 3
MOST_COPIES = 12
MOST_ROWS = 12


@dataclass
class _Table:
    schema: StreamSchema
    rows: list[dict[str, Any]]
    reached: int | None = None


@dataclass(frozen=True)
class _Standing:
    handle: bytes
    sql: str
    query: Query


class SeveralLife:
    """A tenant of its own, with event-time streams of which one at least has a key."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet = fleet
        self.dice = Random(seed)
        self.chance = Seeded(self.dice)
        self.story = Story(seed)
        self.tenant = f"several{seed}"
        self.position: bytes | None = None
        self.step = 0
        self.tables = {f"s{number}": _Table(self._schema(number), []) for number in range(STREAMS)}
        self.standing: dict[Name, _Standing] = {}
        self.copies = Copies.in_memory()
        self.tally: Counter[str] = Counter()
        for table in self.tables.values():
            sql = stream_sql(table.schema)
            self.story.call("define", sql)
            self.position = self.client.define(sql).position

    def _schema(self, number: int) -> StreamSchema:
        while True:
            found = random_schema(self.chance, f"s{number}", by_event=True)
            if found.retain is None and (number or found.key):
                return found

    @property
    def client(self) -> Client:
        """One of the servers, which has to know all that another has acknowledged."""
        chosen = self.fleet.client(self.tenant, self.dice.randrange(len(self.fleet.targets)))
        chosen.position = self.position
        return chosen

    def run(self, steps: int) -> None:
        """Raises AssertionError with the story where an answer is wrong."""
        weights = {
            self._publish: 10,
            self._heartbeat: 4,
            self._register: 4,
            self._unregister: 1,
            self._invoke: 8,
            self._ask: 6,
            self._sync: 6,
        }
        self.told(*self.dice.choices(list(weights), list(weights.values()), k=steps))

    def check_everything(self) -> None:
        self.told(self._sync, *[self._invoke] * len(self.standing))

    def told(self, *actions: Any) -> None:
        try:
            for action in actions:
                action()
        except Exception as problem:
            told = self.story.tell(
                self.fleet.running.folder, f"{type(problem).__name__}: {problem}"
            )
            raise AssertionError(told) from problem

    # ---- what happens

    def _publish(self) -> None:
        """Rows of the last seconds; where the stream has a key, updates and deletes too.

        The oldest rows are of no interest any more once there are many.
        """
        table = self.tables[self.dice.choice(list(self.tables))]
        if len(table.rows) >= MOST_ROWS and self.dice.random() < 0.8:
            return
        self.step += self.dice.choice([0, 0, 1, 3])
        moments = [
            max(0, self.step - self.dice.randint(0, 5)) for _ in range(self.dice.randint(1, 4))
        ]
        rows = [random_row(self.chance, table.schema, moment * SECOND) for moment in moments]
        sent = [{name: value for name, value in row.items() if name != "ts"} for row in rows]
        self.story.call("publish", table.schema.name, sent)
        published = self.client.publish(table.schema.name, sent)
        self.position = published.position
        first = len(table.rows)
        table.rows += [{**row, "row_id": first + place} for place, row in enumerate(rows)]
        table.reached = max(row["ts"] for row in [*rows, {"ts": table.reached or 0}])
        self.tally["rows"] += len(rows)

    def _heartbeat(self) -> None:
        self.step += self.dice.choice([0, 1, 2])
        for table in self.tables.values():
            if self.dice.random() < 0.7:
                instant = from_micros(self.step * SECOND)
                self.story.call("heartbeat", table.schema.name, instant)
                self.position = self.client.heartbeat(table.schema.name, instant).position
                table.reached = max(self.step * SECOND, table.reached or 0)

    def _register(self) -> None:
        sql, query = self._write()
        label = Name(f"q{self.tally['registered']}")
        self.tally["registered"] += 1
        self.story.call("register", sql, into=label)
        registered = self.client.register(sql)
        self.position = registered.position
        self.standing[label] = _Standing(registered.handle, sql, query)
        self.copies.keep(label, handle=registered.handle)
        if len(self.standing) > MOST_COPIES:
            self._unregister()

    def _unregister(self) -> None:
        if not self.standing:
            return
        label = self.dice.choice(list(self.standing))
        self.story.call("unregister", label)
        client = self.client
        client.unregister(self.standing.pop(label).handle)
        self.position = client.position
        self.copies.forget(label)

    def _write(self) -> tuple[str, Query]:
        schemas = {name: table.schema for name, table in self.tables.items()}
        sql = our_text(written_joins(self.chance, list(schemas.values())))
        return sql, bind_query(sql, schemas.get)

    # ---- answers

    def _invoke(self) -> None:
        if self.standing:
            label = self.dice.choice(list(self.standing))
            one = self.standing[label]
            self.story.call("invoke", label)
            self._judge(one.sql, one.query, self.client.invoke(one.handle).rows)

    def _ask(self) -> None:
        """Now, or as of an earlier instant with today's knowledge."""
        sql, query = self._write()
        as_of = None if self.dice.random() < 0.5 else self.dice.randint(0, self.step) * SECOND
        options: dict[str, Any] = {}
        if as_of is not None:
            options = {"as_of": from_micros(as_of), "knowledge": "today"}
        self.story.call("ask", sql, **options)
        self._judge(sql, query, self.client.ask(sql, **options).rows, as_of)

    def _sync(self) -> None:
        """All copies; after it each is the answer at NOW."""
        if not self.standing:
            return
        self.story.note("all copies are synced")
        synced = self.copies.sync(self.client)
        assert synced.complete, synced
        for label, one in self.standing.items():
            self._judge(f"{label}: {one.sql}", one.query, self.copies[label].rows())
            self.tally["synced"] += 1

    def _judge(
        self, sql: str, query: Query, rows: list[dict[str, Any]], as_of: int | None = None
    ) -> None:
        streams = {
            name: Known(table.schema, table.rows, table.reached)
            for name, table in self.tables.items()
        }
        found: list[Values] = [tuple(row.values()) for row in rows]
        problem = difference(World(streams, as_of=as_of).answer(query), found)
        assert not problem, f"{sql}\nas of {as_of}: {problem}"
        self.tally["judged"] += 1
        self.tally["with rows"] += bool(rows)
