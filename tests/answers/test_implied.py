"""A new query begins where an old one has been: only the old one's matches are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from datastem.memory import Memory
from psoup.answers import AnswerMaker, Question, Replica, View
from psoup.answers.matching import implied, matcher
from psoup.server.calls.explain import explain
from psoup.server.calls.invoke import ask, invoke
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.registrations import UnregisterOne
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.server.test_machine import _answer
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc, received

ROWS = 20_000
SQL = "CREATE STREAM room (temp DOUBLE, name TEXT, n BIGINT)"


@pytest.fixture(autouse=True)
def however_light(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has files be read for any predicate, but where a test is about that; and has time enough be
    there, however busy the machine is."""
    monkeypatch.setattr(implied, "_SEARCH_SECONDS", 60.0)
    if "cached" not in request.fixturenames:
        monkeypatch.setattr(matcher, "_MIN_READ_WEIGHT", 0)


@pytest.fixture
def temps() -> Iterator[np.ndarray]:
    yield np.random.default_rng(7).normal(60, 10, ROWS)


class Rooms:
    """A store whose engine has matched some queries, and has never seen others."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.engine = HandMadeEngine(core.store)

    @classmethod
    async def open(cls, folder: Path, sql: str = SQL) -> Rooms:
        path = folder / "store"
        core = Core(Store.open(path, create=True, sync=False), Settings(path))
        await core.start()
        statement = parse_statement(sql)
        assert isinstance(statement, CreateStream)
        await core.appender.submit(Define("main", "main", statement.schema))
        return cls(core)

    async def register(self, where: str, tail: str = "") -> bytes:
        sql = f"SELECT temp, n FROM room WHERE {where} {tail}"
        registered, *_ = await register(self.core, new_call(), pb.RegisterRequest(sql=sql))
        return registered.handles[0]

    async def publish(self, temps: np.ndarray, first: int = 0) -> None:
        names = [f"room {n % 50}" for n in range(len(temps))]
        numbers = range(first, first + len(temps))
        masked = pa.array(temps, mask=np.arange(len(temps)) % 17 == 0)
        table = pa.table({"temp": masked, "name": names, "n": numbers})
        await publish(self.core, new_call(), pb.PublishRequest(stream="room", arrow=ipc(table)))

    async def cache_matches(self, handle: bytes) -> None:
        """Somebody asks for the answer: its matches are at hand from then on."""
        await self.invoked(handle)

    async def step(self) -> None:
        number = self.engine.step().number
        while self.core.follower.epoch.number < number:
            await self.core.follower.moved(1)

    async def invoked(self, handle: bytes) -> tuple[list[int], int]:
        """The numbers of the rows, and how many were computed."""
        request = pb.InvokeRequest(handle=handle, encoding=pb.ENCODING_ARROW)
        header, *_ = await received(invoke(self.core, new_call(), request))
        rows = await _answer(invoke(self.core, new_call(), request))
        return [row[1] for row in rows], header.header.computed_rows


def above(temps: np.ndarray, least: float) -> list[int]:
    stored = np.arange(len(temps)) % 17 != 0
    return np.flatnonzero(stored & (temps > least)).tolist()


@pytest.mark.parametrize(
    ("where", "cached"), [("temp > 82 AND name LIKE 'room%'", False), ("temp > 82", True)]
)
async def test_only_the_matches_of_the_one_implied_are_looked_at(
    tmp_path: Path, temps: np.ndarray, where: str, cached: bool
) -> None:
    rooms = await Rooms.open(tmp_path)
    first = await rooms.register("temp > 80")
    await rooms.register("temp > 75")
    await rooms.publish(temps)
    await rooms.step()
    if cached:
        await rooms.cache_matches(first)
    handle = await rooms.register(where)
    row_ids, computed = await rooms.invoked(handle)
    assert row_ids == above(temps, 82) and computed == len(above(temps, 80))
    explained = await explain(rooms.core, new_call(), pb.ExplainRequest(handle=handle))
    found_by = explained.legs[0].implied_by
    assert found_by.condition == "temp > 80.0"
    assert (found_by.looked_at_rows, found_by.rows) == (computed, ROWS)
    await rooms.core.stop()


async def test_rows_that_the_engine_has_not_matched_it_over_are_all_looked_at(
    tmp_path: Path, temps: np.ndarray
) -> None:
    """Before its coverage, and after the epoch."""
    rooms = await Rooms.open(tmp_path)
    await rooms.publish(temps)
    await rooms.step()
    await rooms.register("temp > 80")
    await rooms.step()
    await rooms.publish(temps, ROWS)
    await rooms.step()
    await rooms.publish(temps, 2 * ROWS)
    handle = await rooms.register("temp > 82")
    row_ids, computed = await rooms.invoked(handle)
    once = above(temps, 82)
    assert row_ids == [n + shift for shift in (0, ROWS, 2 * ROWS) for n in once]
    assert computed == 2 * ROWS + len(above(temps, 80))
    await rooms.core.stop()


async def test_a_query_that_was_never_registered_gains_too(
    tmp_path: Path, temps: np.ndarray
) -> None:
    rooms = await Rooms.open(tmp_path)
    await rooms.register("temp > 80")
    await rooms.publish(temps)
    await rooms.step()
    request = pb.AskRequest(sql="SELECT n FROM room WHERE temp BETWEEN 81 AND 85")
    header, *_ = await received(ask(rooms.core, new_call(), request))
    assert header.header.computed_rows == len(above(temps, 80))
    await rooms.core.stop()


async def test_the_one_that_is_gone_is_not_used(tmp_path: Path, temps: np.ndarray) -> None:
    """Its matches may be dropped at any time, though what is matched is still said of its id."""
    rooms = await Rooms.open(tmp_path)
    unregistered = await rooms.register("temp > 80")
    await rooms.publish(temps)
    await rooms.step()
    handle = await rooms.register("temp > 82")
    await rooms.core.appender.submit(UnregisterOne("main", unregistered))
    row_ids, computed = await rooms.invoked(handle)
    assert row_ids == above(temps, 82) and computed == ROWS
    await rooms.core.stop()


async def test_no_file_is_read_for_a_light_condition(
    tmp_path: Path, temps: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is computed over all rows in less time."""
    monkeypatch.undo()
    rooms = await Rooms.open(tmp_path)
    await rooms.register("temp > 80")
    await rooms.publish(temps)
    await rooms.step()
    row_ids, computed = await rooms.invoked(await rooms.register("temp > 82"))
    assert row_ids == above(temps, 82) and computed == ROWS
    await rooms.core.stop()


