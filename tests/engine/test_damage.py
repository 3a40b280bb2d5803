"""An engine that finds damage derives files again if it can, names lost rows, and continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from psoup.engine.engine import Engine
from psoup.engine.settings import EngineSettings
from psoup.engine.steps import closing
from psoup.engine.steps.closing import ClosingJob
from psoup.store import Accept, CorruptStore, Losses, Store
from tests.damage import flip, flip_in_column, named_files, tear_commit
from tests.engine.test_keyed import Story, closures, keyed
from tests.support.engine.author import READINGS, Author, above, readings, sensor_is
from tests.support.engine.pump import Pump
from tests.support.engine.reading import assert_joined, matched, stem_rows

pytestmark = pytest.mark.spark

# Files that stay as they are, and a log that is trimmed soon, or not.
WATCHFUL = EngineSettings(
    housekeeping=0.0, trim_commits=1, merge_files=100, compact_files=100, checkpoint_commits=1000
)
KEEPING = EngineSettings(
    housekeeping=0.0, trim_commits=1000, merge_files=100, compact_files=100, checkpoint_commits=1000
)


def losses(store: Store) -> Losses:
    return store.epochs.latest()[1].losses


def fill(author: Author, pump: Pump) -> tuple[int, int]:
    """A stream with files of two rows each, with matches; the log has at most the last few rows."""
    stream = author.create(READINGS)
    _, predicate = author.register(stream, above(1.0))
    for number in range(6):
        author.publish(stream, readings([1, 2], [float(number), 5.0]))
        pump.run()
    return stream, predicate


def forget_log(store: Store) -> None:
    """Delete the log's files, as the engine does when their grace has passed."""
    for file in store.log.folder.root.glob("*.parquet"):
        file.unlink()


@contextmanager
def engine(store: Store, spark: SparkSession, settings: EngineSettings) -> Iterator[Engine]:
    running = Engine(store, spark, settings)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def test_matches_are_made_anew(store: Store, author: Author, spark: SparkSession) -> None:
    pump = Pump(store, spark, WATCHFUL)
    stream, predicate = fill(author, pump)
    before = matched(store, predicate)
    flip(named_files(store, "matches")[1])
    named_files(store, "matches")[3].unlink()
    pump.run()
    assert matched(store, predicate) == before
    assert_joined(store, stream, {predicate: lambda row: row["value"] > 1.0})
    assert losses(store) == Losses()


