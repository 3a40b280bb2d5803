"""An erasure is done only when bytes of its key are in no file: neither in files that no table
names any more, nor in old commits of a stem, whatever the clock of the disk says."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from datastem.instants import DAY, from_micros
from psoup.engine.maintain.wipe import Wipe
from psoup.store import Store
from psoup.store.erasure import erasure_status
from querystem.expressions import TRUE
from tests.engine.test_erase import EAGER, ID, NAME, PEOPLE, erase, finish, rows
from tests.support.engine.author import Author, timed
from tests.support.engine.composites import combinations, equal, register_join
from tests.support.engine.leftovers import leftovers
from tests.support.engine.pump import Pump
from tests.support.engine.reading import stem_rows

pytestmark = pytest.mark.spark

# Unnamed files stay for ever.
KEEPING = replace(EAGER, grace=1e9, commit_grace=0.0)


def events(sensors: list[int], instants: list[int]) -> pa.RecordBatch:
    """Return rows of a stream with event time."""
    arrays = [pa.array(sensors, pa.int64()), pa.array(instants, pa.int64())]
    arrays[1] = arrays[1].cast(pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays(arrays, names=["sensor", "at"])


def is_done(store: Store) -> bool:
    statuses = erasure_status(store)
    assert statuses, "an erasure is listed whether it is done or not"
    return all(status.is_done for status in statuses)


def data_files(root: Path) -> Iterator[Path]:
    yield from (path for path in root.rglob("*.parquet") if "_delta_log" not in path.parts)


def test_rows_of_a_dropped_stream_in_files_without_a_name(
    store: Store, author: Author, spark: SparkSession
) -> None:
    """The erasure comes when no table has a row of the key, so it names none."""
    old = author.create(PEOPLE)
    author.publish(old, rows(PEOPLE, [ID, 3], [NAME, "Bob"]))
    Pump(store, spark, KEEPING).run()
    author.drop(old)
    people = author.create(PEOPLE)
    author.publish(people, rows(PEOPLE, [4], ["Cy"]))
    pump = Pump(store, spark, KEEPING)
    pump.run()
    assert leftovers(store.root / "stems", NAME), "its files wait for the grace"
    erase(author, people, [], digest=7)
    erase(author, people, [], digest=7)
    pump.run()
    assert leftovers(store.root, NAME) and not is_done(store)
    (status,) = erasure_status(store)
    assert "old files" in status.remaining and not len(status.erasure.ids)
    # Another engine does not know since when files have no name. It waits for them all.
    finish(Pump(store, spark, EAGER), store)
    assert not leftovers(store.root, NAME, ID)


def test_rows_that_retention_has_removed(store: Store, author: Author, spark: SparkSession) -> None:
    stream = author.create(timed(retain=DAY))
    now = time.time_ns() // 1000 // DAY * DAY
    for instant in (now - 9 * DAY, now):
        author.publish(stream, events([ID], [instant]))
        Pump(store, spark, replace(KEEPING, grace=3600.0)).run()
    assert [row["_row_id"] for row in stem_rows(store, stream)] == [1]
    erase(author, stream, [])
    pump = Pump(store, spark, KEEPING)
    pump.run()
    assert not is_done(store)
    finish(Pump(store, spark, EAGER), store)


def test_a_clock_that_was_set_back(store: Store, author: Author, spark: SparkSession) -> None:
    """Files that the disk's clock calls newer than the erasure have erased rows all the same."""
    people = author.create(PEOPLE)
    pump = Pump(store, spark, KEEPING)
    author.publish(people, rows(PEOPLE, [ID, 3], [NAME, "Bob"]))
    pump.run()
    erase(author, people, [0], digest=7)
    tomorrow = time.time() + 86_400
    for path in data_files(store.root):
        os.utime(path, (tomorrow, tomorrow))
    pump.run()
    assert leftovers(store.root / "stems", NAME) and not is_done(store)
    finish(Pump(store, spark, EAGER), store)
    assert not leftovers(store.root, NAME, ID)


def test_erasures_in_quick_succession_do_not_put_each_other_off(
    store: Store, author: Author, spark: SparkSession
) -> None:
    people = author.create(PEOPLE)
    pump = Pump(store, spark, replace(EAGER, grace=1e9))
    (wipe,) = (chore for chore in pump.maintenance._chores if isinstance(chore, Wipe))
    author.publish(people, rows(PEOPLE, [ID, 3], [NAME, "Bob"]))
    pump.run()
    erase(author, people, [0], digest=7)
    pump.run()
    (first,) = wipe._waiting
    erase(author, people, [1], digest=8)
    pump.run()
    assert [traces.position for traces in wipe._waiting][0] == first.position
    for path in first.files:
        path.unlink(missing_ok=True)
    pump.run()
    assert [status.is_done for status in erasure_status(store)] == [True, False]


def test_times_in_the_commits_of_a_stem(store: Store, author: Author, spark: SparkSession) -> None:
    """Delta's commits and checkpoints have the least and the greatest ts of each file, also of
    combinations found ahead."""
    stream, places = author.create(timed()), author.create(replace(timed(), name="places"))
    joined = register_join(author, [(stream, TRUE), (places, TRUE)], [equal(0, 1)])
    born = DAY * 4711 + 123_456
    pump = Pump(store, spark, replace(EAGER, checkpoint_commits=10**9))
    for number, instant in enumerate([born, DAY * 5000, DAY * 5001]):
        author.publish(stream, events([number], [instant]))
        author.publish(places, events([number], [instant - 3]))
        pump.run()
    assert combinations(store, joined.composite_id)
    text = from_micros(born).isoformat().replace("+00:00", "Z")
    stems = {place.split("/")[0] for place in leftovers(store.root / "stems", text)}
    assert stems == {str(stream), str(joined.composite_id)}
    erase(author, stream, [0])
    finish(pump, store)
    assert not leftovers(store.root / "stems", text)
    assert [row["_row_id"] for row in stem_rows(store, stream)] == [1, 2]
    # A checkpoint of the erased rows keeps it from being done, too, until it is dropped.
    pump = Pump(store, spark, replace(EAGER, checkpoint_commits=1))
    pump.run()
    erase(author, stream, [1])
    finish(pump, store)
    text = from_micros(DAY * 5000).isoformat().replace("+00:00", "Z")
    assert not leftovers(store.root / "stems", text)