async def test_one_that_matches_most_rows_is_not_worth_it(
    tmp_path: Path, temps: np.ndarray
) -> None:
    rooms = await Rooms.open(tmp_path)
    await rooms.register("temp > 40")
    await rooms.publish(temps)
    await rooms.step()
    row_ids, computed = await rooms.invoked(await rooms.register("temp > 82"))
    assert row_ids == above(temps, 82) and computed == ROWS
    await rooms.core.stop()


async def test_example_11_equals_itself_computed_alone(tmp_path: Path, temps: np.ndarray) -> None:
    """SyncSQL 7, example 11: `temp > 100 REFRESH EVERY 4` is found among the matches of `temp > 80
    REFRESH EVERY 2`, whose points change nothing; the other way round nothing is taken."""
    answers = []
    for registered in ("temp > 80", "name = 'nobody'"):
        folder = tmp_path / registered[:4]
        timed = SQL.replace(")", ", at TIMESTAMP) ORDERED BY at")
        rooms = await Rooms.open(folder, timed)
        await rooms.register(registered, "REFRESH EVERY 2 SECONDS")
        instants = pa.array(np.arange(ROWS) * 1000 + 10**15).view(pa.timestamp("us"))
        hot = pa.table({"temp": temps + 10, "n": range(ROWS), "at": instants, "name": ["x"] * ROWS})
        await publish(rooms.core, new_call(), pb.PublishRequest(stream="room", arrow=ipc(hot)))
        await rooms.step()
        handle = await rooms.register("temp > 100", "REFRESH EVERY 4 SECONDS")
        row_ids, computed = await rooms.invoked(handle)
        wider_ids, both = await rooms.invoked(await rooms.register("temp > 70"))
        assert len(wider_ids) > len(row_ids) > 0 and both == ROWS
        answers.append((row_ids, computed))
        await rooms.core.stop()
    (row_ids, looked_at), (alone, all_rows) = answers
    assert row_ids == alone and looked_at < all_rows / 4


async def test_little_may_be_computed_at_a_time(
    tmp_path: Path, temps: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matcher, "_STEP_WEIGHT", 1)
    monkeypatch.setattr(matcher, "_MIN_STEP_ROWS", 7)
    rooms = await Rooms.open(tmp_path)
    await rooms.register("temp > 80")
    await rooms.publish(temps)
    await rooms.step()
    row_ids, computed = await rooms.invoked(await rooms.register("temp > 82"))
    assert row_ids == above(temps, 82) and computed == len(above(temps, 80))
    await rooms.core.stop()


async def test_without_a_server(tmp_path: Path, temps: np.ndarray) -> None:
    rooms = await Rooms.open(tmp_path)
    await rooms.register("temp > 80")
    await rooms.publish(temps)
    await rooms.step()
    store = rooms.core.store
    replica, maker = Replica.open(store, Memory(1 << 28)), AnswerMaker(store)
    view = View.at(replica, 10**15)
    question = Question.of_text("SELECT n FROM room WHERE temp > 82 AND n >= 0", replica.state)
    answer = maker.answer(view, question)
    assert answer.row_count == len(above(temps, 82))
    assert answer.computed_rows == len(above(temps, 80))
    await rooms.core.stop()
