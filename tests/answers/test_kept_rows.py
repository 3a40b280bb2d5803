"""Combinations that are kept from answer to answer: each answer is that of a join of the legs,
whatever has happened since they were kept, and also if it is of an earlier view."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from datastem.instants import DAY, HOUR, MINUTE
from datastem.memory import Memory
from datastem.stem import DataStem
from psoup.access.principal import ANYONE
from psoup.answers import AnswerMaker, Question, Replica, View
from psoup.answers.joins.kept_rows import KeptRows
from psoup.answers.planning.plan import Plan
from psoup.answers.planning.question import RegisteredQuery, read_texts, texts_of
from psoup.answers.replicas.epoch_files import open_epoch_view
from psoup.answers.replicas.replica import read_commit
from psoup.answers.replicas.stem_files import StemFiles
from psoup.server.calls.publish import publish
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.store import DeltaFolder, Store
from psoup.v1 import psoup_pb2 as pb
from results.window import Bound, TimeWindow, Window
from tests.answers.test_composites import QUERIES, _local_predicates, define, fill, grow
from tests.answers.test_without_server import NOW, running
from tests.support.lengths import short_first
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

# Legs are created in the order of their ids.
pytestmark = pytest.mark.usefixtures("counted_ids")

WINDOWS: tuple[Window | None, ...] = (
    None,
    None,
    TimeWindow(Bound(-7 * MINUTE, True)),
    TimeWindow(Bound(-1, True)),
    TimeWindow(Bound(-3 * HOUR, True)),
)


class Following:
    """A replica that follows a store, with the same stems all the time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.replica = Replica.open(store, Memory(1 << 20))

    def follow(self) -> None:
        store, replica = self._store, self.replica
        while replica.version < store.log.latest_version(replica.version):
            version = replica.version + 1
            replica.apply(version, *read_commit(store, version, replica.state))
        view = open_epoch_view(store, *store.epochs.latest())
        replica.show(view, replica.reader(view)())


def plan_of(following: Following, maker: AnswerMaker, handle: bytes, window: Window | None) -> Plan:
    source, view = RegisteredQuery("main", handle), View.at(following.replica, NOW)
    query = read_texts(maker.memo, texts_of(view.state, source, "", False))
    query = query if window is None else query.with_window(window)
    return maker.plan(view, Question(source, query, ANYONE))


def answer(maker: AnswerMaker, plan: Plan) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = maker.evaluate(plan, maker.work()).table.to_pylist()
    return rows


def joined(maker: AnswerMaker, plan: Plan) -> list[dict[str, object]]:
    return answer(maker, replace(plan, composite=None, composing=False))


def kept_of(maker: AnswerMaker) -> list[KeptRows]:
    return [value for value in maker.memo.values() if isinstance(value, KeptRows)]


async def publish_rows(core: Core, stream: str, **columns: object) -> None:
    columns["at"] = pa.array(columns["at"], pa.timestamp("us", tz="UTC"))
    request = pb.PublishRequest(stream=stream, arrow=ipc(pa.table(columns)))
    await publish(core, new_call(), request)


async def change(core: Core, engine: HandMadeEngine, chance: random.Random, number: int) -> None:
    """Something that happens to a store, and an epoch."""
    await fill(core, chance, number)
    if chance.random() < 0.4:
        ops = {"item": [chance.randrange(4)], "name": ["p"], "_op": ["delete"]}
        await publish_rows(core, "items", **ops, at=[NOW + 5 * number * MINUTE])
    engine.step()
    bids = next(s for s in engine.state.streams.values() if s.schema.name == "bids")
    if bids.reached is not None and chance.random() < 0.5:
        # What bids no longer retain.
        engine.retain(bids.id, bids.reached - DAY)
        for composite in engine.state.composites.values():
            if composite.id in engine.composites and bids.id in composite.legs:
                engine.forget_combinations(composite.id, bids.reached - DAY)
    for composite_id in engine.composites:
        if chance.random() < 0.1:
            engine.forget_combinations(composite_id)
    grow(engine, chance)
    engine.step()


