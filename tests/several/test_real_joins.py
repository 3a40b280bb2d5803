"""Joins of real rows: traffic with its sensors, trades with each other, parking with its lots;
DuckDB as judge."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pyarrow.compute as pc
import pytest

from client_sdk import Client, Copies
from datastem.instants import to_micros
from datastem.memory import Memory
from psoup.answers import AnswerMaker, Question, Replica, View
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.oracle.comparing import Values
from tests.support.real.joins import JOINS, RealJoin
from tests.support.real.judge import StreamsJudge
from tests.support.real.streams import RealStream
from tests.support.server.process import ipc
from tests.support.system.duck import close
from tests.support.system.processes import RunningStore

EARLY = to_micros(datetime.fromisoformat("2012-01-01T00:00Z"))
CLOCK = to_micros(datetime.fromisoformat("2026-01-01T00:00Z"))
MEMORY = 256 << 20


@dataclass(frozen=True)
class Filled:
    """A store that has the streams of a join; answers come from its folder, without a server."""

    join: RealJoin
    judge: StreamsJudge
    now: datetime
    maker: AnswerMaker
    view: View

    def answer(self, sql: str, as_of: datetime | None = None) -> list[Values]:
        """The answer now, or as of an instant with what is known today."""
        question = Question.of_text(sql, self.view.state)
        if as_of is not None:
            question = replace(question, as_of=to_micros(as_of), known_today=True)
        rows = self.maker.answer(self.view, question).table.to_pylist()
        return [tuple(row.values()) for row in rows]


@pytest.fixture(scope="module", params=JOINS)
def filled(
    request: pytest.FixtureRequest, shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Filled]:
    join: RealJoin = JOINS[request.param]
    streams = join.read(shared_data)
    folder = tmp_path_factory.mktemp(request.param) / "store"
    asyncio.run(_fill(folder, streams))
    store = Store.open(folder)
    view = View.at(Replica.open(store, Memory(MEMORY)), CLOCK)
    maker = AnswerMaker(store, MEMORY)
    yield Filled(join, StreamsJudge(streams), _last(streams[0]), maker, view)


async def _fill(folder: Path, streams: list[RealStream]) -> None:
    """Rows that go by arrival time come before the others, and long ago: AS OF shows them too."""
    clock = [EARLY]
    settings = Settings(folder, durability="none", memory=MEMORY)
    core = Core(Store.open(folder, create=True, sync=False), settings, lambda: clock[-1])
    await core.start()
    for stream in sorted(streams, key=lambda one: one.ts is not None):
        if stream.ts is not None:
            clock.append(CLOCK)
        statement = parse_statement(stream.definition)
        assert isinstance(statement, CreateStream)
        await core.appender.submit(Define("main", "main", statement.schema))
        await publish(core, pb.PublishRequest(stream=stream.name, arrow=ipc(stream.rows)))
    await core.stop()


def _last(stream: RealStream) -> datetime:
    found: datetime = pc.max(stream.rows[stream.ts]).as_py()
    return found


@pytest.mark.parametrize("number", range(5))
def test_real_joins_are_duckdb_s(filled: Filled, number: int) -> None:
    """Now and as of the middle of the data."""
    ours, theirs = list(filled.join.queries.items())[number]
    expected = filled.judge.answer(theirs, filled.now)
    assert expected, "nothing to compare"
    assert close(filled.answer(ours), expected), ours
    expected = filled.judge.answer(theirs, filled.join.middle)
    assert expected, "nothing to compare"
    assert close(filled.answer(ours, filled.join.middle), expected), ours


@pytest.mark.process
@pytest.mark.timeout(600)
def test_copies_of_real_joins_are_duckdb_s(shared_data: Path, tmp_path: Path) -> None:
    """Through a server: synced when half of the rows have come, and again at the end."""
    with RunningStore(tmp_path) as store:
        store.start_server("--wait", "300")
        for tenant, join in JOINS.items():
            with Client(store.targets[0], tenant=tenant) as client:
                _check_copy(client, join, join.read(shared_data))


def _check_copy(client: Client, join: RealJoin, streams: list[RealStream]) -> None:
    ours, theirs = next(iter(join.queries.items()))
    for stream in streams:
        client.define(stream.definition)
    handle = client.register(ours).handle
    copies, judge = Copies.in_memory(), StreamsJudge(streams)
    copies.keep("copy", handle=handle)
    halves = (
        [one.until(join.middle) for one in streams],
        [one.after(join.middle) for one in streams],
    )
    for half in halves:
        for stream in half:
            if stream.rows.num_rows:
                client.publish(stream.name, stream.rows)
        expected = judge.answer(theirs, _last(half[0]))
        assert copies.sync(client).complete
        held = [tuple(row.values()) for row in copies["copy"].rows()]
        invoked = [tuple(row.values()) for row in client.invoke(handle).rows]
        assert expected and close(held, expected) and close(invoked, expected), ours
