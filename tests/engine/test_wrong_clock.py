"""The engine deletes nothing that only a wrong clock has made old."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from datastem.instants import DAY, HOUR, MINUTE
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT
from psoup.engine.settings import EngineSettings
from psoup.store import Confirm, Store
from tests.support.engine.author import READINGS, Author, readings
from tests.support.engine.pump import Pump
from tests.support.engine.reading import stem_rows
from tests.support.server.machines import Machine, Machines, Said, answer, arrival, define, put

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("counted_ids")]

EAGER = EngineSettings(housekeeping=0.0, grace=0.0, trim_commits=2, merge_files=100)


def ids(store: Store) -> list[int]:
    return [row["_row_id"] for row in stem_rows(store, 1)]


@pytest.mark.parametrize("key", [(), ("a",)])
async def test_a_day_ahead_and_one_publish(
    tmp_path: Path, spark: SparkSession, key: tuple[str, ...]
) -> None:
    world = Machines(tmp_path)
    schema = StreamSchema("s", (Column("a", BIGINT),), retain=HOUR, key=key)
    async with world.server(Machine("a")) as right:
        await define(right, schema)
        for _ in range(4):
            await put(right, 1)
            world.time += MINUTE
        Pump(right.store, spark, EAGER).run()
    async with world.server(Machine("b", DAY)) as wrong:
        await put(wrong, 1)
        pump = Pump(wrong.store, spark, EAGER)
        pump.run()
        assert ids(wrong.store) == [0, 1, 2, 3, 4]
        # Also for an engine that starts again, after the log is trimmed, and with later stamps.
        for _ in range(4):
            world.time += MINUTE
            await put(wrong, 1)
            pump.run()
        again = Pump(wrong.store, spark, EAGER)
        again.run()
        assert again.ledger.state.jumps.unconfirmed == DAY + MINUTE
        assert ids(wrong.store) == list(range(9))
    async with world.server(Machine("a")) as right:
        await right.appender.submit(Said(Confirm(1)))
        await put(right, 1)
        again.run()
        # The last row of the key before the jump ended with it.
        assert ids(right.store) == list(range(3 if key else 4, 10))


async def test_the_engines_own_clock_deletes_nothing(tmp_path: Path, spark: SparkSession) -> None:
    """Its machine is years ahead of the log here."""
    world = Machines(tmp_path)
    async with world.server(Machine("a")) as core:
        await define(core, arrival(HOUR))
        await put(core, 1)
        Pump(core.store, spark, EAGER).run()
        assert ids(core.store) == [0]
        assert await answer(core) == [1]


def test_stamps_that_go_on_delete_as_ever(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(StreamSchema("readings", READINGS.columns, retain=HOUR))
    author.publish(stream, readings([1], [1.0]))
    pump = Pump(store, spark, EAGER)
    pump.run()
    author._clock += 2 * HOUR
    author.publish(stream, readings([2], [2.0]))
    pump.run()
    assert [row["sensor"] for row in stem_rows(store, stream)] == [2]
