"""How far a step goes, and how it is cut into tasks."""

from __future__ import annotations

from psoup.engine.intake import reach, tasks
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from tests.engine.author import READINGS, Author, readings


def test_nothing_new_goes_nowhere(store: Store) -> None:
    assert reach(store.log.folder, 0, EngineSettings()) == 0
    assert tasks(store.log.folder, 0, 0, 2, 1) == []


def test_a_step_is_limited_in_commits(store: Store, author: Author) -> None:
    stream = author.create(READINGS)
    for _ in range(4):
        author.publish(stream, readings([1], [1.0]))
    limits = EngineSettings(step_commits=3)
    assert reach(store.log.folder, 0, limits) == 3
    assert reach(store.log.folder, 3, limits) == 5


def test_a_step_is_limited_in_bytes_but_always_moves(store: Store, author: Author) -> None:
    author.create(READINGS)
    author.create(READINGS)
    assert reach(store.log.folder, 0, EngineSettings(step_bytes=1)) == 1


def test_tasks_hold_neighbours_and_every_commit_once(store: Store, author: Author) -> None:
    stream = author.create(READINGS)
    for count in (1, 5, 1, 1, 7):
        author.publish(stream, readings([1] * count, [0.0] * count))
    parts = tasks(store.log.folder, 0, 6, 2, 1)
    assert len(parts) == 2
    assert [file.version for part in parts for file in part] == list(range(1, 7))
    assert len(tasks(store.log.folder, 0, 6, 2, 1 << 20)) == 1
