"""A store used at random: create, register, publish, invoke, unregister, restart.

One client at a time, over one server or another, so that what was acknowledged is known exactly;
each answer is checked as it comes, at the position and NOW it names.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from client_sdk import Answer, Client, Conflict, NotFound, PreconditionFailed, Published
from psoup.store import Position, Store
from tests.system.accepted import Accepted, Batch
from tests.system.checks import difference, second_opinion, values_of
from tests.system.predicates import Writer
from tests.system.processes import Process, RunningStore
from tests.system.question import Question
from tests.system.story import Name, Story
from tests.system.streams import Row, Shape, random_rows, random_shape
from tests.system.windows import EVERYTHING, TimeWindow, random_window

MOST_STREAMS = 4
MOST_ROWS = 1500
PATIENCE = 300.0
# For servers: how long a request may wait for an engine that has to start first.
OPTIONS = ("--wait", str(PATIENCE))


class Live:
    """A stream in use: its rows so far, and where its event time stands."""

    def __init__(self, shape: Shape, label: Name, handle: bytes) -> None:
        self.shape = shape
        self.accepted = Accepted()
        self.now = shape.start
        self.everything = label, handle


class Scenario:
    def __init__(self, running: RunningStore, seed: int, engine_restarts: int = 0) -> None:
        self.running = running
        self.dice = Random(seed)
        self.story = Story(seed)
        self.tenant = f"seed{seed}"
        self.positions = Store.open(running.store).positions
        self.slots = [slot for slot, server in enumerate(running.servers) if server.alive]
        self.clients = [self._connect(slot) for slot in self.slots]
        self.position: bytes | None = None
        self.streams: dict[str, Live] = {}
        self.questions: dict[Name, tuple[bytes, Question]] = {}
        self.keyed: set[Name] = set()
        self.sent: list[tuple[str, list[Row], int, Published]] = []
        self.instants: list[datetime] = []
        self.tally: Counter[str] = Counter()
        self._names = 0
        self._restarts = {self._restart_server: 2, self._restart_engine: engine_restarts}

    def run(self, steps: int) -> Counter[str]:
        """Raises AssertionError with the story where an answer is wrong."""
        weights = {
            self._create: 2,
            self._register: 14,
            self._register_again: 2,
            self._unregister: 3,
            self._publish: 24,
            self._publish_again: 4,
            self._publish_wrongly: 2,
            self._heartbeat: 3,
            self._invoke: 50,
            self._drop: 1,
            self._restart_server: 1,
            self._restart_engine: 1,
        }
        try:
            self._create()
            for action in self.dice.choices(list(weights), list(weights.values()), k=steps):
                action()
                self.instants.append(datetime.now(UTC))
            self._settle()
        except Exception as problem:
            told = self.story.tell(self.running.folder, f"{type(problem).__name__}: {problem}")
            raise AssertionError(told) from problem
        finally:
            for client in self.clients:
                client.close()
        return self.tally

    def _settle(self) -> None:
        """Every question once more, when the engine has matched everything."""
        self._engine().wait_for("engine ready")
        self.running.wait_until_matched(self.client)
        self.story.note("the engine has caught up")
        for label, (handle, question) in self.questions.items():
            self.story.call("invoke", label)
            before = datetime.now(UTC)
            self._check(question, question.window, {}, self.client.invoke(handle), before)

    @property
    def client(self) -> Client:
        """One of the servers, which has to know all that another has acknowledged."""
        chosen = self.dice.choice(self.clients)
        chosen.position = self.position
        return chosen

    def _connect(self, slot: int) -> Client:
        return Client(self.running.targets[slot], tenant=self.tenant)

    def _name(self, letter: str) -> Name:
        self._names += 1
        return Name(f"{letter}{self._names}")

    def _live(self) -> Live:
        return self.streams[self.dice.choice(list(self.streams))]

    def _create(self) -> None:
        if len(self.streams) >= MOST_STREAMS:
            return
        shape = random_shape(self.dice, self.dice.choice("abcdefgh") + "_stream")
        if shape.name in self.streams:
            return
        self.story.call("define", shape.sql)
        self.position = self.client.define(shape.sql).position
        everything = Question(shape, f"SELECT ts, row_id FROM {shape.name}", EVERYTHING)
        label = self._add(everything)
        self.streams[shape.name] = Live(shape, label, self.questions[label][0])
        self.tally["created"] += 1

    def _drop(self) -> None:
        if len(self.streams) < 3:
            return
        name = self._live().shape.name
        self.story.call("define", f"DROP STREAM {name}")
        self.position = self.client.define(f"DROP STREAM {name}").position
        del self.streams[name]
        orphans = [
            label for label, (_, asked) in self.questions.items() if asked.shape.name == name
        ]
        for label in orphans:
            handle, _ = self.questions.pop(label)
            with pytest.raises((NotFound, PreconditionFailed)):
                self.client.invoke(handle)
        self.tally["dropped"] += 1

    def _register(self) -> None:
        shape = self._live().shape
        plain = self.dice.random() < 0.3
        select = Writer(self.dice, shape, plain).select()
        self._add(Question(shape, select, random_window(self.dice, shape), plain))

    def _add(self, question: Question) -> Name:
        label = self._name("handle")
        key = None
        if self.dice.random() < 0.7:
            key = str(label)
            self.keyed.add(label)
        self.story.call("register", question.sql, key=key, into=label)
        registered = self.client.register(question.sql, key=key)
        assert registered.created
        self.position = registered.position
        self.questions[label] = registered.handle, question
        self.tally["registered"] += 1
        return label

    def _register_again(self) -> None:
        """A key gives the same handle for ever, and no other text."""
        label = self.dice.choice(list(self.questions))
        handle, question = self.questions[label]
        if label not in self.keyed:
            return
        self.story.call("register", question.sql, key=str(label))
        again = self.client.register(question.sql, key=str(label))
        assert (again.handle, again.created) == (handle, False)
        with pytest.raises(Conflict):
            self.client.register(f"SELECT ts FROM {question.shape.name} RANGE 7", key=str(label))

    def _unregister(self) -> None:
        kept = {live.everything[0] for live in self.streams.values()}
        labels = [label for label in self.questions if label not in kept]
        if not labels:
            return
        label = self.dice.choice(labels)
        handle, _ = self.questions.pop(label)
        self.story.call("unregister", label)
        client = self.client
        client.unregister(handle)
        self.position = client.position
        for verb in (self.client.invoke, self.client.unregister, client.registration):
            with pytest.raises(NotFound):
                verb(handle)
        self.tally["unregistered"] += 1

    def _publish(self) -> None:
        live = self._live()
        count = self.dice.choice([0, 1, 3, 20, 20, 80])
        if live.accepted.high + count > MOST_ROWS:
            return
        live.now += timedelta(seconds=self.dice.choice([0, 0, 1, 5, 20]))
        rows = random_rows(self.dice, live.shape, count, live.now)
        numbered = self._identity() if self.dice.random() < 0.6 else {}
        name = live.shape.name
        self.story.call("publish", name, rows, **numbered)
        published = self.client.publish(name, self._packed(live.shape, rows), **numbered)
        assert not published.duplicate and published.row_count == count
        assert not count or published.first_row_id == live.accepted.high
        self.position = published.position
        if numbered:
            self.sent.append((name, rows, numbered["sequence"], published))
        if rows:
            self._accept(live, rows, published)
        self.tally["rows"] += count

    def _identity(self) -> dict[str, Any]:
        return {"publisher": "one", "sequence": len(self.sent) + 1}

    def _packed(self, shape: Shape, rows: list[Row]) -> Any:
        if self.dice.random() < 0.5:
            return rows
        op = [("_op", pa.string())] if shape.key else []
        return pa.Table.from_pylist(rows, pa.schema([*shape.schema.arrow, *op]))

    def _accept(self, live: Live, rows: list[Row], published: Published) -> None:
        first = published.first_row_id
        ordered_by = live.shape.ordered_by
        stamp = None if ordered_by else self._stamp(live, first)
        complete = tuple(
            row | {"row_id": first + place, "ts": row[ordered_by] if ordered_by else stamp}
            for place, row in enumerate(rows)
        )
        reached = max(row["ts"] for row in complete) if ordered_by else None
        position = self.positions.decode(published.position)
        live.accepted.add(Batch(position, complete, reached))

    def _stamp(self, live: Live, first: int) -> datetime:
        """The ts an arrival-time stream gave to the batch: one for all its rows."""
        label, handle = live.everything
        stamps = {row["ts"] for row in self.client.invoke(handle) if row["row_id"] >= first}
        assert len(stamps) == 1, f"a batch came in at {stamps}"
        stamp: datetime = stamps.pop()
        return stamp

    def _publish_again(self) -> None:
        """Nothing acknowledged is taken twice."""
        if not self.sent:
            return
        name, rows, sequence, first = self.dice.choice(self.sent[-3:])
        if name not in self.streams:
            return
        self.story.call("publish", name, rows, publisher="one", sequence=sequence)
        again = self.client.publish(name, rows, publisher="one", sequence=sequence)
        assert again.duplicate and again.row_count == first.row_count
        if again.first_row_id >= 0:
            assert (again.position, again.first_row_id) == (first.position, first.first_row_id)
        self.tally["repeated"] += 1

    def _publish_wrongly(self) -> None:
        """Another batch under a taken number, or a number too high."""
        live = self._live()
        rows = random_rows(self.dice, live.shape, 2, live.now)
        if self.sent:
            taken = self.sent[-1][2]
            with pytest.raises(Conflict):
                self.client.publish(live.shape.name, rows, publisher="one", sequence=taken)
        with pytest.raises(PreconditionFailed):
            self.client.publish(live.shape.name, rows, publisher="one", sequence=len(self.sent) + 2)

    def _heartbeat(self) -> None:
        live = self._live()
        if not live.shape.ordered_by:
            return
        instant = live.now + timedelta(seconds=self.dice.randint(-10, 40))
        self.story.call("heartbeat", live.shape.name, instant)
        published = self.client.heartbeat(live.shape.name, instant)
        self.position = published.position
        position = self.positions.decode(published.position)
        if not live.accepted.batches or live.accepted.batches[-1].position < position:
            live.accepted.add(Batch(position, (), instant))
        self.tally["heartbeats"] += 1

    def _invoke(self) -> None:
        label = self.dice.choice(list(self.questions))
        handle, question = self.questions[label]
        other = random_window(self.dice, question.shape) if self.dice.random() < 0.4 else None
        if other is not None and not other.sql:
            other = None
        asked = {"window": other.sql if other else None, **self._as_of(question.shape)}
        if self.dice.random() < 0.05:
            self._engine().wait_for("engine ready")
            asked |= {"wait_for_engine": True, "timeout": PATIENCE}
        self.story.call("invoke", label, **asked)
        before = datetime.now(UTC)
        answer = self.client.invoke(handle, **{k: v for k, v in asked.items() if v is not None})
        self._check(question, other or question.window, asked, answer, before)
        self.tally["invoked"] += 1
        self.tally["with rows"] += bool(answer.row_count)
        self.tally["precomputed"] += answer.computed_rows == 0 and answer.epoch > 0

    def _as_of(self, shape: Shape) -> dict[str, Any]:
        if self.dice.random() < 0.75 or not self.instants:
            return {}
        if shape.ordered_by and self.dice.random() < 0.5:
            instant = shape.start + timedelta(seconds=self.dice.randint(0, 600))
            return {"as_of": instant, "knowledge": "today"}
        knowledge = self.dice.choice(["then", "today"])
        return {"as_of": self.dice.choice(self.instants), "knowledge": knowledge}

    def _check(
        self,
        question: Question,
        window: TimeWindow,
        asked: dict[str, Any],
        answer: Answer,
        before: datetime,
    ) -> None:
        live = self.streams[question.shape.name]
        position = self.positions.decode(answer.position)
        rows = live.accepted.rows(position)
        self._check_now(live, position, rows, asked, answer)
        assert not asked.get("wait_for_engine") or answer.computed_rows == 0
        chosen = [
            question.inside(rows, answer.now, window, current, live.accepted.every)
            for current in self._currents(live, before, asked.get("as_of"))
        ]
        if chosen[0] != chosen[-1]:
            self.tally["retained or not"] += 1
            return
        expected, got = question.naive(chosen[0], answer.now, EVERYTHING), values_of(answer)
        if wrong := difference(expected, got):
            raise AssertionError(f"{question.sql} / {asked} at {position}, {answer.now}: {wrong}")
        if question.plain:
            opinion = second_opinion(question, chosen[0])
            assert not difference(opinion, expected), "DuckDB says " + difference(opinion, expected)
            self.tally["seconded"] += 1

    def _currents(
        self, live: Live, before: datetime, as_of: datetime | None
    ) -> list[datetime | None]:
        """The stream's own NOW, which retention counts from; of the clock only the bounds."""
        if as_of is None:
            return [None]
        if live.shape.ordered_by:
            return [live.accepted.reached(self.positions.decode(self.position or b""))]
        return [before, datetime.now(UTC)]

    def _check_now(
        self, live: Live, position: Position, rows: list[Row], asked: dict[str, Any], answer: Answer
    ) -> None:
        as_of = asked.get("as_of")
        acknowledged = self.positions.decode(self.position or b"")
        if as_of is None or asked["knowledge"] == "today":
            assert position >= acknowledged, f"{position} does not include {acknowledged}"
        if as_of is not None:
            assert answer.now == as_of
        elif live.shape.ordered_by:
            assert answer.now == live.accepted.reached(position)
        else:
            assert all(row["ts"] <= answer.now for row in rows)

    def _restart_server(self) -> None:
        if not self._may(self._restart_server):
            return
        place = self.dice.randrange(len(self.slots))
        process = self.running.servers[self.slots[place]]
        self.story.note(f"server {place} is {self._end(process)} and started again")
        self.running.start_server(*OPTIONS)
        self.slots[place] = len(self.running.servers) - 1
        self.clients[place].close()
        self.clients[place] = self._connect(self.slots[place])
        self.tally["servers restarted"] += 1

    def _restart_engine(self) -> None:
        if not self._may(self._restart_engine):
            return
        engine = self._engine()
        engine.wait_for("engine ready")
        self.story.note(f"the engine is {self._end(engine)} and started again")
        self.running.start_engine(ready=False)
        self.tally["engines restarted"] += 1

    def _may(self, restart: Any) -> bool:
        self._restarts[restart] -= 1
        return self._restarts[restart] >= 0

    def _end(self, process: Process) -> str:
        if self.dice.random() < 0.5:
            process.kill()
            return "killed"
        process.stop()
        return "stopped"

    def _engine(self) -> Process:
        assert self.running.engine is not None
        return self.running.engine
