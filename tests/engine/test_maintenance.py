"""Housekeeping changes no answer and frees the disk."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from datastem.instants import HOUR
from psoup.engine.ledger import STEM, Ledger, stream_of
from psoup.engine.maintain import Maintenance
from psoup.engine.maintain.merge import Merge
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from tests.support.engine.author import READINGS, Author, above, readings, sensor_is, timed
from tests.support.engine.pump import Pump
from tests.support.engine.reading import assert_joined, matched, pieces, stem_rows

pytestmark = pytest.mark.spark

EAGER = EngineSettings(
    housekeeping=0.0,
    grace=0.0,
    trim_commits=2,
    checkpoint_commits=4,
    merge_files=3,
    compact_files=2,
)
LAZY = EngineSettings(housekeeping=0.0)


def files(store: Store, name: str) -> int:
    """How many the last epoch names."""
    _, epoch = store.epochs.latest()
    if name.startswith(STEM):
        return len(store.stem_snapshot(epoch, stream_of(name)).files)
    return len(store.snapshot(epoch, name).files)


def on_disk(folder: Path) -> int:
    return sum(1 for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts)


class Busy:
    """A chore that always has something to do."""

    def __init__(self) -> None:
        self.turns = 0

    def advance(self, ledger: Ledger) -> bool:
        self.turns += 1
        return True


def test_chores_take_turns(spark: SparkSession) -> None:
    maintenance, chores = Maintenance(spark, LAZY), [Busy(), Busy(), Busy()]
    maintenance._chores = deque(chores)
    for _ in range(9):
        assert maintenance.advance(None)  # type: ignore[arg-type]
    assert [chore.turns for chore in chores] == [3, 3, 3]


def steps(pump: Pump, author: Author, stream: int, count: int) -> None:
    for number in range(count):
        author.publish(stream, readings([number, 2], [float(number), 1.5]), publisher="me")
        pump.step()


def test_everything_at_once_keeps_the_answers(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(READINGS)
    _, high = author.register(stream, above(1.0))
    pump = Pump(store, spark, EAGER)
    for _ in range(3):
        steps(pump, author, stream, 3)
        pump.run()
    _, second = author.register(stream, sensor_is(2))
    pump.run()
    assert_joined(
        store,
        stream,
        {high: lambda row: row["value"] > 1.0, second: lambda row: row["sensor"] == 2},
    )
    assert [row["_row_id"] for row in stem_rows(store, stream)] == list(range(18))
    assert store.state(store.epochs.latest()[1]).publishers == author.state.publishers


def test_small_files_and_pieces_become_one(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(READINGS)
    _, predicate = author.register(stream, above(1.0))
    steps(Pump(store, spark, LAZY), author, stream, 8)
    assert files(store, "matches") == 8
    before = matched(store, predicate)
    Pump(store, spark, LAZY).run()
    assert files(store, "matches") == files(store, f"stems/{stream}") == 1
    assert [(piece["lo"], piece["hi"]) for piece in pieces(store)] == [(0, 16)]
    assert matched(store, predicate) == before


def test_the_files_of_all_streams_are_merged_at_once(
    store: Store, author: Author, spark: SparkSession
) -> None:
    streams = [author.create(READINGS) for _ in range(3)]
    for stream in streams:
        author.register(stream, above(1.0))
    pump = Pump(store, spark, EngineSettings(housekeeping=0.0, merge_files=3))
    for number in range(4):
        for stream in streams:
            author.publish(stream, readings([number, 2], [float(number), 1.5]))
        pump.step()
    merge = Merge(spark, pump.settings)
    assert merge.advance(pump.ledger) and pump.ledger.epoch.kind == "merge"
    assert not merge.advance(pump.ledger)
    for stream in streams:
        assert files(store, f"stems/{stream}") == 1
        assert [row["value"] for row in stem_rows(store, stream)][::2] == [0.0, 1.0, 2.0, 3.0]
    assert files(store, "matches") == 3


def test_merging_drops_ended_predicates(store: Store, author: Author, spark: SparkSession) -> None:
    stream = author.create(READINGS)
    handle, ended = author.register(stream, above(0.5))
    _, stays = author.register(stream, above(1.0))
    steps(Pump(store, spark, LAZY), author, stream, 8)
    before = matched(store, stays)
    author.unregister(handle)
    Pump(store, spark, LAZY).run()
    assert matched(store, ended) == []
    assert matched(store, stays) == before


def test_consumed_log_files_go(store: Store, author: Author, spark: SparkSession) -> None:
    stream = author.create(READINGS)
    pump = Pump(store, spark, EAGER)
    for _ in range(4):
        steps(pump, author, stream, 1)
        pump.run()
    live = store.log.folder.snapshot().files
    assert len(live) < 5
    assert on_disk(store.root / "log") == len(live)
    steps(pump, author, stream, 1)
    assert len(stem_rows(store, stream)) == 10


def test_delta_logs_get_checkpoints(store: Store, author: Author, spark: SparkSession) -> None:
    stream = author.create(READINGS)
    pump = Pump(store, spark, EAGER)
    steps(pump, author, stream, 6)
    pump.run()
    for name in ("log", "epochs", f"stems/{stream}"):
        assert list((store.root / name / "_delta_log").glob("*.checkpoint.parquet")), name
    again = Pump(store, spark, EAGER)
    steps(again, author, stream, 1)
    assert len(stem_rows(store, stream)) == 14


def test_small_tables_are_compacted(store: Store, author: Author, spark: SparkSession) -> None:
    stream = author.create(READINGS)
    pump = Pump(store, spark, EAGER)
    handles = []
    for limit in range(5):
        handles.append(author.register(stream, above(limit))[0])
        pump.step()
    author.unregister(handles[0])
    pump.run()
    assert files(store, "registrations") == files(store, "predicates") == 1
    assert store.state(store.epochs.latest()[1]).registrations == author.state.registrations


def test_the_grace_holds_files_back(store: Store, author: Author, spark: SparkSession) -> None:
    stream = author.create(READINGS)
    author.register(stream, above(1.0))
    pump = Pump(store, spark, EngineSettings(housekeeping=0.0, merge_files=3, grace=3600.0))
    steps(pump, author, stream, 4)
    written = on_disk(store.root / f"stems/{stream}")
    pump.run()
    assert files(store, f"stems/{stream}") == 1
    assert on_disk(store.root / f"stems/{stream}") == written + 1


def at(hour: int) -> pa.RecordBatch:
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hour)
    arrays = [pa.array([hour], pa.int64()), pa.array([moment], timed().arrow.field("at").type)]
    return pa.RecordBatch.from_arrays(arrays, schema=timed().arrow)


def test_retention_drops_what_no_window_reaches(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(timed(retain=2 * HOUR))
    pump = Pump(store, spark, EngineSettings(housekeeping=0.0, grace=0.0, merge_files=100))
    for hour in (1, 2, 3, 4):
        author.publish(stream, at(hour))
        pump.step()
    pump.run()
    assert [row["sensor"] for row in stem_rows(store, stream)] == [3, 4]
    _, late = author.register(stream, sensor_is(4))
    pump.run()
    assert matched(store, late) == [3]


def test_a_dropped_stream_leaves_nothing(store: Store, author: Author, spark: SparkSession) -> None:
    stream, live_stream = author.create(READINGS), author.create(READINGS)
    author.register(stream, above(0.0))
    _, live_predicate = author.register(live_stream, above(0.0))
    author.publish(stream, readings([1], [1.0]))
    author.publish(live_stream, readings([1], [1.0]))
    pump = Pump(store, spark, EAGER)
    pump.run()
    author.drop(stream)
    pump.run()
    pump.maintenance.advance(pump.ledger)
    assert on_disk(store.root / f"stems/{stream}") == 0
    assert {piece["stream_id"] for piece in pieces(store)} == {live_stream}
    assert matched(store, live_predicate) == [0]
    assert Pump(store, spark, EAGER).ledger.epoch == pump.ledger.epoch
