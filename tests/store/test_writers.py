"""Writer marks: one for each process that appends, in the log and in the tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psoup.store import (
    Conflict,
    Entry,
    Position,
    State,
    Store,
    Tick,
    Touched,
    WriterMarks,
    WriterStarted,
)
from tests.support.tables import epoch_of, write_changes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    Store.open(tmp_path / "store", create=True, sync=False)
    return tmp_path / "store"


def _tick(version: int, stamp: int = 5) -> list[Entry]:
    return [Entry(Position(version, 0), stamp, "main", "main", Tick(), "a", stamp)]


def _marks(store: Store) -> list[tuple[int, int]]:
    state = State()
    for version in range(1, store.log.latest_version() + 1):
        for entry in store.log.read(version):
            state.apply(entry)
    return list(state.writers)


def test_the_first_commit_of_each_process_ends_with_its_mark(root: Path) -> None:
    first, second = Store.open(root, sync=False), Store.open(root, sync=False)
    entries, nbytes = first.log.append(1, _tick(1))
    assert [type(entry.event) for entry in entries] == [Tick, WriterStarted] and nbytes
    assert list(first.log.read(1)) == list(entries)
    assert (entries[1].position, entries[1].stamp) == (Position(1, 1), 5)
    assert (entries[1].tenant, entries[1].server, entries[1].clock) == ("", "a", 5)
    assert len(first.log.append(2, _tick(2))[0]) == 1
    with pytest.raises(Conflict):
        second.log.append(2, _tick(2))
    second.log.append(3, _tick(3))
    first.log.append(4, _tick(4))
    (first_version, first_mark), (second_version, second_mark) = _marks(first)
    assert (first_version, second_version) == (1, 3) and first_mark != second_mark


def test_a_trim_bears_the_mark_of_an_engine_that_has_not_appended(root: Path) -> None:
    store, engine = Store.open(root, sync=False), Store.open(root, sync=False)
    store.log.append(1, _tick(1, 5))
    store.log.append(2, _tick(2, 7))
    (file,) = [log_file for log_file in [store.log.file(1)] if log_file]
    _, epoch = store.epochs.latest()
    with pytest.raises(Conflict):
        engine.log.trim(2, [file], epoch)
    engine.log.trim(3, [file], epoch)
    assert file.path not in engine.log.folder.snapshot().files
    (entry,) = engine.log.read(3)
    assert entry.stamp == 7, "time goes on only by servers' clocks"
    second_file = store.log.file(2)
    assert second_file is not None
    engine.log.trim(4, [second_file], epoch)
    assert engine.log.read(4) == []
    state = State()
    state.apply(entry)
    assert list(state.writers) == [(3, entry.event.mark)]  # type: ignore[union-attr]


def test_the_tables_keep_every_mark(root: Path) -> None:
    store, state, touched = Store.open(root, sync=False), State(), Touched()
    for version in (1, 2, 3):
        for entry in Store.open(root, sync=False).log.append(version, _tick(version))[0]:
            state.apply(entry, touched)
    assert len(state.writers) == 3
    versions: dict[str, int] = {}
    write_changes(store, state, touched, versions)
    assert store.state(epoch_of(state, versions)).writers == state.writers


@given(st.dictionaries(st.integers(1, 60), st.integers(-(2**63), 2**63 - 1)))
def test_the_newest_mark_at_or_before_a_version(marks: dict[int, int]) -> None:
    versions = sorted(marks)
    whole = WriterMarks(versions, [marks[version] for version in versions])
    grown = WriterMarks()
    for version in versions:
        grown = grown.add(version, marks[version])
    assert grown == whole and len(whole) == len(marks)
    for version in range(70):
        newest = max((candidate for candidate in versions if candidate <= version), default=None)
        assert whole.at(version) == (0 if newest is None else marks[newest])
