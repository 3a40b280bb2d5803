"""A world for machines over Sync: streams, queries, two servers, a clock, and the naive answer.

A machine adds its clients. After every sync that came to its end a copy is the naive answer at its
position and NOW; and, as long as nothing new comes, at later instants too.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from datastem.instants import SECOND, from_micros
from datastem.schema import StreamSchema
from psoup.answers.matching import matcher
from psoup.answers.replicas import keyed_history as keyed
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Position, Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.base_rows import base_query
from querystem.identity import slides
from querystem.language import CreateStream, bind_query, bind_window, parse_statement
from querystem.query import Query
from querystem.refresh import RefreshEvery
from results.window import TimeWindow
from tests.oracle.answers import naive_answer
from tests.oracle.copy import Values
from tests.oracle.keyed import Keyed
from tests.oracle.refresh import Event, History, Refreshed
from tests.oracle.windows import Shown, everything
from tests.support.lengths import scaled
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

START = 1_700_000_000 * SECOND
FEW_ROWS = keyed._FEW_ROWS
STREAMS = (
    "CREATE STREAM event (a BIGINT, b TEXT, at TIMESTAMP) ORDERED BY at RETAIN 60 SECONDS "
    "AHEAD 1 HOUR",
    "CREATE STREAM arrival (a BIGINT, b TEXT) RETAIN 60 SECONDS",
    "CREATE STREAM kept (a BIGINT, b TEXT)",
    "CREATE STREAM latest (a BIGINT, b TEXT, at TIMESTAMP) KEY (b) ORDERED BY at RETAIN 30 SECONDS",
    "CREATE STREAM spot (a BIGINT, b TEXT) KEY (b)",
)
NAMES = ("event", "arrival", "kept", "latest", "spot")
CONDITIONS = ("a > 3", "a > 5", "a % 3 = 1 OR b = 'x'", "b IS NULL", "TRUE")
WORTH = matcher.MIN_LOOKUP_ROWS, matcher._CANDIDATE_SPARSITY, matcher._MIN_READ_WEIGHT
SELECTS = (
    "SELECT a, b, row_id, ts FROM {} WHERE {}",
    "SELECT a, b FROM {} WHERE {} ORDER BY b DESC NULLS FIRST, a",
    "SELECT count(*) AS n, sum(a) AS total, max(b) AS most, last(a) AS newest FROM {} WHERE {}",
    "SELECT count(a) AS n, min(a) AS least FROM {} WHERE {} GROUP BY b",
    "SELECT b, a, count(*) AS n FROM {} WHERE {} GROUP BY b, a HAVING count(*) > 1 ORDER BY n",
    "SELECT row_id, a FROM {} WHERE {} ORDER BY a DESC NULLS LAST, row_id LIMIT 3 OFFSET 1",
    "SELECT DISTINCT b FROM {} WHERE {}",
)
WINDOWS = (
    "RANGE 5 SECONDS",
    "RANGE 20 SECONDS SLIDE 7 SECONDS",
    "BEGIN NOW - 30 SECONDS END NOW - 3 SECONDS",
    f"BEGIN '{from_micros(START):%Y-%m-%d %H:%M:%S}' END NOW",
    f"BEGIN NOW - 20 SECONDS END '{from_micros(START + 30 * SECOND):%Y-%m-%d %H:%M:%S}'",
    "UNBOUNDED",
    "ROWS 7",
    "ROWS 10 SLIDE 4",
    "ROWS 2 PARTITION BY b",
    "BEGIN ROW LAST - 9 END ROW LAST",
    "BEGIN ROW 5 END ROW 30",
)
REFRESHES = ("", "", "", "REFRESH EVERY 7 SECONDS", "REFRESH ON {} WHERE a > 5")

T = TypeVar("T")

row = st.tuples(
    st.integers(0, 9) | st.none(), st.sampled_from(("x", "y", "yy", None)), st.integers(0, 20)
)


@dataclass
class Table:
    schema: StreamSchema
    rows: list[dict[str, Any]] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)

    @property
    def by_clock(self) -> bool:
        return self.schema.now_is_clock

    def reached(self, clock: int, ts: list[int]) -> int:
        """Return how far rows take NOW, as docs/reference/language.md says."""
        instant = max(ts) - self.schema.slack
        return instant if self.schema.lead is None else min(instant, clock + self.schema.lead)

    @property
    def keyed(self) -> Keyed | None:
        return Keyed(self.schema.key) if self.schema.key else None

    def known(self, position: Position) -> list[dict[str, Any]]:
        count = sum(1 for row_position in self.positions if row_position <= position)
        return self.rows[:count]


@dataclass(frozen=True)
class Question:
    """A query and how its copy is asked for, as it is drawn."""

    name: str
    select: str
    where: str
    window: str
    other: str
    base_rows: bool
    refresh: str


questions = st.builds(
    Question,
    name=st.sampled_from(NAMES),
    select=st.sampled_from(SELECTS),
    where=st.sampled_from(CONDITIONS),
    window=st.sampled_from(WINDOWS),
    other=st.sampled_from(("", *WINDOWS)),
    base_rows=st.booleans(),
    refresh=st.sampled_from(REFRESHES),
)


@dataclass
class Asked:
    """`window` is another than the registered one, if any. `clock` is that of its refresh point.

    `computes`: the client has base rows, and computes the answer of `query` from them.
    """

    text: str
    query: Query
    table: Table
    window: str
    base_rows: bool
    computes: bool = False
    clock: int = 0


class Seen(Protocol):
    """A copy as its client sees it. Instants are microseconds."""

    @property
    def position(self) -> bytes: ...

    @property
    def now(self) -> int | None: ...

    @property
    def slides(self) -> bool: ...

    @property
    def good_until(self) -> int | None: ...

    def answer(self, now: int | None) -> list[Values]: ...


def look_at_any(few: bool) -> None:
    """Use the matches of implied predicates for any number of rows, or only if it is worth it."""
    chosen = (1, 1, 0) if few else WORTH
    matcher.MIN_LOOKUP_ROWS, matcher._CANDIDATE_SPARSITY, matcher._MIN_READ_WEIGHT = chosen


class World(RuleBasedStateMachine):
    """`start` is where the clock begins, and `pace` how far it moves for what the rules call a
    second. `streams` creates the streams NAMES, and rows of theirs may be `ahead`."""

    start, pace, ahead = START, SECOND, 0
    streams: Sequence[str] = STREAMS

    @initialize(seed=st.integers(0, 2**32))
    def open(self, seed: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="psoup-sync-"))
        self.chance = random.Random(seed)
        # Changes are found by the keys of new rows, or by scanning all keys.
        keyed._FEW_ROWS = self.chance.choice((0, FEW_ROWS))
        look_at_any(True)
        self.clock = self.start
        self.cores = [self._start(), self._start()]
        self.engine = HandMadeEngine(self.cores[0].store)
        self.tables: dict[str, Table] = {}
        self.events: list[tuple[Position, Event]] = []
        for sql in self.streams:
            statement = parse_statement(sql)
            assert isinstance(statement, CreateStream)
            self.run(self.cores[0].appender.submit(Define("main", "main", statement.schema)))
            self.tables[statement.schema.name] = Table(statement.schema)
        self.opened()

    def opened(self) -> None:
        """Do what a subclass needs once the streams exist."""

    def teardown(self) -> None:
        keyed._FEW_ROWS = FEW_ROWS
        look_at_any(False)
        if hasattr(self, "loop"):
            for core in self.cores:
                self.run(core.stop())
            self.loop.close()
            shutil.rmtree(self.folder)

    # ---- what happens in the world

    @rule(
        server=st.integers(0, 1),
        name=st.sampled_from(NAMES),
        batch=st.lists(row, min_size=1, max_size=8),
    )
    def publish(self, server: int, name: str, batch: list[Any]) -> None:
        """Time goes on by a second a batch; an event may be late by up to twenty.

        In a keyed stream no `a` is a delete.
        """
        self.clock += self.pace
        table = self.tables[name]
        if table.keyed:
            batch = [(a, b or "zz", late) for a, b, late in batch]
        arrives = table.schema.ts_is_stamp
        delays = [0 if arrives else late * self.pace - self.ahead for *_, late in batch]
        stamps = [self.clock - delay for delay in delays]
        columns = {
            "a": pa.array([a for a, *_ in batch], pa.int64()),
            "b": pa.array([b for _, b, _ in batch], pa.string()),
        }
        if not arrives:
            columns["at"] = pa.array(stamps, pa.int64()).view("timestamp[us]")
        valid = [self._validity(late) for *_, late in batch] if table.schema.validity else []
        for end, instants in zip(("at", "until"), zip(*valid, strict=True), strict=False):
            columns[end] = pa.array(instants, pa.int64()).view("timestamp[us]")
        if table.keyed:
            ops = ["delete" if a is None else "row" for a, *_ in batch]
            columns["_op"] = pa.array(ops, pa.string())
        request = pb.PublishRequest(stream=name, arrow=ipc(pa.table(columns)))
        response = self.run(publish(self.cores[server], new_call(), request))
        position = self.cores[server].positions.decode(response.position).position
        for (a, b, _), at in zip(batch, stamps, strict=True):
            row_values = {
                "a": a,
                "b": b,
                "at": from_micros(at),
                "ts": at,
                "row_id": len(table.rows),
            }
            row_values["position"] = position
            if valid:
                starts, ends = valid.pop(0)
                row_values["at"] = from_micros(starts)
                row_values["until"] = None if ends is None else from_micros(ends)
            if table.keyed and a is None:
                row_values["_op"] = "delete"
            table.rows.append(row_values)
            table.positions.append(position)
        event = Event(
            name, self.clock, table.rows[-len(batch) :], table.reached(self.clock, stamps)
        )
        self.events.append((position, event))

    def _validity(self, late: int) -> tuple[int, int | None]:
        """Return the validity of a row: it begins in ten seconds at most, or began ten ago, and
        lasts for a microsecond, for some seconds, or for ever."""
        starts = self.clock + (10 - late) * self.pace
        lasts = self.chance.choice([1, self.pace, 5 * self.pace, 25 * self.pace, None])
        return starts, None if lasts is None else starts + lasts

    @rule(seconds=st.integers(0, 40))
    def wait(self, seconds: int) -> None:
        self.clock += seconds * self.pace

    @rule()
    def step(self) -> None:
        self.engine.step()

    @rule(server=st.integers(0, 1))
    def restart(self, server: int) -> None:
        self.run(self.cores[server].stop())
        self.cores[server] = self._start()

    # ---- questions and answers

    @property
    def shown(self) -> Mapping[str, Shown]:
        """Which rows are shown, of the streams that have policies."""
        return {}

    def ask(self, question: Question, *, computes: bool = False) -> Asked:
        """Return a question as its client asks it; `computes`: it computes the answer from base
        rows, if that is possible."""
        table, brought_window, refresh = (
            self.tables[question.name],
            question.other,
            question.refresh,
        )
        window = question.window
        if table.keyed:
            refresh = ""
            window, brought_window = (
                text.replace("ROWS 10 SLIDE 4", "ROWS 10") for text in (window, brought_window)
            )
        trigger = refresh.format("kept" if table.by_clock else "event")
        text = f"{question.select.format(question.name, question.where)} {window} {trigger}"
        query = bind_query(text, lambda name: self.tables[name].schema)
        base_rows = question.base_rows and (
            not computes or computable(query, table.schema, brought_window)
        )
        if base_rows and not computes and (query.refresh or not slides(query)):
            query = base_query(query, [table.schema])
        if brought_window:
            query = query.with_window(bind_window(brought_window, table.schema))
        return Asked(text, query, table, brought_window, base_rows, base_rows and computes)

    def check(self, subject: Asked, client_copy: Seen) -> None:
        """Assert that a copy is the naive answer, now and later."""
        position = self.cores[0].positions.decode(client_copy.position).position
        if subject.query.refresh is not None and not subject.computes:
            return self._check_refreshed(subject, client_copy, position)
        self._same(subject, client_copy, position, client_copy.now)
        if not subject.table.by_clock and not subject.query.refresh:
            name = subject.table.schema.name
            reached = [e.reached for at, e in self.events if at <= position and e.stream == name]
            assert client_copy.now == max(reached, default=None)
        if client_copy.now is None or not subject.table.by_clock:
            return
        until = client_copy.good_until
        for later in (0, 1, *(seconds * self.pace for seconds in (2, 5, 7, 31, 70))):
            now = client_copy.now + later
            if until is not None and now >= until:
                continue
            if client_copy.slides:
                self._same(subject, client_copy, position, now)
            else:
                assert client_copy.answer(client_copy.now) == self._naive(subject, position, now)

    def _check_refreshed(self, subject: Asked, client_copy: Seen, position: Position) -> None:
        """Assert that a copy is the naive answer at the position, as of the clock of its refresh
        point."""
        naive = self._refreshed(subject, position, subject.clock)
        assert (client_copy.now, client_copy.answer(client_copy.now)) == (naive.now, naive.answer)

    def _refreshed(self, subject: Asked, position: Position, clock: int) -> Refreshed:
        schemas = {name: table.schema for name, table in self.tables.items()}
        events = [event for at, event in self.events if at <= position]
        return History(schemas, events, clock, shown=self.shown).ask(subject.query)

    def _same(self, subject: Asked, client_copy: Seen, position: Position, now: int | None) -> None:
        assert client_copy.answer(now) == self._naive(subject, position, now), (subject.query, now)

    def _naive(self, subject: Asked, position: Position, now: int | None) -> list[Any]:
        if subject.query.refresh is not None and now is not None:
            return self._refreshed(subject, position, now).answer
        schema, keyed, rows = (
            subject.table.schema,
            subject.table.keyed,
            subject.table.known(position),
        )
        is_visible, now = self.shown.get(schema.name, everything), 0 if now is None else now
        return naive_answer(subject.query, rows, now, schema.retain, keyed, is_visible)

    # ---- means

    def _start(self) -> Core:
        path = self.folder / "store"
        store = Store.open(path, create=True, sync=False)
        core = Core(store, Settings(path, sync_bytes=200), lambda: self.clock)
        self.run(core.start())
        return core

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)


def computable(query: Query, schema: StreamSchema, window: str) -> bool:
    """Return True if the answer can be computed from base rows, as docs/reference/client.md
    says."""
    chosen = bind_window(window, schema) if window else query.leg.window
    if query.refresh is None:
        return True
    every, by_time = isinstance(query.refresh, RefreshEvery), isinstance(chosen, TimeWindow)
    return every and by_time and schema.ts_is_stamp and not schema.key


def machine_settings(examples: int, steps: int) -> settings:
    """`examples` are those of the short run."""
    return settings(
        max_examples=scaled(examples),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