@pytest.mark.parametrize("seed", short_first(range(8)))
async def test_oracle_answers_with_kept_combinations_are_those_of_a_join(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    used = 0
    async with running(tmp_path / "store") as core:
        engine, memory = HandMadeEngine(core.store), chance.choice((1 << 18, 64 << 20))
        maker = AnswerMaker(core.store, memory)
        await define(core)
        handles = [
            (await register(core, new_call(), pb.RegisterRequest(sql=sql)))[0].handles[0]
            for sql in QUERIES
        ]
        following = Following(core.store)
        earlier: list[tuple[Plan, list[dict[str, object]]]] = []
        # Five minutes each, before NOW.
        number = -1_600
        for _ in range(8):
            number += chance.choice((1, 1, 1, 40, 200))
            await change(core, engine, chance, number)
            following.follow()
            for handle, sql in zip(handles, QUERIES, strict=True):
                for window in chance.sample(WINDOWS, 2):
                    plan = plan_of(following, maker, handle, window)
                    expected = joined(maker, plan)
                    assert answer(maker, plan) == expected, sql
                    used += plan.composite is not None
                    earlier.append((plan, expected))
            # Views that answers still use.
            for plan, expected in chance.sample(earlier, min(20, len(earlier))):
                assert answer(maker, plan) == expected
        assert maker.memo.used <= maker.memo.limit
    assert used > 20, "stored combinations were used"


class JoinedStore:
    """A store with two streams whose combinations are stored, and one query that joins them."""

    def __init__(self, core: Core, handle: bytes) -> None:
        self._core, self._handle = core, handle
        self.engine, self.maker = HandMadeEngine(core.store), AnswerMaker(core.store)
        self._following = Following(core.store)

    @staticmethod
    @asynccontextmanager
    async def open(path: Path) -> AsyncIterator[JoinedStore]:
        async with running(path) as core:
            await define(core)
            request = pb.RegisterRequest(sql=QUERIES[0])
            registered, _, _ = await register(core, new_call(), request)
            yield JoinedStore(core, registered.handles[0])

    async def publish(self, stream: str, items: list[int], at: list[int]) -> None:
        await publish_rows(self._core, stream, **_prices(stream, items, at))

    async def publish_pairs(self) -> None:
        """Publish two rows of each stream, of which two combinations are in the answer."""
        for stream in ("bids", "asks"):
            await self.publish(stream, [1, 2], [NOW, NOW])

    def compose(self) -> None:
        """Store all combinations that there are."""
        engine = self.engine
        engine.step()
        (composite,) = engine.state.composites.values()
        highs = [engine.state.streams[stream_id].high for stream_id in composite.legs]
        local = [_local_predicates(engine, composite.id, leg) for leg in range(len(highs))]
        engine.compose(composite.id, 0, highs, local, random.Random(1))
        engine.step()
        self._following.follow()

    def plan(self, window: Window | None = None) -> Plan:
        return plan_of(self._following, self.maker, self._handle, window)

    def answer(self, plan: Plan) -> list[dict[str, object]]:
        return answer(self.maker, plan)


async def test_combinations_before_a_narrow_window_are_kept_for_a_wide_one(tmp_path: Path) -> None:
    """A narrow window adds to what a wide one has kept; the next wide one lacks nothing."""
    async with JoinedStore.open(tmp_path / "store") as store:
        # NOW of both streams is long after the rows that have partners.
        for stream, item in (("bids", 8), ("asks", 9)):
            await store.publish(stream, [item - 7, item], [NOW - 10 * HOUR, NOW])
        store.compose()
        assert not store.answer(store.plan())
        await store.publish("bids", [2, 2], [NOW - 10 * HOUR] * 2)
        store.compose()
        assert not store.answer(store.plan(TimeWindow(Bound(-7 * MINUTE, True))))
        plan = store.plan()
        assert plan.composite is not None
        assert len(store.answer(plan)) == len(joined(store.maker, plan)) == 2
        assert kept_of(store.maker)


async def test_a_composite_that_starts_again_gives_no_combination_twice(tmp_path: Path) -> None:
    async with JoinedStore.open(tmp_path / "store") as store:
        await store.publish_pairs()
        store.compose()
        before = store.plan()
        assert len(store.answer(before)) == 2
        (composite_id,) = store.engine.composites
        store.engine.forget_combinations(composite_id)
        store.compose()
        plan = store.plan()
        assert plan.composite is not None and plan.composite.mark.high == 4
        assert len(store.answer(plan)) == len(store.answer(before)) == 2
        assert len(store.answer(plan)) == 2


async def test_combinations_of_stems_that_were_opened_again_are_not_used(tmp_path: Path) -> None:
    """Rows may be lost or back then: the stems of what is kept must be those of the answer."""
    async with JoinedStore.open(tmp_path / "store") as store:
        await store.publish_pairs()
        store.compose()
        assert len(store.answer(store.plan())) == 2
        (kept_rows,) = kept_of(store.maker)
        files = StemFiles(DeltaFolder(tmp_path), pa.schema([]), Memory(0))
        for place in range(len(kept_rows.stems)):
            stems = [*kept_rows.stems]
            stems[place] = DataStem(Memory(0), files.read)
            assert not kept_rows.is_usable(tuple(stems), kept_rows.low, kept_rows.begin)
        assert kept_rows.is_usable(kept_rows.stems, kept_rows.low, kept_rows.begin)


def _prices(stream: str, items: list[int], at: list[int]) -> dict[str, object]:
    kind = pa.decimal128(6, 1) if stream == "asks" else pa.int64()
    item = pa.array([Decimal(number) if stream == "asks" else number for number in items], kind)
    return {"item": item, "price": [1.0] * len(items), "at": at}
