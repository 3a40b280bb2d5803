"""The source by itself, as Spark calls it."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql.streaming.datasource import ReadAllAvailable

from psoup.engine import source
from psoup.engine.alarm import Alarm
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from tests.engine.author import READINGS, Author, readings

LIMITS = EngineSettings(wait=0.0, step_commits=3, task_bytes=1)


def reader(store: Store, tmp_path: Path, settings: EngineSettings = LIMITS) -> source.LogReader:
    told = source.options(store.log.folder.root, tmp_path / "alarm", 0, 2, settings)
    return source.LogReader(told)


def test_nothing_new_is_the_same_offset(store: Store, tmp_path: Path) -> None:
    log = reader(store, tmp_path)
    start = log.initialOffset()
    assert log.latestOffset(start, ReadAllAvailable()) == start == {"version": 0, "tick": 0}
    assert log.partitions(start, start) == []


def test_a_step_is_limited_in_commits(store: Store, author: Author, tmp_path: Path) -> None:
    stream = author.create(READINGS)
    for _ in range(4):
        author.publish(stream, readings([1], [1.0]))
    log = reader(store, tmp_path)
    first = log.latestOffset(log.initialOffset(), ReadAllAvailable())
    assert first == {"version": 3, "tick": 0}
    assert log.latestOffset(first, ReadAllAvailable()) == {"version": 5, "tick": 0}


def test_a_step_is_limited_in_bytes_but_always_moves(
    store: Store, author: Author, tmp_path: Path
) -> None:
    author.create(READINGS)
    author.create(READINGS)
    log = reader(store, tmp_path, EngineSettings(wait=0.0, step_bytes=1))
    assert log.latestOffset(log.initialOffset(), ReadAllAvailable())["version"] == 1


def test_tasks_hold_neighbours_and_every_commit_once(
    store: Store, author: Author, tmp_path: Path
) -> None:
    stream = author.create(READINGS)
    for count in (1, 5, 1, 1, 7):
        author.publish(stream, readings([1] * count, [0.0] * count))
    log = reader(store, tmp_path)
    parts = log.partitions({"version": 0, "tick": 0}, {"version": 6, "tick": 0})
    batches = [batch for part in parts for batch in log.read(part)]
    assert len(parts) == 2
    assert [v for batch in batches for v in batch.column("version").to_pylist()] == list(
        range(1, 7)
    )


def test_the_tick_moves_when_it_is_due(store: Store, tmp_path: Path) -> None:
    log, alarm = reader(store, tmp_path), Alarm(tmp_path / "alarm")
    alarm.set(4, 60.0)
    start = log.initialOffset()
    assert log.latestOffset(start, ReadAllAvailable()) == start
    alarm.set(5, 0.0)
    assert log.latestOffset(start, ReadAllAvailable()) == {"version": 0, "tick": 5}