def test_coverage_is_made_anew_when_an_engine_starts(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream, predicate = fill(author, Pump(store, spark, WATCHFUL))
    flip(named_files(store, "coverage")[0])
    Pump(store, spark, WATCHFUL).run()
    assert_joined(store, stream, {predicate: lambda row: row["value"] > 1.0})


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("shuffled", [False, True])
def test_closures_are_derived_again(
    store: Store,
    author: Author,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    torn: bool,
    shuffled: bool,
) -> None:
    if shuffled:
        # Every stem is large, and each task closes few of its rows.
        monkeypatch.setattr(closing, "TASK_ROWS", 0)
        monkeypatch.setattr(closing, "RANGE_ROWS", 7)
    pump, story = Pump(store, spark, WATCHFUL), Story(author, keyed(), 5)
    for _ in range(3):
        story.publish(20)
        pump.step()

    def ends() -> list[tuple[int, int, int]]:
        rows = closures(store, story.stream)
        return sorted((row["row_id"], row["by"], row["end"]) for row in rows)

    before = ends()
    if torn:
        tear_commit(store, "closures")
        pump = Pump(store, spark, WATCHFUL)
    else:
        flip(named_files(store, "closures")[1])
    pump.run()
    assert ends() == before
    # Steps go on with what was derived.
    story.publish(20, keys=9)
    pump.run()
    twin_store = Store.open(store.root.parent / "other", create=True, sync=False)
    twin = Story(Author(twin_store), keyed(), 5)
    for count, keys in ((20, 5), (20, 5), (20, 5), (20, 9)):
        twin.publish(count, keys)
    Pump(twin_store, spark, WATCHFUL).step()
    rows = closures(twin_store, twin.stream)
    assert ends() == sorted((row["row_id"], row["by"], row["end"]) for row in rows)


@pytest.mark.parametrize("shuffled", [False, True])
def test_tasks_that_derive_closures_name_a_damaged_file(
    store: Store,
    author: Author,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    shuffled: bool,
) -> None:
    pump, story = Pump(store, spark, WATCHFUL), Story(author, keyed(), 5)
    for _ in range(3):
        story.publish(20)
        pump.step()
    name = f"stems/{story.stream}"
    damaged = named_files(store, name)[1]
    flip_in_column(damaged, "_key")
    files = tuple(pump.ledger.files(name))
    monkeypatch.setattr(closing, "TASK_ROWS", 0 if shuffled else 1 << 24)
    job = ClosingJob(str(store.root), files, story.stream, 9, False)
    with pytest.raises(CorruptStore) as raised:
        job.run(spark)
    assert raised.value.file == f"{name}/{damaged.name}"


@pytest.mark.parametrize("name", ["matches", "coverage"])
def test_derived_tables_whose_log_can_t_be_read_are_begun_again(
    store: Store, author: Author, spark: SparkSession, name: str
) -> None:
    stream, predicate = fill(author, Pump(store, spark, WATCHFUL))
    tear_commit(store, name)
    pump = Pump(store, spark, WATCHFUL)
    author.publish(stream, readings([1, 2], [9.0, 0.5]))
    pump.run()
    assert_joined(store, stream, {predicate: lambda row: row["value"] > 1.0})


def test_rows_come_back_from_the_log(store: Store, author: Author, spark: SparkSession) -> None:
    pump = Pump(store, spark, KEEPING)
    stream, predicate = fill(author, pump)
    before = stem_rows(store, stream)
    flip(named_files(store, f"stems/{stream}")[2])
    pump.run()
    assert stem_rows(store, stream) == before and losses(store) == Losses()
    assert_joined(store, stream, {predicate: lambda row: row["value"] > 1.0})


def test_lost_rows_are_a_hole_and_the_engine_goes_on(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream, predicate = fill(author, Pump(store, spark, WATCHFUL))
    damaged = named_files(store, f"stems/{stream}")[1]
    content = damaged.read_bytes()
    flip(damaged)
    forget_log(store)
    with engine(store, spark, WATCHFUL) as running:
        _, later = author.register(stream, sensor_is(2))
        running.wait_for(author.publish(stream, readings([2], [7.0])))
        running.wait_idle()
        (hole,) = losses(store).holes
        assert (hole.stream_id, hole.row_lo, hole.row_hi) == (stream, 2, 4)
        assert hole.file == f"stems/{stream}/{damaged.name}"
        assert hole.ts_lo is not None and hole.ts_hi is not None and hole.ts_lo <= hole.ts_hi
        assert losses(store).open == (hole,)
        assert matched(store, later) == [1, 5, 7, 9, 11, 12]
        damaged.write_bytes(content)
        author.publish(stream, readings([2], [8.0]))
        running.wait_idle()
    Pump(store, spark, WATCHFUL).run()
    assert losses(store) == Losses()
    assert matched(store, later) == [1, 3, 5, 7, 9, 11, 12, 13]
    assert_joined(store, stream, {predicate: lambda row: row["value"] > 1.0})


def test_an_accepted_loss_takes_the_file_away(
    store: Store, author: Author, spark: SparkSession
) -> None:
    pump = Pump(store, spark, WATCHFUL)
    stream, predicate = fill(author, pump)
    flip(named_files(store, f"stems/{stream}")[1])
    forget_log(store)
    pump.run()
    (hole,) = losses(store).open
    author.append(Accept((hole.rows,)))
    pump.run()
    assert losses(store).holes == (hole,) and losses(store).open == ()
    assert [row["_row_id"] for row in stem_rows(store, stream)] == [0, 1, *range(4, 12)]


@pytest.mark.parametrize("table", ["catalog", "registrations", "predicates", "publishers"])
def test_a_running_engine_writes_its_tables_from_memory(
    store: Store, author: Author, spark: SparkSession, table: str
) -> None:
    pump = Pump(store, spark, WATCHFUL)
    stream, _ = fill(author, pump)
    author.publish(stream, readings([1], [1.0]), publisher="me")
    pump.run()
    flip(named_files(store, table)[0])
    pump.run()
    state = store.state(store.epochs.latest()[1])
    assert state.registrations == author.state.registrations
    assert state.publishers == author.state.publishers
    assert state.streams.keys() == author.state.streams.keys()
    assert dict(state.predicates) == dict(author.state.predicates)


def test_an_engine_that_starts_names_what_it_can_not_do_without(
    store: Store, author: Author, spark: SparkSession
) -> None:
    fill(author, Pump(store, spark, WATCHFUL))
    damaged = named_files(store, "registrations")[0]
    flip(damaged)
    with pytest.raises(CorruptStore, match=damaged.name):
        Engine(store, spark, WATCHFUL).start()


def test_a_damaged_commit_of_the_log_stops_the_engine_with_its_name(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(READINGS)
    at = author.publish(stream, readings([1], [1.0]))
    commit = store.log.folder.log / f"{at.version:020d}.json"
    flip(commit)
    with pytest.raises(CorruptStore, match=commit.name), engine(store, spark, WATCHFUL) as running:
        running.wait_for(at)
