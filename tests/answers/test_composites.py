"""Answers with stored combinations are those without, whatever box of them the engine has."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from datastem.instants import MINUTE
from datastem.memory import Memory
from psoup.access.principal import ANYONE, ClaimValue, Principal
from psoup.answers import AnswerMaker, Question, Replica, View
from psoup.answers.joins.composite_choice import describe_composite
from psoup.answers.matching.matcher import Uncovered
from psoup.answers.planning.plan import Plan
from psoup.answers.planning.question import RegisteredQuery, read_texts, texts_of
from psoup.server.calls.define import define as define_statement
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from results.window import Bound, TimeWindow, Window
from tests.answers.test_without_server import NOW, running
from tests.damage import flip, named_files, tear_commit
from tests.support.lengths import short_first
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

# Legs are created in the order of their ids.
pytestmark = pytest.mark.usefixtures("counted_ids")

STREAMS = (
    "CREATE STREAM bids (item BIGINT, price DOUBLE, at TIMESTAMP) ORDERED BY at RETAIN 1 DAY",
    "CREATE STREAM asks (item DECIMAL(6,1), price DOUBLE, at TIMESTAMP) ORDERED BY at",
    "CREATE STREAM items (item BIGINT, name TEXT, at TIMESTAMP) KEY (item) ORDERED BY at",
)
QUERIES = (
    "SELECT b.price, a.price AS ask FROM bids b JOIN asks a ON a.item = b.item",
    "SELECT b.price, a.price AS ask FROM bids b, asks a WHERE a.item = b.item AND b.price > a.price"
    " RANGE 10 MINUTES",
    "SELECT b.price, a.ts FROM bids b WINDOW(RANGE 5 MINUTES), asks a WINDOW(RANGE 30 MINUTES)"
    " WHERE a.item = b.item AND a.price < 4",
    "SELECT i.name, b.price FROM items i JOIN bids b ON b.item = i.item RANGE 20 MINUTES",
    "SELECT i.name, count(*) AS n, max(b.price) AS top FROM bids b JOIN items i ON b.item = i.item"
    " WHERE b.price > 1 GROUP BY i.name",
    "SELECT b.price, a.price AS ask, i.name FROM bids b, asks a, items i"
    " WHERE a.item = b.item AND i.item = b.item AND a.price <> b.price",
    "SELECT x.price, y.price AS other FROM bids x JOIN bids y ON x.item = y.item"
    " WHERE x.row_id < y.row_id ROWS 6",
    "SELECT b.price FROM bids b JOIN asks a ON a.item = b.item WHERE b.price >"
    " (SELECT avg(price) FROM asks)",
    "SELECT b.price, a.price AS ask FROM bids b, asks a WHERE b.price < 5 AND b.price > a.price"
    " AND a.price > 1 RANGE 10 MINUTES",
    "SELECT b.price, a.ts FROM bids b, asks a WHERE a.at >= b.at AND a.at < b.at +"
    " INTERVAL '3' MINUTE RANGE 20 MINUTES",
    "SELECT b.price, i.name FROM bids b, items i WHERE b.item = i.item OR b.price <= i.item"
    " RANGE 20 MINUTES",
    "SELECT i.name, count(*) AS n FROM bids b, asks a, items i WHERE a.item = b.item"
    " AND i.item BETWEEN a.price AND b.price GROUP BY i.name RANGE 15 MINUTES",
    "SELECT b.price, a.price AS ask FROM bids b, asks a WHERE a.item IN (b.item, b.price)",
    "SELECT b.price, i.name FROM bids b JOIN items i ON b.item = i.item"
    " WHERE b.at < NOW - INTERVAL '5' MINUTE OR i.at > NOW - INTERVAL '2' MINUTE",
    "SELECT i.name, count(*) AS n FROM bids b, items i WHERE b.item = i.item"
    " AND NOW - b.at < INTERVAL '10' MINUTE GROUP BY i.name RANGE 20 MINUTES",
    "SELECT CASE WHEN b.at < NOW - INTERVAL '4' MINUTE THEN 'old' ELSE 'new' END AS age,"
    " count(*) AS n FROM bids b JOIN asks a ON a.item = b.item"
    " GROUP BY CASE WHEN b.at < NOW - INTERVAL '4' MINUTE THEN 'old' ELSE 'new' END",
)


POLICIES = (
    "CREATE POLICY high ON bids USING (price >= claim('least'))",
    "CREATE POLICY named ON items USING (name = claim('name') OR item = 0)",
)


async def define(core: Core) -> None:
    for sql in STREAMS:
        statement = parse_statement(sql)
        assert isinstance(statement, CreateStream)
        await core.appender.submit(Define("main", "main", statement.schema))


async def fill(core: Core, chance: random.Random, number: int) -> None:
    """Some rows of each stream, a few of them late."""
    for stream in ("bids", "asks", "items"):
        count = chance.randrange(0, 9)
        if not count:
            continue
        at = [NOW + (5 * number - chance.randrange(12)) * MINUTE for _ in range(count)]
        columns: dict[str, object] = {
            "item": [chance.randrange(4) for _ in range(count)],
            "at": pa.array(at, pa.timestamp("us", tz="UTC")),
        }
        if stream == "items":
            columns["name"] = [chance.choice("pqr") for _ in range(count)]
        else:
            columns["price"] = [float(chance.randrange(6)) for _ in range(count)]
        if stream == "asks":
            columns["item"] = [Decimal(chance.randrange(8)) / 2 for _ in range(count)]
            columns["item"] = pa.array(columns["item"], pa.decimal128(6, 1))
        await publish(
            core, new_call(), pb.PublishRequest(stream=stream, arrow=ipc(pa.table(columns)))
        )


def grow(engine: HandMadeEngine, chance: random.Random) -> None:
    """Stores more combinations of some composites: larger boxes, more predicates admitted."""
    state = engine.state
    for composite in list(state.composites.values()):
        mark = engine.composites.get(composite.id)
        tops = [state.streams[stream_id].high for stream_id in composite.legs]
        if chance.random() < 0.3 or 0 in tops:
            continue
        old = mark.highs if mark else (0,) * len(tops)
        highs = [chance.randint(*bounds) for bounds in zip(old, tops, strict=True)]
        since = chance.randint(0, highs[0] if mark is None or mark.since is None else mark.since)
        local = [_local_predicates(engine, composite.id, leg) for leg in range(len(tops))]
        before = mark.admitted if mark else ((),) * len(tops)
        admitted = [
            {*admitted_before, *(predicate for predicate in ids if chance.random() < 0.8)}
            for admitted_before, ids in zip(before, local, strict=True)
        ]
        engine.compose(composite.id, since, highs, admitted, chance)


def _local_predicates(engine: HandMadeEngine, composite_id: int, leg: int) -> set[int]:
    """The predicates that registrations of a composite have over one of its legs."""
    state = engine.state
    stream_id = state.composites[composite_id].legs[leg]
    return {
        registered_leg.predicate_id
        for registration in state.registrations.values()
        if registration.composite and registration.composite.composite_id == composite_id
        for registered_leg in registration.legs
        if registered_leg.stream_id == stream_id
    }


def answers(
    store: Store, handle: bytes, window: Window | None, reader: Principal = ANYONE
) -> tuple[Plan, pa.Table, pa.Table]:
    """The plan of a registration's answer; the answer with stored combinations, and without. Where
    policies bind the reader, others have asked before, and what they were told is remembered."""
    replica, maker = Replica.open(store, Memory(1 << 20)), AnswerMaker(store)
    source = RegisteredQuery("main", handle)
    query = read_texts(maker.memo, texts_of(replica.state, source, "", False))
    query = query if window is None else query.with_window(window)
    view = View.at(replica, NOW)
    if reader is not ANYONE:
        maker.answer(view, Question(source, query, ANYONE))
    plan = maker.plan(view, Question(source, query, reader))
    alone = maker.evaluate(replace(plan, composite=None, composing=False), maker.work())
    return plan, maker.evaluate(plan, maker.work()).table, alone.table


@pytest.mark.parametrize("seed", short_first(range(6)))
async def test_any_box_of_stored_combinations_gives_the_same_answer(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    used = 0
    async with running(tmp_path / "store") as core:
        engine = HandMadeEngine(core.store)
        await define(core)
        handles = [
            (await register(core, new_call(), pb.RegisterRequest(sql=sql)))[0].handles[0]
            for sql in QUERIES
        ]
        for number in range(5):
            await fill(core, chance, number)
            if chance.random() < 0.8:
                engine.step()
                grow(engine, chance)
                engine.step()
            for handle, sql in zip(handles, QUERIES, strict=True):
                window = TimeWindow(Bound(-7 * MINUTE, True)) if chance.random() < 0.2 else None
                plan, answer, expected = answers(core.store, handle, window)
                assert answer.to_pylist() == expected.to_pylist(), sql
                used += plan.composite is not None
    assert used > 5, "stored combinations were used"


@pytest.mark.parametrize("seed", short_first(range(2)))
async def test_of_stored_combinations_those_are_shown_all_of_whose_rows_are(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    used = hidden = 0
    async with running(tmp_path / "store") as core:
        engine = HandMadeEngine(core.store)
        await define(core)
        for sql in POLICIES:
            await define_statement(core, new_call(), pb.DefineRequest(sql=sql))
        handles = [
            (await register(core, new_call(), pb.RegisterRequest(sql=sql)))[0].handles[0]
            for sql in QUERIES
        ]
        for number in range(4):
            await fill(core, chance, number)
            engine.step()
            grow(engine, chance)
            engine.step()
            claims: dict[str, ClaimValue] = {
                "least": chance.randrange(5),
                "name": chance.choice("pqr"),
            }
            reader = Principal("main", "main", claims=claims)
            for handle, sql in zip(handles, QUERIES, strict=True):
                plan, answer, expected = answers(core.store, handle, None, reader)
                assert answer.to_pylist() == expected.to_pylist(), sql
                used += plan.composite is not None
                hidden += plan.bound and answer.num_rows == 0
    assert used > 5 and hidden, "stored combinations were used, and some were hidden"


async def test_who_waits_for_the_engine_waits_for_combinations(tmp_path: Path) -> None:
    chance = random.Random(1)
    async with running(tmp_path / "store") as core:
        engine = HandMadeEngine(core.store)
        await define(core)
        registered, _, _ = await register(core, new_call(), pb.RegisterRequest(sql=QUERIES[0]))
        await fill(core, chance, 0)
        engine.step()
        replica, maker = Replica.open(core.store, Memory(1 << 20)), AnswerMaker(core.store)
        source = RegisteredQuery("main", registered.handles[0])
        query = read_texts(maker.memo, texts_of(replica.state, source, "", False))
        plan = maker.plan(View.at(replica, NOW), Question(source, query, ANYONE))
        assert plan.composite is None and plan.composing
        with pytest.raises(Uncovered):
            maker.evaluate(plan, maker.work(wait_for_engine=True))


async def test_how_many_queries_share_a_join_is_not_for_everybody(tmp_path: Path) -> None:
    chance = random.Random(1)
    async with running(tmp_path / "store") as core:
        engine = HandMadeEngine(core.store)
        await define(core)
        for _ in range(2):
            registered, _, _ = await register(core, new_call(), pb.RegisterRequest(sql=QUERIES[0]))
        for number in range(3):
            await fill(core, chance, number)
        engine.step()
        (composite,) = engine.state.composites.values()
        highs = [engine.state.streams[stream_id].high for stream_id in composite.legs]
        local = [_local_predicates(engine, composite.id, leg) for leg in range(len(highs))]
        engine.compose(composite.id, 0, highs, local, chance)
        engine.step()
        replica, maker = Replica.open(core.store, Memory(1 << 20)), AnswerMaker(core.store)
        source = RegisteredQuery("main", registered.handles[0])
        query = read_texts(maker.memo, texts_of(replica.state, source, "", False))
        view = View.at(replica, NOW)
        plan = maker.plan(view, Question(source, query, ANYONE))
        assert plan.composite is not None
        assert " of 2 queries: " in describe_composite(plan, view, count_queries=True)
        assert "quer" not in describe_composite(plan, view, count_queries=False)


def _flip_file(store: Store, composite_id: int) -> None:
    flip(named_files(store, f"stems/{composite_id}")[0])


def _remove_file(store: Store, composite_id: int) -> None:
    named_files(store, f"stems/{composite_id}")[0].unlink()


def _tear_commit(store: Store, composite_id: int) -> None:
    tear_commit(store, f"stems/{composite_id}")


def _remove_table(store: Store, composite_id: int) -> None:
    shutil.rmtree(store.stem(composite_id).root)


@pytest.mark.parametrize("damage", [_flip_file, _remove_file, _tear_commit, _remove_table])
@pytest.mark.parametrize("sql", [QUERIES[0], QUERIES[4]])
async def test_damaged_combinations_are_joined_at_invoke(
    damage: Callable[[Store, int], None], sql: str, tmp_path: Path
) -> None:
    chance = random.Random(1)
    async with running(tmp_path / "store") as core:
        engine = HandMadeEngine(core.store)
        await define(core)
        registered, _, _ = await register(core, new_call(), pb.RegisterRequest(sql=sql))
        for number in range(3):
            await fill(core, chance, number)
        engine.step()
        (composite,) = engine.state.composites.values()
        highs = [engine.state.streams[stream_id].high for stream_id in composite.legs]
        local = [_local_predicates(engine, composite.id, leg) for leg in range(len(highs))]
        engine.compose(composite.id, 0, highs, local, chance)
        engine.step()
        sound, expected, _ = answers(core.store, registered.handles[0], None)
        assert sound.composite is not None and expected.num_rows
        damage(core.store, composite.id)
        _, answer, _ = answers(core.store, registered.handles[0], None)
        assert answer.to_pylist() == expected.to_pylist()
        # What was read before the damage was done is left out from its first failure on.
        replica, maker = Replica.open(core.store, Memory(1 << 20)), AnswerMaker(core.store)
        source = RegisteredQuery("main", registered.handles[0])
        question = Question(
            source, read_texts(maker.memo, texts_of(replica.state, source, "", False)), ANYONE
        )
        maker.answer(View.at(replica, NOW), question)
        plan = maker.plan(View.at(replica, NOW), question)
        assert plan.composite is None and plan.composing
