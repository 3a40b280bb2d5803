"""A store with streams of both kinds of time, two servers over it, and copies of trees' answers.

Copies are brought up to date by the copiers alone, without the wire: a query needs no text.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from datastem.instants import FOR_EVER, SECOND, SINCE_EVER, from_micros
from datastem.schema import StreamSchema
from psoup.access.principal import ANYONE
from psoup.answers import Question
from psoup.answers.difference import (
    BEGINNING,
    Claim,
    CombinationCopier,
    Copier,
    CopyChunk,
    CopyJob,
    Cursor,
    Difference,
    Mark,
    Repair,
    WholeReason,
    copier_of,
)
from psoup.answers.difference.job import by_clock, by_rows, make_job
from psoup.answers.planning.plan import Plan
from psoup.answers.planning.question import BoundText
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.server.wire.copies import KEY_BYTES, CopySubject, Tokens
from psoup.store import Position, Store
from psoup.store.delta.durable import MIN_GRACE_SECONDS
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from querystem.query import Query
from tests.oracle import checksums
from tests.oracle.clocks import Known
from tests.oracle.trees import World
from tests.support.answers.trees import ARRIVAL, KEYED, START, STREAMS
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

TOKENS = Tokens(b"store 01", bytes(KEY_BYTES))
NO_REPAIR = Repair(np.empty(0, np.int64), None)

T = TypeVar("T")
Values = tuple[Any, ...]


@dataclass
class Published:
    """A stream as the oracle knows it."""

    schema: StreamSchema
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def timed(self) -> bool:
        return self.schema.ordered_by is not None


class CopyWorld:
    """Streams that fill at random. Close it when done."""

    def __init__(self, folder: Path, chance: random.Random, *, waiting: bool | None = None) -> None:
        """`waiting`: if rows that are far ahead wait; None draws it. Then windows that count rows
        of event time are copied as results."""
        if waiting is None:
            waiting = chance.random() < 0.5
        self.chance = chance
        self.clock = START
        self.loop = asyncio.new_event_loop()
        self._folder = folder
        self.cores = [self._start(), self._start()]
        self.engine = HandMadeEngine(self.cores[0].store)
        self.streams: dict[str, Published] = {}
        for name, sql in STREAMS.items():
            statement = parse_statement(
                sql if waiting or name in ARRIVAL else f"{sql} AHEAD 1 HOUR"
            )
            assert isinstance(statement, CreateStream)
            self.run(self.cores[0].appender.submit(Define("main", "main", statement.schema)))
            self.streams[statement.schema.name] = Published(statement.schema)

    def close(self) -> None:
        for core in self.cores:
            self.run(core.stop())
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def core(self) -> Core:
        """Return one of the servers, after it has read all that was published."""
        core = self.chance.choice(self.cores)
        self.run(core.follower.catch_up())
        return core

    def _start(self) -> Core:
        store = Store.open(self._folder, create=True, sync=False)
        core = Core(store, Settings(self._folder), lambda: self.clock)
        self.run(core.start())
        return core

    # ---- what happens

    def happens(self, names: list[str]) -> None:
        """Let something happen to one of the streams, or let time pass."""
        match self.chance.randrange(14):
            case 0 | 1:
                self.engine.step()
            case 2 | 3:
                self.clock += self.chance.choice((1, 3, 8, 25, 100)) * SECOND
            case 4:
                self.beat(self.chance.choice(names))
            case 5:
                self.delete()
            case _:
                self.fill(self.chance.choice(names), self.chance.randint(1, 4))

    def delete(self) -> None:
        """Let the engine delete the files whose rows it need not keep, and restart a server."""
        core = self.core()
        for stream in core.follower.state.streams.values():
            now, retain = core.follower.view.now_of(stream), stream.schema.retain
            if retain is not None and now is not None and not stream.schema.key:
                self.engine.retain(stream.id, now - retain - int(MIN_GRACE_SECONDS * SECOND))
        place = self.chance.randrange(2)
        self.run(self.cores[place].stop())
        self.cores[place] = self._start()

    def beat(self, name: str) -> None:
        """Advance an event-time stream's NOW by a heartbeat."""
        if self.streams[name].timed:
            at = self.clock + self.chance.randint(-5, 2) * SECOND
            request = pb.PublishRequest(stream=name)
            request.heartbeat.FromMicroseconds(at)
            self.run(publish(self.cores[0], new_call(), request))

    def fill(self, name: str, count: int) -> None:
        """Publish random rows after a second; events may be late, or early."""
        self.clock += SECOND
        late = [self.chance.choice((0, 0, 1, 3, 9, 20)) for _ in range(count)]
        self.publish(name, [(self._number(), self._text(), -seconds) for seconds in late])

    def publish(self, name: str, rows: list[tuple[int | None, str, int]]) -> None:
        """Publish rows (a, b, seconds from now); in a keyed stream one without `a` is a delete."""
        stream, keyed = self.streams[name], name in KEYED
        stamps = [self.clock + (seconds * SECOND if stream.timed else 0) for *_, seconds in rows]
        columns: dict[str, pa.Array] = {
            "a": pa.array([a for a, *_ in rows], pa.int64()),
            "b": pa.array([b for _, b, _ in rows], pa.string()),
        }
        if stream.timed:
            columns["at"] = pa.array(stamps, pa.int64()).view("timestamp[us]")
        if keyed:
            columns["_op"] = pa.array(["delete" if a is None else "row" for a, *_ in rows])
        request = pb.PublishRequest(stream=name, arrow=ipc(pa.table(columns)))
        self.run(publish(self.cores[0], new_call(), request))
        for (a, b, _), ts in zip(rows, stamps, strict=True):
            op = "delete" if keyed and a is None else "row"
            row = {"a": a, "b": b, "at": from_micros(ts), "ts": ts, "_op": op}
            stream.rows.append({**row, "row_id": len(stream.rows)})

    def _number(self) -> int | None:
        return self.chance.choice((1, 2, 3, 3, 4, None))

    def _text(self) -> str:
        return self.chance.choice(("x", "y", "z"))

    # ---- questions

    def question(self, query: Query) -> Question:
        state = self.core().follower.state
        ids = {stream.schema.name: stream.id for stream in state.streams.values()}
        source = BoundText(tuple(ids[leg.stream] for leg in query.legs))
        return Question(source, query, ANYONE, ahead=True)

    def expected(self, query: Query, mark: Mark, clock: int) -> list[Values]:
        """Return the naive answer at a mark, when the clock says `clock`."""
        streams = {}
        for leg, leg_mark in zip(query.legs, mark.legs, strict=True):
            stream = self.streams[leg.stream]
            reached = leg_mark.current if stream.timed else None
            streams[leg.stream] = Known(stream.schema, stream.rows, reached, leg_mark.high)
        return World(streams, clock).answer(query)


