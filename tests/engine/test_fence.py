"""An engine that was cut off and comes back deletes nothing of the one that replaced it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from psoup.engine.engine import Engine
from psoup.engine.errors import SecondEngine
from psoup.engine.maintain import Chore
from psoup.engine.maintain.discard import Checkpoint, Trim, Vacuum
from psoup.engine.repair.mend import mend
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from tests.support.engine.author import READINGS, Author, above, readings
from tests.support.engine.pump import Pump
from tests.support.engine.reading import assert_joined
from tests.support.engine.unlocked import NoLock

ENGINE = Path(__file__).parents[2] / "psoup" / "engine"

# Everything is due at once, and files are deleted without a grace.
HASTY = EngineSettings(
    housekeeping=0.0,
    grace=0.0,
    commit_grace=0.0,
    idle=0.0,
    trim_commits=1,
    merge_files=2,
    checkpoint_commits=1,
)


def files(store: Store) -> set[Path]:
    """The store's files, without the log's: servers and both engines commit to it."""
    return {
        path
        for path in store.root.rglob("*")
        if path.is_file() and store.log.folder.root not in path.parents
    }


@pytest.fixture
def engines(store: Store, author: Author, spark: SparkSession) -> tuple[Pump, Pump, int, int]:
    """An engine that was cut off, the one that replaced it, and a stream with a predicate."""
    stream = author.create(READINGS)
    _, predicate = author.register(stream, above(1.0))
    first = Pump(store, spark, HASTY)
    for value in (1.0, 2.0, 3.0):
        author.publish(stream, readings([1], [value]))
        first.step()
    second = Pump(Store.open(store.root, sync=False), spark, HASTY)
    for value in (4.0, 5.0, 6.0):
        author.publish(stream, readings([2], [value]))
        second.step()
    second.run()
    return first, second, stream, predicate


@pytest.mark.parametrize("chore", [Trim, Checkpoint, Vacuum])
@pytest.mark.spark
def test_a_chore_of_an_engine_that_was_replaced_deletes_nothing(
    store: Store,
    author: Author,
    engines: tuple[Pump, Pump, int, int],
    chore: Callable[[EngineSettings], Chore],
) -> None:
    first, second, stream, predicate = engines
    before, log_version = files(store), store.log.latest_version()
    cut_off = chore(HASTY)
    with pytest.raises(SecondEngine, match="taken over"):
        for number in range(4):
            # What a chore counts by: its own epochs and versions, which it believes to be newest.
            first.ledger.epoch = replace(first.ledger.epoch, log_version=3 + number)
            cut_off.advance(first.ledger)
    assert files(store) == before and store.log.latest_version() == log_version
    # All of the second engine's files are readable, and it goes on.
    author.publish(stream, readings([3], [7.0]))
    second.run()
    assert_joined(store, stream, {predicate: lambda row: row["value"] > 1.0})


@pytest.mark.spark
def test_a_table_is_not_restarted_by_an_engine_that_was_replaced(
    store: Store, engines: tuple[Pump, Pump, int, int]
) -> None:
    first, *_ = engines
    before = files(store)
    with pytest.raises(SecondEngine, match="taken over"):
        mend(first.ledger, "matches/_delta_log/00000000000000000001.json")
    assert files(store) == before


@pytest.mark.spark
def test_an_idle_engine_that_was_replaced_ends_by_itself(
    store: Store, author: Author, spark: SparkSession
) -> None:
    stream = author.create(READINGS)
    author.publish(stream, readings([1], [1.0]))
    engine = Engine(store, spark, EngineSettings(), NoLock(store.root))
    engine.start()
    try:
        engine.wait_idle()
        rival = Store.open(store.root, sync=False)
        version, epoch = rival.epochs.latest()
        rival.epochs.append(version + 1, replace(epoch, number=epoch.number + 1, kind="takeover"))
        with pytest.raises(SecondEngine, match="taken over"):
            while True:
                engine.check()
                time.sleep(0.01)
        assert rival.epochs.is_newest(version + 1)
    finally:
        engine.stop()


@pytest.mark.spark
def test_an_engine_that_was_replaced_does_not_go_back_to_the_other_s_epoch(
    store: Store, author: Author, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failure it would undo what the other one has just committed."""
    stream = author.create(READINGS)
    engine = Engine(store, spark, EngineSettings(), NoLock(store.root))
    engine.start()
    try:
        engine.wait_idle()

        def fail(_: object) -> bool:
            rival = Store.open(store.root, sync=False)
            version, epoch = rival.epochs.latest()
            rival.epochs.append(version + 1, replace(epoch, number=epoch.number + 1))
            rival.table("matches").commit(epoch.versions["matches"] + 1, operation="OTHER")
            raise OSError("a file is gone")

        monkeypatch.setattr(engine._maintenance, "advance", fail)
        author.publish(stream, readings([1], [1.0]))
        with pytest.raises(SecondEngine, match="taken over"):
            engine.wait_for(author.publish(stream, readings([1], [1.0])), 180)
            while True:
                engine.check()
                time.sleep(0.01)
        _, epoch = store.epochs.latest()
        newest = store.table("matches").latest_version()
        assert newest == epoch.versions["matches"] + 1, "the other's commit stands"
    finally:
        engine.stop()


def test_only_the_fence_deletes() -> None:
    deleting = re.compile(
        r"unlink\(|rmtree\(|\bremove_folder\(|import .*\bremove\b|\.drop_commits\(|\.checkpoint\("
        r"|folder\.(remove|restart|mend)\("
    )
    offences = {
        f"{path.relative_to(ENGINE)}: {line.strip()}"
        for path in ENGINE.rglob("*.py")
        for line in path.read_text().splitlines()
        if path.name != "fence.py" and deleting.search(line) and "fence." not in line
    }
    # Spark's temporary folder, a machine's built indexes, a task's own draft, and the table
    # that says which epoch is newest.
    assert offences == {
        "composites/worker.py: path.unlink(missing_ok=True)",
        "matching/index_cache.py: os.unlink(file.name)",
        "matching/index_cache.py: path.unlink(missing_ok=True)",
        "process.py: shutil.rmtree(scratch, ignore_errors=True)",
        "repair/recover.py: store.epochs.folder.mend()",
        "spark/session.py: shutil.rmtree(folder, ignore_errors=True)",
    }
