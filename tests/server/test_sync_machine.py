"""A state machine over Sync: publish, go away, come back, to either server, over a bad connection.

After every sync that came to its end the copy is the naive answer at its position and NOW; and, as
long as nothing new comes, at later instants too.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule

from datastem.instants import SECOND, from_micros
from datastem.schema import StreamSchema
from psoup.server import keyed
from psoup.server.core import Core
from psoup.server.proposals import Define
from psoup.server.publishing import publish
from psoup.server.registering import register
from psoup.server.settings import Settings
from psoup.server.sync.call import sync
from psoup.store import Position, Store
from psoup.v1 import psoup_pb2 as pb
from querystem.identity import base_query, slides
from querystem.language import CreateStream, bind_query, bind_window, parse_statement
from querystem.query import Query
from tests.oracle.answers import naive_answer
from tests.oracle.copy import Copy, runs_of
from tests.oracle.keyed import Keyed
from tests.oracle.refresh import Event, History
from tests.server.epochs import HandMadeEngine
from tests.server.process import ipc

START = 1_700_000_000 * SECOND
FEW_ROWS = keyed._FEW_ROWS
STREAMS = (
    "CREATE STREAM event (a BIGINT, b TEXT, at TIMESTAMP) ORDERED BY at RETAIN 60 SECONDS",
    "CREATE STREAM arrival (a BIGINT, b TEXT) RETAIN 60 SECONDS",
    "CREATE STREAM kept (a BIGINT, b TEXT)",
    "CREATE STREAM latest (a BIGINT, b TEXT, at TIMESTAMP) KEY (b) ORDERED BY at RETAIN 30 SECONDS",
    "CREATE STREAM spot (a BIGINT, b TEXT) KEY (b)",
)
NAMES = ("event", "arrival", "kept", "latest", "spot")
CONDITIONS = ("a > 3", "a % 3 = 1 OR b = 'x'", "b IS NULL", "TRUE")
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
        return self.schema.ordered_by is None

    @property
    def keyed(self) -> Keyed | None:
        return Keyed(self.schema.key) if self.schema.key else None

    def known(self, position: Position) -> list[dict[str, Any]]:
        count = sum(1 for one in self.positions if one <= position)
        return self.rows[:count]


@dataclass
class Standing:
    handle: bytes
    query: Query
    table: Table
    window: str = ""
    copy: Copy = field(default_factory=Copy)
    base_rows: bool = False
    clock: int = 0


class Recharge(RuleBasedStateMachine):
    standing = Bundle("standing")

    @initialize(seed=st.integers(0, 2**32))
    def open(self, seed: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="psoup-sync-"))
        self.chance = random.Random(seed)
        # Whether the keys of new rows tell what changed, or all keys are looked at.
        keyed._FEW_ROWS = self.chance.choice((0, FEW_ROWS))
        self.clock = START
        self.cores = [self._start(), self._start()]
        self.engine = HandMadeEngine(self.cores[0].store)
        self.tables: dict[str, Table] = {}
        self.events: list[tuple[Position, Event]] = []
        for sql in STREAMS:
            statement = parse_statement(sql)
            assert isinstance(statement, CreateStream)
            self._run(self.cores[0].appender.submit(Define("main", "main", statement.schema)))
            self.tables[statement.schema.name] = Table(statement.schema)

    def teardown(self) -> None:
        keyed._FEW_ROWS = FEW_ROWS
        if hasattr(self, "loop"):
            for core in self.cores:
                self._run(core.stop())
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
        self.clock += SECOND
        table = self.tables[name]
        if table.keyed:
            batch = [(a, b or "zz", late) for a, b, late in batch]
        stamps = [self.clock - (0 if table.by_clock else late * SECOND) for *_, late in batch]
        columns = {
            "a": pa.array([a for a, *_ in batch], pa.int64()),
            "b": pa.array([b for _, b, _ in batch], pa.string()),
        }
        if not table.by_clock:
            columns["at"] = pa.array(stamps, pa.int64()).view("timestamp[us]")
        if table.keyed:
            ops = ["delete" if a is None else "row" for a, *_ in batch]
            columns["_op"] = pa.array(ops, pa.string())
        request = pb.PublishRequest(stream=name, arrow=ipc(pa.table(columns)))
        response = self._run(publish(self.cores[server], request))
        position = self.cores[server].store.positions.decode(response.position)
        for (a, b, _), at in zip(batch, stamps, strict=True):
            known = {"a": a, "b": b, "at": from_micros(at), "ts": at, "row_id": len(table.rows)}
            if table.keyed and a is None:
                known["_op"] = "delete"
            table.rows.append(known)
            table.positions.append(position)
        made = Event(name, self.clock, table.rows[-len(batch) :], max(stamps))
        self.events.append((position, made))

    @rule(seconds=st.integers(0, 40))
    def wait(self, seconds: int) -> None:
        self.clock += seconds * SECOND

    @rule()
    def step(self) -> None:
        self.engine.step()

    @rule(server=st.integers(0, 1))
    def restart(self, server: int) -> None:
        self._run(self.cores[server].stop())
        self.cores[server] = self._start()

    # ---- what clients do

    @rule(
        target=standing,
        name=st.sampled_from(NAMES),
        select=st.sampled_from(SELECTS),
        where=st.sampled_from(CONDITIONS),
        window=st.sampled_from(WINDOWS),
        other=st.sampled_from(("", *WINDOWS)),
        base_rows=st.booleans(),
        refresh=st.sampled_from(REFRESHES),
    )
    def register(
        self,
        name: str,
        select: str,
        where: str,
        window: str,
        other: str,
        base_rows: bool,
        refresh: str,
    ) -> Standing:
        table = self.tables[name]
        if table.keyed:
            refresh = ""
            window, other = (text.replace("ROWS 10 SLIDE 4", "ROWS 10") for text in (window, other))
        trigger = refresh.format("kept" if table.by_clock else "event")
        text = f"{select.format(name, where)} {window} {trigger}"
        registered, _ = self._run(register(self.cores[0], pb.RegisterRequest(sql=text)))
        query = bind_query(text, lambda name: self.tables[name].schema)
        if base_rows and (query.refresh or not slides(query)):
            query = base_query(query, table.schema)
        if other:
            query = replace(query, window=bind_window(other, table.schema))
        return Standing(registered.handles[0], query, table, other, base_rows=base_rows)

    @rule(
        server=st.integers(0, 1),
        asked=st.lists(standing, min_size=1, max_size=3, unique_by=id),
        cut=st.integers(0, 12),
        budget=st.sampled_from((0, 0, 0, 1, 300, 2000)),
        arrow=st.booleans(),
        away=st.sampled_from((None, None, 0, 5, 100)),
        one_position=st.booleans(),
        lose_end=st.integers(0, 5),
    )
    def sync(
        self,
        server: int,
        asked: list[Standing],
        cut: int,
        budget: int,
        arrow: bool,
        away: int | None,
        one_position: bool,
        lose_end: int,
    ) -> None:
        request = pb.SyncRequest(
            items=[self._item(one) for one in asked],
            byte_budget=budget,
            encoding=pb.ENCODING_ARROW if arrow else pb.ENCODING_UNSPECIFIED,
            one_position=one_position,
            away=None if away is None else Duration(seconds=away),
        )
        parts = self._parts(self.cores[server], request, None if cut > 8 else cut)
        ended = set()
        for part in parts:
            one = asked[part.item]
            self._note_clock(one, part)
            one.copy.take(part, lose_end=lose_end == 0)
            if part.HasField("end") and lose_end:
                ended.add(part.item)
                self._check(one)
        for index, one in enumerate(asked):
            if index not in ended:
                one.copy.cut()
        if one_position and len(ended) == len(asked):
            assert len({one.copy.end.position for one in asked if one.copy.end}) == 1

    @rule(server=st.integers(0, 1), one=standing)
    def recharge(self, server: int, one: Standing) -> None:
        """Until it is complete, in as many calls as that takes."""
        for _ in range(1000):
            request = pb.SyncRequest(items=[self._item(one)], byte_budget=400)
            parts = self._parts(self.cores[server], request, None)
            assert len(parts) > 1
            for part in parts:
                self._note_clock(one, part)
                one.copy.take(part)
            if parts[-1].HasField("end"):
                return self._check(one)
        raise AssertionError("it never ends")

    @rule(server=st.integers(0, 1), one=standing)
    def damage(self, server: int, one: Standing) -> None:
        """One row breaks, is lost or made up; the client finds out and has it repaired."""
        copy = one.copy
        if copy.end is None or not copy.rows or copy.resume:
            return
        found = copy.damage(self.chance)
        item = self._item(one)
        if found == "damaged":
            assert len(copy.damaged()) == 1
            item.resend.CopyFrom(runs_of(copy.damaged()))
        else:
            assert not copy.sound()
            item.have.CopyFrom(runs_of(set(copy.rows)))
        for part in self._parts(self.cores[server], pb.SyncRequest(items=[item]), None):
            self._note_clock(one, part)
            copy.take(part)
        self._check(one)

    @rule(server=st.integers(0, 1), one=standing)
    def nothing_new(self, server: int, one: Standing) -> None:
        """A second sync right after a first has nothing to say, in few bytes."""
        self._run(self.cores[server].follower.catch_up())
        for _ in range(2):
            for part in self._parts(self.cores[server], self._request(one), None):
                self._note_clock(one, part)
                one.copy.take(part)
        parts = self._parts(self.cores[server], self._request(one), None)
        assert [part.WhichOneof("part") for part in parts] == ["begin", "end"]
        assert sum(part.ByteSize() + 5 for part in parts) <= 200
        for part in parts:
            self._note_clock(one, part)
            one.copy.take(part)
        self._check(one)

    # ---- checks

    def _note_clock(self, one: Standing, part: pb.SyncPart) -> None:
        """A refresh point is found out when a target is chosen, and then kept."""
        held = part.HasField("resume") and one.copy.staged is None
        begun = part.HasField("begin") and not part.begin.continued and not one.copy.resume
        gone = part.begin.reason == pb.SYNC_REASON_TARGET_GONE
        if held or begun or gone:
            one.clock = self.clock

    def _check(self, one: Standing) -> None:
        copy = one.copy
        assert copy.end is not None and copy.sound() and not copy.damaged()
        position = self.cores[0].store.positions.decode(copy.end.position)
        if one.query.refresh is not None:
            return self._check_refreshed(one, position)
        rows = one.table.known(position)
        self._same(one, rows, copy.now)
        if copy.now is None or not one.table.by_clock:
            return
        good = copy.end.good_until
        until = good.seconds * SECOND + good.nanos // 1000 if copy.end.HasField("good_until") else 0
        for later in (0, 1, 2 * SECOND, 7 * SECOND, 31 * SECOND, 70 * SECOND):
            now = copy.now + later
            if copy.slides and (not until or now < until):
                self._same(one, rows, now)
            elif not copy.slides and (not until or now < until):
                assert copy.answer(copy.now) == self._naive(one, rows, now)

    def _check_refreshed(self, one: Standing, position: Position) -> None:
        """At the position, as of some clock that this store had meanwhile."""
        schemas = {name: table.schema for name, table in self.tables.items()}
        events = [event for at, event in self.events if at <= position]
        asked = History(schemas, events, one.clock).ask(one.query)
        assert (one.copy.now, one.copy.answer(one.copy.now)) == (asked.now, asked.answer)

    def _same(self, one: Standing, rows: list[dict[str, Any]], now: int | None) -> None:
        assert one.copy.answer(now) == self._naive(one, rows, now), (one.query, now)

    def _naive(self, one: Standing, rows: list[dict[str, Any]], now: int | None) -> list[Any]:
        schema, keyed = one.table.schema, one.table.keyed
        return naive_answer(one.query, rows, 0 if now is None else now, schema.retain, keyed)

    # ---- means

    def _request(self, one: Standing) -> pb.SyncRequest:
        return pb.SyncRequest(items=[self._item(one)])

    def _item(self, one: Standing) -> pb.SyncItem:
        return pb.SyncItem(
            handle=one.handle,
            token=one.copy.resume or one.copy.token,
            window=one.window,
            base_rows=one.base_rows,
        )

    def _parts(self, core: Core, request: pb.SyncRequest, most: int | None) -> list[pb.SyncPart]:
        async def collect() -> list[pb.SyncPart]:
            found: list[pb.SyncPart] = []
            async for part in sync(core, request, None):
                if most is not None and len(found) >= most:
                    break
                found.append(pb.SyncPart.FromString(part.SerializeToString()))
            return found

        return self._run(collect())

    def _start(self) -> Core:
        path = self.folder / "store"
        store = Store.open(path, create=True, sync=False)
        core = Core(store, Settings(path, sync_bytes=200), lambda: self.clock)
        self._run(core.start())
        return core

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)


def _settings(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


TestRecharge = Recharge.TestCase
TestRecharge.settings = _settings(12, 30)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestForLong(Recharge.TestCase):  # type: ignore[misc, valid-type]
    """Thousands of runs."""

    settings = _settings(2000, 50)
