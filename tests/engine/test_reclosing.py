"""Closures are derived again beside the loop: new rows do not wait, and no kill loses any."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from psoup.engine.repair.mend import mend
from psoup.engine.settings import EngineSettings
from psoup.engine.steps.closing import ClosingJob
from psoup.store import Store
from psoup.store.delta import commits as delta_commits
from psoup.store.delta import durable
from tests.damage import flip, named_files
from tests.engine.test_keyed import KEYED, Story, closures, ends, keyed
from tests.support.engine.author import Author
from tests.support.engine.killing import Killed, Killer
from tests.support.engine.pump import Pump

pytestmark = pytest.mark.spark

# Files are merged whenever they may be.
EAGER = EngineSettings(housekeeping=0.0, merge_files=2, checkpoint_commits=1000)
# The scrub finds damage before a merge does.
WATCHFUL = EngineSettings(housekeeping=0.0, merge_files=100, checkpoint_commits=1000)
WAIT_SECONDS = 120.0


class PausedJob:
    """Jobs that derive closures, and keep what they derived until they are released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.derived, self.release = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self.jobs = 0
        original = ClosingJob.run

        def run(job: ClosingJob, spark: SparkSession) -> Any:
            files = original(job, spark)
            self.jobs += 1
            self.derived.set()
            assert self.release.wait(WAIT_SECONDS)
            if self.error is not None:
                raise self.error
            return files

        monkeypatch.setattr(ClosingJob, "run", run)

    def pump_until_derived(self, pump: Pump) -> None:
        self.derived.clear()
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.derived.is_set() and time.monotonic() < deadline:
            pump.round()
        assert self.derived.is_set()


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> Iterator[PausedJob]:
    job = PausedJob(monkeypatch)
    yield job
    job.release.set()


def filled_store(store: Store, author: Author, spark: SparkSession) -> Story:
    story = Story(author, keyed(), 7)
    pump = Pump(store, spark, EngineSettings(merge_files=100))
    for _ in range(3):
        story.publish(15)
        pump.step()
    return story


def damage(store: Store, pump: Pump, place: int) -> None:
    path = named_files(store, "closures")[place]
    flip(path)
    mend(pump.ledger, str(path.relative_to(store.root)))


def unclosed(store: Store) -> set[int]:
    return set(store.epochs.latest()[1].unclosed)


def assert_closed(store: Store, story: Story) -> None:
    stored = closures(store, story.stream)
    pairs = [(row["row_id"], row["by"]) for row in stored]
    assert len(set(pairs)) == len(pairs), "no closure is there twice"
    for high in range(len(story.rows) + 1):
        assert ends(stored, high) == KEYED.ends(story.rows[:high])
    assert not unclosed(store)


def test_rows_arrive_and_the_loop_fails_meanwhile(
    store: Store, author: Author, spark: SparkSession, paused: PausedJob
) -> None:
    story = filled_store(store, author, spark)
    pump = Pump(store, spark, EAGER)
    damage(store, pump, 1)
    paused.pump_until_derived(pump)
    assert unclosed(store) == {story.stream}
    for _ in range(4):
        high = store.epochs.latest()[1].streams[story.stream].high
        story.publish(15, keys=6)
        assert pump.round()
        assert store.epochs.latest()[1].streams[story.stream].high == high + 15
    # The loop goes back to the last epoch; the job goes on.
    pump.ledger = Pump(store, spark, EAGER).ledger
    paused.release.set()
    pump.run()
    assert_closed(store, story)
    assert paused.jobs == 1


@pytest.mark.parametrize("happens", ["more damage", "an error", "the grace passes", "a new engine"])
def test_a_result_that_can_t_be_taken_is_derived_again(
    store: Store, author: Author, spark: SparkSession, paused: PausedJob, happens: str
) -> None:
    story = filled_store(store, author, spark)
    pump = Pump(store, spark, EAGER)
    damage(store, pump, 1)
    paused.pump_until_derived(pump)
    if happens == "more damage":
        story.publish(15)
        pump.step()
        damage(store, pump, -1)
    elif happens == "an error":
        paused.error = ValueError("no reason")
        paused.release.set()
        while pump.reclosing._current is not None:
            pump.round()
        paused.error = None
    elif happens == "the grace passes":
        assert pump.reclosing._current is not None
        pump.reclosing._current.job.started -= EAGER.grace
        pump.round()
    else:
        pump = Pump(store, spark, EAGER)
    paused.release.set()
    pump.run()
    assert_closed(store, story)
    assert paused.jobs == 2


def test_the_stream_is_dropped_meanwhile(
    store: Store, author: Author, spark: SparkSession, paused: PausedJob
) -> None:
    story = filled_store(store, author, spark)
    pump = Pump(store, spark, EAGER)
    damage(store, pump, 1)
    paused.pump_until_derived(pump)
    author.drop(story.stream)
    pump.step()
    paused.release.set()
    pump.run()
    assert not unclosed(store)
    assert not closures(store, story.stream)


def test_killed_between_any_two_commits(
    store: Store,
    author: Author,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = filled_store(store, author, spark)
    flip(named_files(store, "closures")[1])
    story.publish(15)
    for passed in range(0, 100, 2):
        shutil.copytree(store.root, folder := tmp_path / f"victim-{passed}")
        victim = Store.open(folder, sync=False)
        monkeypatch.setattr(delta_commits, "put_if_absent", Killer(passed))
        try:
            Pump(victim, spark, WATCHFUL).run()
        except Killed:
            monkeypatch.setattr(delta_commits, "put_if_absent", durable.put_if_absent)
            Pump(victim, spark, WATCHFUL).run()
            assert_closed(victim, story)
        else:
            assert_closed(victim, story)
            break
    assert passed > 5