@dataclass(frozen=True)
class Kept:
    """A row of a copy."""

    visible_from: int
    visible_until: int
    sort_key: bytes
    checksum: int
    values: Values


@dataclass
class TreeCopy:
    """A client's copy of the answer to a question, and what is staged."""

    world: CopyWorld
    question: Question
    claim: Claim = field(default_factory=Claim)
    rows: dict[int, Kept] = field(default_factory=dict)
    staged: dict[int, Kept] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    whole: bool = True
    found: Difference | None = None
    joins: int = 0
    pieces: int = 0
    sent: int = 0

    @property
    def query(self) -> Query:
        return self.question.query

    @property
    def mark(self) -> Mark:
        assert self.claim.copy is not None
        return self.claim.copy

    def sync(
        self,
        cuts: float = 0.0,
        limit: int = 1 << 20,
        repair: Repair = NO_REPAIR,
        away: int | None = None,
    ) -> Difference:
        """Bring the copy up to date; each message is the last of its call with the chance `cuts`,
        and the next call may go to another server."""
        for _ in range(10_000):
            if self._call(cuts, limit, repair, away):
                assert self.found is not None
                return self.found
        raise AssertionError("no end")

    def _call(self, cuts: float, limit: int, repair: Repair, away: int | None) -> bool:
        core = self.world.core()
        maker, view = core.maker, core.follower.view
        plan = maker.plan(view, self.question)
        previous = self.claim.copy or self.claim.target
        reason = WholeReason.NONE if previous else WholeReason.FIRST
        job = make_job(self.question, plan, self.claim, reason, repair, away)
        copier = copier_of(maker, plan, job)
        difference = copier.difference()
        job, self.found = difference.job, difference
        self._begin(job, difference)
        done = self._removals(job, difference, cuts) and self._pieces(
            copier, plan, job, cuts, limit
        )
        if isinstance(copier, CombinationCopier):
            self.joins = copier._change.combiner.joins
        if done:
            self._end(plan, job, difference)
        return done

    def _begin(self, job: CopyJob, difference: Difference) -> None:
        if job.continued:
            assert self.whole == difference.whole
        else:
            self.whole, self.staged, self.removed = difference.whole, {}, set()

    def _removals(self, job: CopyJob, difference: Difference, cuts: float) -> bool:
        ids = difference.removed.tolist()
        if not ids or self.world.chance.random() >= cuts:
            self.removed |= set(ids)
            return True
        count = self.world.chance.randint(1, len(ids))
        self.removed |= set(ids[:count])
        if count == len(ids) and not difference.lacking:
            return True
        self._interrupt(job, Cursor(-(ids[count - 1] + 1)))
        return False

    def _pieces(self, copier: Copier, plan: Plan, job: CopyJob, cuts: float, limit: int) -> bool:
        remaining, cursor = found_lacking(self.found), BEGINNING
        while remaining:
            chunk = copier.renewed(plan, job).piece(cursor, limit)
            assert chunk is not None and len(chunk.ids)
            self._stage(chunk)
            remaining, cursor = remaining - len(chunk.ids), chunk.cursor
            if remaining and self.world.chance.random() < cuts:
                self._interrupt(job, cursor)
                return False
        return True

    def _stage(self, chunk: CopyChunk) -> None:
        self.pieces += 1
        columns = [column.to_pylist() for column in chunk.rows.columns]
        for place, row_id in enumerate(chunk.ids.tolist()):
            assert row_id not in self.staged
            self.sent += 1
            self.staged[row_id] = Kept(
                int(chunk.visible_from[place]),
                int(chunk.visible_until[place]),
                chunk.sort_keys[place].as_py(),
                int(chunk.checksums[place]),
                tuple(column[place] for column in columns),
            )

    def _interrupt(self, job: CopyJob, cursor: Cursor) -> None:
        self.claim = self._token(Claim(job.claim.copy, job.target, cursor))

    def _token(self, claim: Claim) -> Claim:
        """Return the claim after a trip through a token."""
        subject = CopySubject.of(b"h" * 16, Position(1, 0), self.question)
        return TOKENS.read(TOKENS.write(subject, claim)).about(subject)

    def _end(self, plan: Plan, job: CopyJob, difference: Difference) -> None:
        unchanged = {} if self.whole else self.rows
        unchanged = {row_id: row for row_id, row in unchanged.items() if row_id not in self.removed}
        self.rows = unchanged | self.staged
        self.claim, self.staged, self.removed = self._token(Claim(job.target)), {}, set()
        now = job.target.now
        if now is not None:
            self.rows = {
                row_id: row for row_id, row in self.rows.items() if row.visible_until > now
            }
        numbers = (
            list(self.rows) if by_rows(plan) else [row_id.checksum for row_id in self.rows.values()]
        )
        assert len(numbers) == difference.row_count
        assert checksums.digest(numbers) == difference.digest

    # ---- what it shows

    def answer(self, now: int | None) -> list[Values]:
        at = SINCE_EVER if now is None else now
        visible = [
            (row.sort_key, row.visible_from, row_id, row.values)
            for row_id, row in self.rows.items()
            if row.visible_from <= at < row.visible_until
        ]
        return [values for *_, values in sorted(visible, key=lambda row_id: row_id[:3])]

    def check(self) -> None:
        """Assert that the copy is the naive answer now, and if it slides, at later instants too."""
        core = self.world.core()
        plan = core.maker.plan(core.follower.view, self.question)
        clock, now = by_clock(plan), self.mark.now
        at = _clock_of(plan, self.mark) if not clock or now is None else now
        expected = self.world.expected(self.query, self.mark, at)
        assert self.answer(now) == expected
        if clock and by_rows(plan) and now is not None:
            for seconds in (1, 2, 5, 9, 17, 33, 70):
                later = now + seconds * SECOND
                if self.mark.horizon is None or later <= self.mark.horizon:
                    expected = self.world.expected(self.query, self.mark, later)
                    assert self.answer(later) == expected, seconds


def found_lacking(difference: Difference | None) -> int:
    return 0 if difference is None else difference.lacking


def _clock_of(plan: Plan, mark: Mark) -> int:
    """Return the clock at a mark of a query that does not go by it."""
    by_arrival = [
        leg_mark.current
        for leg, leg_mark in zip(plan.legs, mark.legs, strict=True)
        if leg.schema.ordered_by is None and leg_mark.current is not None
    ]
    return max(by_arrival, default=0)


def without(question: Question, **changes: Any) -> Question:
    """Return a question about a changed query."""
    return replace(question, query=replace(question.query, **changes))


LATER = FOR_EVER
