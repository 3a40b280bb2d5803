"""The part of the log that one step takes, and how it is split into tasks."""

from __future__ import annotations

from psoup.engine.spark.jobs import Probed
from psoup.engine.steps.grid import StepCosts, StepLimits, split_into_chunks
from psoup.engine.steps.step import Stretch, next_stretch
from psoup.store import Store
from tests.support.engine.author import READINGS, Author, readings


def test_nothing_new_goes_nowhere(store: Store) -> None:
    assert next_stretch(store.log.folder, 0, StepLimits(100, 1 << 20)) == Stretch(0)
    assert split_into_chunks((), 2, 1) == []


def test_a_step_is_limited_in_commits(store: Store, author: Author) -> None:
    stream = author.create(READINGS)
    for _ in range(4):
        author.publish(stream, readings([1], [1.0]))
    limits = StepLimits(3, 1 << 20)
    first, second = (
        next_stretch(store.log.folder, 0, limits),
        next_stretch(store.log.folder, 3, limits),
    )
    assert (first.end, second.end) == (3, 5)
    versions = [file.version for file in (*first.files, *second.files)]
    assert versions == [1, 2, 3, 4, 5]


def test_a_step_is_limited_in_bytes_but_always_moves(store: Store, author: Author) -> None:
    author.create(READINGS)
    author.create(READINGS)
    news = next_stretch(store.log.folder, 0, StepLimits(100, 1))
    assert (news.end, len(news.files)) == (1, 1)


def test_a_commit_without_a_file_is_taken(store: Store, author: Author) -> None:
    author.create(READINGS)
    store.log.folder.commit(2, operation="TRIM", sync=False)
    news = next_stretch(store.log.folder, 1, StepLimits(100, 1 << 20))
    assert news == Stretch(2)


def test_tasks_hold_neighbours_and_every_commit_once(store: Store, author: Author) -> None:
    stream = author.create(READINGS)
    for count in (1, 5, 1, 1, 7):
        author.publish(stream, readings([1] * count, [0.0] * count))
    files = next_stretch(store.log.folder, 0, StepLimits(100, 1 << 20)).files
    parts = split_into_chunks(files, 2, 1)
    assert len(parts) == 2
    assert [file.version for part in parts for file in part] == list(range(1, 7))
    assert len(split_into_chunks(files, 2, 1 << 20)) == 1


def test_work_that_takes_long_is_divided_however_few_its_bytes(
    store: Store, author: Author
) -> None:
    for _ in range(8):
        author.create(READINGS)
    files = next_stretch(store.log.folder, 0, StepLimits(100, 1 << 20)).files
    costs, end = StepCosts(), 1 << 40
    assert costs.chunks({1: 1_000}) == 0
    costs.note([Probed(1, 0, 1_000, 0.5), Probed(2, 0, 1_000, 0.01)], 80)
    assert len(split_into_chunks(files, 8, end, costs.chunks({2: 1_000}))) == 1
    assert len(split_into_chunks(files, 8, end, costs.chunks({1: 1_000, 3: 9_000}))) == 4
    # No more than there are cores.
    assert len(split_into_chunks(files, 8, end, costs.chunks({1: 100_000}))) == 8
