"""Erased rows leave every file of a store, on real Spark and Delta: no byte of them is left when
the status says so, and everything else stays."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from datastem.schema import OP, Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN, TEXT
from psoup.engine.engine import Engine
from psoup.engine.settings import EngineSettings
from psoup.store import Accept, RowsErased, Store
from psoup.store.backup.pins import Pin
from psoup.store.checking import check
from psoup.store.erasure import erasure_status
from psoup.store.state.erasures import SALT_BYTES, ids_to_text
from querystem.expressions import TRUE, Call, ColumnRef, Literal, Op
from tests.damage import flip
from tests.support.engine.author import Author
from tests.support.engine.composites import combinations, equal, register_join
from tests.support.engine.killing import MortalEngine
from tests.support.engine.leftovers import leftovers
from tests.support.engine.pump import Pump
from tests.support.engine.reading import matched, stem_rows
from tests.support.lengths import short_first
from tests.support.server.callers import tenant_server

pytestmark = pytest.mark.spark

PEOPLE = StreamSchema("people", (Column("id", BIGINT), Column("name", TEXT)), key=("id",))
ORDERS = StreamSchema("orders", (Column("id", BIGINT), Column("item", TEXT)))
EAGER = EngineSettings(
    housekeeping=0.0,
    grace=0.0,
    commit_grace=0.0,
    trim_commits=2,
    checkpoint_commits=2,
    merge_files=3,
    compact_files=2,
)
# As numbers and texts that nothing else has by chance.
ID, NAME, ITEM = 918273645546372, "Annabella-Zyx", "Zyx-lamp"


def rows(schema: StreamSchema, ids: list[int], texts: list[str]) -> pa.RecordBatch:
    arrays, names = [pa.array(ids, pa.int64()), pa.array(texts)], [c.name for c in schema.columns]
    if schema.key:
        arrays, names = [*arrays, pa.array([0] * len(ids), pa.int8())], [*names, OP]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def erase(author: Author, stream: int, ids: list[int], digest: int | None = None) -> None:
    salt = author.state.erased(stream).salt or bytes(range(SALT_BYTES))
    author.append(RowsErased(stream, ids_to_text(np.array(ids, np.int64)), digest, salt.hex()))


def is_named(name: str) -> Call:
    return Call(Op.EQ, (ColumnRef("name", TEXT), Literal(name, TEXT)), BOOLEAN)


def finish(pump: Pump, store: Store) -> None:
    """Let the engine work until the status says done."""
    for _ in range(100):
        pump.run()
        if all(status.is_done for status in erasure_status(store)):
            return
    raise AssertionError([status.remaining for status in erasure_status(store)])


def test_no_byte_is_left(store: Store, author: Author, spark: SparkSession) -> None:
    people, orders = author.create(PEOPLE), author.create(ORDERS)
    joined = register_join(author, [(orders, TRUE), (people, TRUE)], [equal(0, 1, "id")])
    _, bobs = author.register(people, is_named("Bob"))
    _, annas = author.register(people, is_named(NAME))
    pump = Pump(store, spark, EAGER)
    for number in range(5):
        author.publish(people, rows(PEOPLE, [ID, number], [NAME, "Bob"]))
        author.publish(orders, rows(ORDERS, [ID, number], [ITEM, "cup"]))
        pump.step()
        for _ in range(number):
            pump.maintenance.advance(pump.ledger)
    pump.run()
    # One row is still in the log only.
    author.publish(people, rows(PEOPLE, [ID], [NAME]))
    assert len(combinations(store, joined.composite_id)) >= 5
    assert {place.split("/")[0] for place in leftovers(store.root, NAME, ID)} >= {"log", "stems"}
    before = [row for row in stem_rows(store, people) if row["id"] != ID]
    erase(author, people, [0, 2, 4, 6, 8, 10], digest=7)
    erase(author, orders, [0, 2, 4, 6, 8])
    assert not any(status.is_done for status in erasure_status(store))
    pump.step()
    # Until the chore has run, the epoch does not claim it.
    assert store.epochs.latest()[1].erased.packed == 0
    with Pin(store.root):
        pump.run()
        assert not all(status.is_done for status in erasure_status(store)), "a back-up needs files"
    finish(pump, store)
    # The text of a query that names the value is no row data.
    queries = ("predicates/", "registrations/")
    remaining = leftovers(store.root, NAME, ITEM, ID, str(ID))
    assert not [place for place in remaining if not place.startswith(queries)]
    assert stem_rows(store, people) == before, "other rows and ids stay"
    assert matched(store, bobs) == [1, 3, 5, 7, 9] and matched(store, annas) == []
    parts = set(combinations(store, joined.composite_id).values())
    assert parts and all(order % 2 and person % 2 for order, person in parts)
    # The engine goes on, and another one knows what is done.
    author.publish(people, rows(PEOPLE, [3], ["Cy"]))
    other = Pump(store, spark, EAGER)
    other.run()
    assert [row["name"] for row in stem_rows(store, people)][-1] == "Cy"
    assert all(status.is_done for status in erasure_status(store))


def test_joins_by_inequality_lose_the_values(
    store: Store, author: Author, spark: SparkSession
) -> None:
    orders, others = author.create(ORDERS), author.create(replace(ORDERS, name="others"))
    register_join(
        author,
        [(orders, TRUE), (others, TRUE)],
        [Call(Op.LT, equal(0, 1, "id").args, BOOLEAN)],
        span=10**12,
    )
    pump = Pump(store, spark, EAGER)
    author.publish(orders, rows(ORDERS, [ID, 5], [ITEM, "cup"]))
    author.publish(others, rows(ORDERS, [ID + 1, 6], ["x", "y"]))
    pump.run()
    erase(author, orders, [0])
    finish(pump, store)
    assert not leftovers(store.root, ID, str(ID), ITEM)


@pytest.mark.parametrize("seed", short_first(range(12)))
def test_engines_that_die_erase_it_all(
    store: Store, author: Author, spark: SparkSession, seed: int
) -> None:
    """Publishes, erasures and pieces of work of engines that are killed between any two commits."""
    dice = Random(seed)
    people, orders = author.create(PEOPLE), author.create(ORDERS)
    joined = register_join(author, [(orders, TRUE), (people, TRUE)], [equal(0, 1, "id")])
    _, bobs = author.register(people, is_named("name-1"))
    settings = replace(EAGER, merge_files=dice.choice([2, 3, 8]), slice_seconds=0.0)
    mortal = MortalEngine(store, spark, settings, dice)
    published: dict[int, list[tuple[int, str]]] = {people: [], orders: []}
    erased_ids: dict[int, set[int]] = {people: set(), orders: set()}
    keys = [ID + 1000 * number for number in range(5)]
    for _ in range(25):
        stream = dice.choice([people, orders])
        schema = PEOPLE if stream == people else ORDERS
        rows_of = published[stream]
        if dice.random() < 0.4:
            batch = [(dice.choice(keys), f"name-{dice.randint(0, 2)}") for _ in range(3)]
            author.publish(stream, rows(schema, *map(list, zip(*batch, strict=True))))
            rows_of += batch
        elif dice.random() < 0.4 and rows_of:
            key = dice.choice(keys)
            ids = {place for place, row in enumerate(rows_of) if row[0] == key} - erased_ids[stream]
            if ids:
                erase(author, stream, sorted(ids), digest=keys.index(key) if schema.key else None)
                erased_ids[stream] |= ids
        else:
            mortal.work()
    finish(mortal.pump, store)
    for stream, rows_of in published.items():
        expected = [
            (place, *row) for place, row in enumerate(rows_of) if place not in erased_ids[stream]
        ]
        stored = [
            tuple(row[name] for name in ("_row_id", "id")) for row in stem_rows(store, stream)
        ]
        assert stored == [row[:2] for row in expected]
    remaining = {row[0] for stream in published for place, row in enumerate(published[stream])
            if place not in erased_ids[stream]}  # fmt: skip
    for key in set(keys) - remaining:
        assert not leftovers(store.root, key, str(key))
    named = [p for p, row in enumerate(published[people]) if row[1] == "name-1"]
    assert matched(store, bobs) == [place for place in named if place not in erased_ids[people]]
    for order, person in combinations(store, joined.composite_id).values():
        assert order not in erased_ids[orders] and person not in erased_ids[people]
    assert not check(store, 1.0).problems


async def test_answers_from_combinations_found_ahead(tmp_path: Path, spark: SparkSession) -> None:
    """A server joins by itself until the engine has removed combinations of erased rows."""
    async with tenant_server(tmp_path / "store") as server:
        boss = server.administrator
        await boss.define("CREATE STREAM people (id BIGINT, name TEXT) KEY (id)")
        await boss.define("CREATE STREAM orders (id BIGINT, item TEXT)")
        text = "SELECT o.item, p.name FROM orders o JOIN people p ON o.id = p.id"
        handle = await boss.register(text)
        count = await boss.register(text.replace("o.item, p.name", "COUNT(*) AS n"))
        await boss.publish("people", id=[1, 2], name=["Ann", "Bob"])
        await boss.publish("orders", id=[1, 1, 2], item=["lamp", "bed", "cup"])
        pump = Pump(Store.open(tmp_path / "store", sync=False), spark, EAGER)

        async def answer(joined: bool) -> list[tuple[str, str]]:
            await server.core.follower.refresh()
            header, answer_rows = await boss.invoke(handle)
            assert bool(header.joined_pairs) == joined
            assert (await boss.invoke(count))[1] == [len(answer_rows)]
            return sorted(answer_rows)

        await asyncio.to_thread(pump.run)
        assert len(await answer(joined=False)) == 3
        await boss.define("ERASE FROM people WHERE id = 1")
        assert await answer(joined=True) == [("cup", "Bob")]
        await asyncio.to_thread(finish, pump, pump.store)
        assert await answer(joined=False) == [("cup", "Bob")]
        await boss.define("ERASE FROM orders WHERE id = 2")
        await boss.publish("people", id=[3], name=["Cy"])
        await boss.publish("orders", id=[3], item=["jug"])
        await asyncio.to_thread(finish, pump, pump.store)
        assert await answer(joined=False) == [("jug", "Cy")]


@pytest.mark.long
def test_a_damaged_file_is_not_done(store: Store, author: Author, spark: SparkSession) -> None:
    """A file that can't be read may have the rows. It goes when the loss is accepted."""
    orders = author.create(ORDERS)
    settings = replace(EAGER, trim_commits=1, merge_files=100)
    pump = Pump(store, spark, settings)
    for number in range(5):
        author.publish(orders, rows(ORDERS, [ID + number], [ITEM]))
        pump.run()
    file = sorted(store.stem(orders).root.glob("*.parquet"), key=lambda path: path.stat().st_mtime)
    flip(file[0])
    erase(author, orders, [0, 1, 2, 3, 4])
    running = Engine(store, spark, settings)
    running.start()
    try:
        running.wait_idle()
        hole = store.epochs.latest()[1].losses.holes[0]
        assert [status.is_done for status in erasure_status(store)] == [False]
        author.append(Accept((hole.rows,)))
        deadline = time.monotonic() + 60
        while not all(status.is_done for status in erasure_status(store)):
            assert time.monotonic() < deadline, erasure_status(store)
            time.sleep(0.1)
    finally:
        running.stop()
    assert not leftovers(store.root, ITEM, ID)
