"""A state machine over the whole path without Spark: register, publish, go away, invoke.

Two servers share a store; epochs come whenever they like, and servers restart. Whatever happened
before, an answer equals the naive evaluation over the rows accepted so far.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule

from datastem.instants import SECOND, from_micros
from psoup.server.calls.invoke import ask, invoke
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.server.wire.arrow import Message
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.registrations import UnregisterOne
from psoup.write.streams import Define
from querystem.language import CreateStream, bind_query, bind_window, parse_statement
from querystem.query import Query
from tests.oracle.answers import naive_answer
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc, received
from tests.support.server.sync_world import look_at_any, machine_settings

START = 1_700_000_000 * SECOND
SQL = "CREATE STREAM s (a BIGINT, b TEXT, at TIMESTAMP) ORDERED BY at RETAIN 60 SECONDS"
CONDITIONS = (
    "a > 3",
    "a > 5",
    "a = 7 AND b = 'x'",
    "a % 3 = 1 OR b = 'x'",
    "b IS NULL",
    "NOT (a <= 5 AND b LIKE 'y%')",
    "TRUE",
)
SELECTS = (
    "SELECT a, b, row_id FROM s WHERE {}",
    "SELECT count(*) AS n, sum(a) AS total, max(b) AS most, last(a) AS newest FROM s WHERE {}",
    "SELECT b, count(a) AS n, min(a) AS least FROM s WHERE {} GROUP BY b ORDER BY b NULLS FIRST",
    "SELECT row_id, a FROM s WHERE {} ORDER BY a DESC NULLS LAST, row_id LIMIT 3 OFFSET 1",
    "SELECT DISTINCT b FROM s WHERE {}",
)
WINDOWS = (
    "RANGE 5 SECONDS",
    "BEGIN NOW - 30 SECONDS END NOW - 3 SECONDS",
    f"BEGIN '{from_micros(START):%Y-%m-%d %H:%M:%S}' END NOW",
    "UNBOUNDED",
    "ROWS 7",
    "ROWS 2 PARTITION BY b",
    "BEGIN ROW LAST - 9 END ROW LAST",
)

T = TypeVar("T")

row = st.tuples(
    st.integers(0, 9) | st.none(), st.sampled_from(("x", "y", "yy", None)), st.integers(0, 20)
)


@dataclass(frozen=True)
class Standing:
    handle: bytes
    query: Query
    key: str


class Soup(RuleBasedStateMachine):
    standing = Bundle("standing")

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="psoup-machine-"))
        self.cores = [self._start(), self._start()]
        self.engine = HandMadeEngine(self.cores[0].store)
        statement = parse_statement(SQL)
        assert isinstance(statement, CreateStream)
        self.schema = statement.schema
        self._run(self.cores[0].appender.submit(Define("main", "main", self.schema)))
        self.rows: list[dict[str, Any]] = []
        self.clock = 0
        self.keys = 0
        look_at_any(True)

    def teardown(self) -> None:
        look_at_any(False)
        if hasattr(self, "loop"):
            for core in self.cores:
                self._run(core.stop())
            self.loop.close()
            shutil.rmtree(self.folder)

    @rule(server=st.integers(0, 1), batch=st.lists(row, min_size=1, max_size=8))
    def publish(self, server: int, batch: list[tuple[int | None, str | None, int]]) -> None:
        """Time goes on by a second a batch; a row may be late by up to twenty."""
        self.clock += SECOND
        ts = [START + self.clock - late * SECOND for *_, late in batch]
        columns = {
            "a": pa.array([a for a, *_ in batch], pa.int64()),
            "b": pa.array([b for _, b, _ in batch], pa.string()),
            "at": pa.array(ts, pa.int64()).view("timestamp[us]"),
        }
        request = pb.PublishRequest(stream="s", arrow=ipc(pa.table(columns)))
        self._run(publish(self.cores[server], new_call(), request))
        for (a, b, _), at in zip(batch, ts, strict=True):
            accepted = {"a": a, "b": b, "at": from_micros(at), "ts": at, "row_id": len(self.rows)}
            self.rows.append(accepted)

    @rule(
        target=standing,
        server=st.integers(0, 1),
        select=st.sampled_from(SELECTS),
        where=st.sampled_from(CONDITIONS),
        window=st.sampled_from(WINDOWS),
    )
    def register(self, server: int, select: str, where: str, window: str) -> Standing:
        text = f"{select.format(where)} {window}"
        self.keys += 1
        return self._registered(server, text, f"k{self.keys}", replace=False)

    @rule(
        target=standing,
        server=st.integers(0, 1),
        before=consumes(standing),
        select=st.sampled_from(SELECTS),
        where=st.sampled_from(CONDITIONS),
        window=st.sampled_from(WINDOWS),
    )
    def replace(
        self, server: int, before: Standing, select: str, where: str, window: str
    ) -> Standing:
        text = f"{select.format(where)} {window}"
        after = self._registered(server, text, before.key, replace=True)
        assert after.handle == before.handle
        return after

    def _registered(self, server: int, text: str, key: str, replace: bool) -> Standing:
        request = pb.RegisterRequest(sql=text, client_key=key, replace=replace)
        registered, *_ = self._run(register(self.cores[server], new_call(), request))
        query = bind_query(text, lambda _: self.schema)
        return Standing(registered.handles[0], query, key)

    @rule(server=st.integers(0, 1), subject=consumes(standing))
    def unregister(self, server: int, subject: Standing) -> None:
        self._run(self.cores[server].appender.submit(UnregisterOne("main", subject.handle)))

    @rule()
    def step(self) -> None:
        self.engine.step()

    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        """What was matched over the older rows is dropped, and computed where somebody asks."""
        for stream_id in list(self.engine.state.streams):
            self.engine.cut(stream_id, int(share * len(self.rows)))

    @rule(server=st.integers(0, 1))
    def restart(self, server: int) -> None:
        self._run(self.cores[server].stop())
        self.cores[server] = self._start()

    @rule(server=st.integers(0, 1), subject=standing, window=st.sampled_from(WINDOWS) | st.just(""))
    def invoke(self, server: int, subject: Standing, window: str) -> None:
        core = self.cores[server]
        self._run(core.follower.catch_up())
        request = pb.InvokeRequest(handle=subject.handle, window=window, encoding=pb.ENCODING_ARROW)
        assert self._run(_answer(invoke(core, new_call(), request))) == self._naive(
            subject.query, window
        )

    @rule(
        server=st.integers(0, 1),
        select=st.sampled_from(SELECTS),
        where=st.sampled_from(CONDITIONS),
        window=st.sampled_from(WINDOWS),
    )
    def ask(self, server: int, select: str, where: str, window: str) -> None:
        """Registered by someone or not, and whatever was computed for it before."""
        text = f"{select.format(where)} {window}"
        request = pb.AskRequest(sql=text, encoding=pb.ENCODING_ARROW)
        query = bind_query(text, lambda _: self.schema)
        answered = self._run(_answer(ask(self.cores[server], new_call(), request)))
        assert answered == self._naive(query, "")

    def _naive(self, query: Query, window: str) -> list[tuple[Any, ...]]:
        if window:
            query = query.with_window(bind_window(window, self.schema))
        now = max((row["ts"] for row in self.rows), default=0)
        return naive_answer(query, self.rows, now, self.schema.retain)

    def _start(self) -> Core:
        path = self.folder / "store"
        core = Core(Store.open(path, create=True, sync=False), Settings(path))
        self._run(core.start())
        return core

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)


async def _answer(messages: AsyncIterator[Message]) -> list[tuple[Any, ...]]:
    _, *parts = await received(messages)
    table = pa.ipc.open_stream(b"".join(part.arrow for part in parts)).read_all()
    return [tuple(row.values()) for row in table.to_pylist()]


TestSoup = Soup.TestCase
TestSoup.settings = machine_settings(7, 25)
