"""A store used at random: create, register, publish, invoke, ask, unregister, drop; each answer is
judged as it comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from client_sdk import Answer, Client, Conflict, NotFound, PreconditionFailed, Published
from datastem.instants import to_micros
from datastem.schema import OP
from psoup.store import START, Position
from querystem.language import stream_sql
from tests.oracle.queries import LAST_TS
from tests.oracle.strategies import Row
from tests.oracle.written import WrittenQuery
from tests.support.system.accepted import Batch
from tests.support.system.fleet import Fleet
from tests.support.system.question import Question
from tests.support.system.story import Name
from tests.support.system.streams import Stream, random_stream
from tests.support.system.tenants import Action, Tenant
from tests.support.system.verdict import Asked, Instant, judge

STREAMS = 2
MOST_ROWS = 250
REGISTER_TOGETHER = 4


class Scenario(Tenant):
    """A tenant with streams of any kind and queries over one of them each."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        super().__init__(fleet, f"seed{seed}", seed)
        self.seed = seed
        self.streams: dict[str, Stream] = {}
        self.questions: dict[Name, tuple[bytes, Question]] = {}
        self.everything: dict[str, bytes] = {}
        self.keyed: set[Name] = set()
        self.written: dict[Name, WrittenQuery] = {}
        self.sent: list[tuple[str, list[Row], Published]] = []
        self.instants: list[Instant] = []
        self._names = 0
        self.told(*[self._create] * STREAMS)

    @property
    def actions(self) -> Mapping[Action, float]:
        return {
            self._register: 8,
            self._register_other_window: 2,
            self._register_again: 1,
            self._unregister: 2,
            self._publish: 16,
            self._publish_again: 2,
            self._publish_wrongly: 1,
            self._heartbeat: 3,
            self._invoke: 40,
            self._ask: 20,
            self._replace: 0.3,
        }

    def acted(self) -> None:
        self.instants.append(Instant(datetime.now(UTC), self._acknowledged))

    def check_everything(self, place: int) -> int:
        """Ask every question once more of one server; return the number of rows it computed for
        them."""
        before = self.tally["computed"]
        self.told(lambda: self._invoke_all(self.client_of(place)))
        return self.tally["computed"] - before

    @property
    def _acknowledged(self) -> Position:
        return self.fleet.positions.decode(self.position).position if self.position else START

    def _some(self) -> Stream:
        return self.streams[self.dice.choice(list(self.streams))]

    # ---- definitions

    def _create(self) -> None:
        name = self._name("stream")
        stream = random_stream(100 * self.seed + self._names, name)
        sql = stream_sql(stream.schema)
        self.story.call("define", sql)
        self.position = self.client.define(sql).position
        self.streams[name] = stream
        everything = self._add(Question.of(f"SELECT ts, row_id FROM {name}", stream.schema))
        self.everything[name] = self.questions[everything][0]
        self._publish_to(stream, 20)
        self.tally["created"] += 1

    def _replace(self) -> None:
        """A stream and its registrations go, another comes."""
        name = self._some().schema.name
        self.story.call("define", f"DROP STREAM {name}")
        self.position = self.client.define(f"DROP STREAM {name}").position
        del self.streams[name]
        orphans = [
            label for label, (_, question) in self.questions.items() if question.schema.name == name
        ]
        for label in orphans:
            handle, _ = self.questions.pop(label)
            with pytest.raises((NotFound, PreconditionFailed)):
                self.client.invoke(handle)
        self.tally["dropped"] += 1
        self._create()

    def _name(self, letter: str) -> Name:
        self._names += 1
        return Name(f"{letter}{self._names}")

    # ---- registrations

    def _register(self) -> None:
        stream = self._some()
        for _ in range(REGISTER_TOGETHER):
            written = next(stream.queries)
            label = self._add(Question(written.sql, written.query, stream.schema))
            self.written[label] = written

    def _register_other_window(self) -> None:
        """A registered text once more, with a window that may be wider: the predicate is shared."""
        label = self.dice.choice(list(self.questions))
        written, stream = self.written.get(label), self.questions[label][1].schema
        if written is None:
            return
        window = self.dice.choice(self.streams[stream.name].windows)
        query = written.query.with_window(window.window)
        self._add(Question(f"{written.text} {window.text}", query, stream))
        self.tally["other windows"] += 1

    def _add(self, question: Question) -> Name:
        label = self._name("handle")
        key = None
        if self.dice.random() < 0.3:
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
            self.client.register(f"SELECT ts FROM {question.schema.name} RANGE 7", key=str(label))

    def _unregister(self) -> None:
        permanent = self.everything.values()
        labels = [label for label, (handle, _) in self.questions.items() if handle not in permanent]
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

    # ---- rows

    def _publish(self) -> None:
        stream, count = self._some(), self.dice.choice([0, 1, 3, 20, 60])
        if stream.accepted.high + count <= MOST_ROWS:
            self._publish_to(stream, count)

    def _publish_to(self, stream: Stream, count: int) -> None:
        stream.step = min(LAST_TS, stream.step + self.dice.choice([0, 0, 1, 4]))
        rows = stream.rows(self.dice, count)
        numbered: dict[str, Any] = {}
        if self.dice.random() < 0.6:
            numbered = {"publisher": "one", "sequence": len(self.sent) + 1}
        name = stream.schema.name
        self.story.call("publish", name, rows, **numbered)
        published = self.client.publish(name, self._packed(stream, rows), **numbered)
        assert not published.duplicate and published.row_count == count
        assert not count or published.first_row_id == stream.accepted.high
        self.position = published.position
        if numbered:
            self.sent.append((name, rows, published))
        if rows:
            self._accept(stream, rows, published)
        self.tally["rows"] += count

    def _packed(self, stream: Stream, rows: list[Row]) -> Any:
        if self.dice.random() < 0.5:
            return rows
        table = pa.Table.from_pylist(rows, stream.schema.arrow)
        if stream.schema.key:
            table = table.append_column(OP, pa.array([row[OP] for row in rows], pa.string()))
        return table

    def _accept(self, stream: Stream, rows: list[Row], published: Published) -> None:
        first, ordered_by = published.first_row_id, stream.schema.ordered_by
        if ordered_by:
            moments: list[datetime] = [row[ordered_by] for row in rows]
        else:
            moments = [self._stamp(stream, first)] * len(rows)
        complete = tuple(
            row | {"row_id": first + place, "ts": to_micros(moment)}
            for place, (row, moment) in enumerate(zip(rows, moments, strict=True))
        )
        reached = max(moments) if ordered_by else None
        stream.accepted.add(Batch(self._acknowledged, complete, reached))

    def _stamp(self, stream: Stream, first: int) -> datetime:
        """Return the ts an arrival-time stream gave to the batch: one for all its rows."""
        answer = self.client.invoke(self.everything[stream.schema.name])
        stamps = {row["ts"] for row in answer if row["row_id"] >= first}
        assert len(stamps) == 1, f"a batch came in at {stamps}"
        stamp: datetime = stamps.pop()
        return stamp

    def _publish_again(self) -> None:
        """Nothing acknowledged is taken twice."""
        if not self.sent:
            return
        sequence = self.dice.randint(max(1, len(self.sent) - 2), len(self.sent))
        name, rows, first = self.sent[sequence - 1]
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
        stream = self._some()
        name, rows = stream.schema.name, stream.rows(self.dice, 61)
        if self.sent:
            with pytest.raises(Conflict):
                self.client.publish(name, rows, publisher="one", sequence=len(self.sent))
        with pytest.raises(PreconditionFailed):
            self.client.publish(name, rows, publisher="one", sequence=len(self.sent) + 2)

    def _heartbeat(self) -> None:
        stream = self._some()
        if not stream.schema.ordered_by:
            return
        instant = stream.instant(stream.step + self.dice.randint(-1, 2))
        self.story.call("heartbeat", stream.schema.name, instant)
        self.position = self.client.heartbeat(stream.schema.name, instant).position
        batches = stream.accepted.batches
        if not batches or batches[-1].position < self._acknowledged:
            stream.accepted.add(Batch(self._acknowledged, (), instant))
        self.tally["heartbeats"] += 1

    # ---- answers

    def _invoke(self) -> None:
        label = self.dice.choice(list(self.questions))
        handle, question = self.questions[label]
        stream = self.streams[question.schema.name]
        window = self.dice.choice(stream.windows) if self.dice.random() < 0.4 else None
        request = replace(self._asked(question), window=window)
        self.story.call("invoke", label, **request.options)
        self._judge(request, self.client.invoke(handle, **request.options))
        self.tally["invoked"] += 1

    def _invoke_all(self, client: Client) -> None:
        for label, (handle, question) in self.questions.items():
            self.story.call("invoke", label)
            self._judge(self._at_now(question), client.invoke(handle))

    def _ask(self) -> None:
        stream = self._some()
        written, window = next(stream.queries), self.dice.choice(stream.windows)
        sql = f"{written.text} {window.text}"
        request = self._asked(
            Question(sql, written.query.with_window(window.window), stream.schema)
        )
        self.story.call("ask", sql, **request.options)
        self._judge(request, self.client.ask(sql, **request.options))
        self.tally["asked"] += 1

    def _asked(self, question: Question) -> Asked:
        """At NOW, or as of an earlier instant, in one sense or the other."""
        stream, request = self.streams[question.schema.name], self._at_now(question)
        if self.dice.random() < 0.6 or not self.instants:
            return request
        if stream.schema.ordered_by and self.dice.random() < 0.5:
            return replace(request, as_of=stream.instant(self.dice.randint(0, LAST_TS)))
        instant = self.dice.choice(self.instants)
        return replace(request, as_of=instant.at, then=self.dice.choice([instant, None]))

    def _at_now(self, question: Question) -> Asked:
        stream = self.streams[question.schema.name]
        return Asked(question, stream, self._acknowledged, datetime.now(UTC))

    def _judge(self, request: Asked, answer: Answer) -> None:
        decided = judge(request, answer, self.fleet.positions.decode(answer.position).position)
        self.tally["judged" if decided else "retained or not"] += 1
        self.tally["with rows"] += bool(answer.row_count)
        self.tally["precomputed"] += answer.computed_rows == 0 and answer.epoch > 0
        self.tally["computed"] += answer.computed_rows
