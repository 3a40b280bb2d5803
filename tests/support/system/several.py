"""Several streams of a store used at random: publish, register, invoke, ask, and copies of it all;
each answer is judged as it comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from client_sdk import Copies
from datastem.instants import SECOND, from_micros
from datastem.schema import StreamSchema
from querystem.language import bind_query, stream_sql
from querystem.query import Query
from tests.oracle.comparing import Values, difference
from tests.oracle.refresh import Event
from tests.oracle.refreshed_trees import TreeHistory, high
from tests.oracle.several.chance import Seeded
from tests.oracle.several.refreshes import written_refreshed
from tests.oracle.several.texts import our_text
from tests.oracle.several.worlds import random_row, random_schema
from tests.support.system.fleet import Fleet
from tests.support.system.story import Name
from tests.support.system.tenants import Action, Tenant

STREAMS = 3
MOST_COPIES = 12
MOST_ROWS = 12


@dataclass(frozen=True)
class _Written:
    """A query; `ordered`: the rows of its answer have one order."""

    sql: str
    query: Query
    ordered: bool


class SeveralLife(Tenant):
    """A tenant with event-time streams of which one at least has a key."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        super().__init__(fleet, f"several{seed}", seed)
        self.chance = Seeded(self.dice)
        self.step = 0
        self.schemas = {f"s{number}": self._schema(number) for number in range(STREAMS)}
        self.events: list[Event] = []
        self.standing: dict[Name, tuple[bytes, _Written]] = {}
        self.copies = Copies.in_memory()
        for schema in self.schemas.values():
            sql = stream_sql(schema)
            self.story.call("define", sql)
            self.position = self.client.define(sql).position

    def _schema(self, number: int) -> StreamSchema:
        while True:
            schema = random_schema(self.chance, f"s{number}", by_event=True)
            if schema.retain is None and (number or schema.key):
                return schema

    @property
    def actions(self) -> Mapping[Action, float]:
        return {
            self._publish: 10,
            self._heartbeat: 4,
            self._register: 4,
            self._unregister: 1,
            self._invoke: 8,
            self._ask: 6,
            self._sync: 6,
        }

    def check_everything(self) -> None:
        self.told(self._sync, *[self._invoke] * len(self.standing))

    # ---- what happens

    def _publish(self) -> None:
        """Publish rows of the last seconds; if the stream has a key, updates and deletes too.

        The oldest rows are of no interest any more once there are many.
        """
        schema = self.schemas[self.dice.choice(list(self.schemas))]
        first = high(self.events, schema.name)
        if first >= MOST_ROWS and self.dice.random() < 0.8:
            return
        self.step += self.dice.choice([0, 0, 1, 3])
        moments = [
            max(0, self.step - self.dice.randint(0, 5)) for _ in range(self.dice.randint(1, 4))
        ]
        rows = [random_row(self.chance, schema, moment * SECOND) for moment in moments]
        sent = [{name: value for name, value in row.items() if name != "ts"} for row in rows]
        self.story.call("publish", schema.name, sent)
        self.position = self.client.publish(schema.name, sent).position
        position = len(self.events)
        accepted = [
            {**row, "row_id": first + place, "position": position} for place, row in enumerate(rows)
        ]
        self.events.append(Event(schema.name, 0, accepted, max(row["ts"] for row in accepted)))
        self.tally["rows"] += len(rows)

    def _heartbeat(self) -> None:
        self.step += self.dice.choice([0, 1, 2])
        instant = from_micros(self.step * SECOND)
        for name in self.schemas:
            if self.dice.random() < 0.7:
                self.story.call("heartbeat", name, instant)
                self.position = self.client.heartbeat(name, instant).position
                self.events.append(Event(name, 0, [], self.step * SECOND))

    def _register(self) -> None:
        written = self._write()
        label = Name(f"q{self.tally['registered']}")
        self.tally["registered"] += 1
        self.story.call("register", written.sql, into=label)
        registered = self.client.register(written.sql)
        self.position = registered.position
        self.standing[label] = registered.handle, written
        self.copies.keep(label, handle=registered.handle)
        if len(self.standing) > MOST_COPIES:
            self._unregister()

    def _unregister(self) -> None:
        if not self.standing:
            return
        label = self.dice.choice(list(self.standing))
        self.story.call("unregister", label)
        client = self.client
        handle, _ = self.standing.pop(label)
        client.unregister(handle)
        self.position = client.position
        self.copies.forget(label)

    def _write(self) -> _Written:
        whole = written_refreshed(self.chance, [*self.schemas.values()])
        sql = our_text(whole)
        return _Written(sql, bind_query(sql, self.schemas.get), whole.ordered)

    # ---- answers

    def _invoke(self) -> None:
        if self.standing:
            label = self.dice.choice(list(self.standing))
            handle, written = self.standing[label]
            self.story.call("invoke", label)
            self._judge(written, self.client.invoke(handle).rows)

    def _ask(self) -> None:
        """Now, or as of an earlier instant with today's knowledge."""
        written = self._write()
        as_of = None if self.dice.random() < 0.5 else self.dice.randint(0, self.step) * SECOND
        options: dict[str, Any] = {}
        if as_of is not None:
            options = {"as_of": from_micros(as_of), "knowledge": "today"}
        self.story.call("ask", written.sql, **options)
        self._judge(written, self.client.ask(written.sql, **options).rows, as_of)

    def _sync(self) -> None:
        """All copies; after it each is the answer at NOW."""
        if not self.standing:
            return
        self.story.note("all copies are synced")
        synced = self.copies.sync(self.client)
        assert synced.complete, synced
        for label, (_, written) in self.standing.items():
            self._judge(written, self.copies[label].rows())
            self.tally["synced"] += 1

    def _judge(
        self, written: _Written, rows: list[dict[str, Any]], as_of: int | None = None
    ) -> None:
        history = TreeHistory(self.schemas, self.events, 0, as_of, today=as_of is not None)
        answer: list[Values] = [tuple(row.values()) for row in rows]
        problem = difference(history.ask(written.query).answer, answer, written.ordered)
        assert not problem, f"{written.sql}\nas of {as_of}: {problem}"
        self.tally["judged"] += 1
        self.tally["with rows"] += bool(rows)
