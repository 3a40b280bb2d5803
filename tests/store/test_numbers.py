"""A version number is used once: commits behind two checkpoints go, and their numbers are free.

A writer that stalls in its link for that long finds a free number; nothing it links there may be
acknowledged, or read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from psoup.answers.replicas.replica import read_commit
from psoup.engine.maintain import discard
from psoup.engine.maintain.discard import Checkpoint, Trim
from psoup.engine.repair.recover import open_ledger
from psoup.engine.settings import EngineSettings
from psoup.store import Conflict, LogTrimmed, State, Store
from psoup.store.errors import Unconfirmed
from tests.store.test_state import EVENTS, entries
from tests.support.engine.author import READINGS, Author, readings
from tests.support.server.epochs import HandMadeEngine

STALLED = 3


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "store", create=True, sync=False)
    for version in range(1, STALLED):
        store.log.append(version, entries(EVENTS, version))
    return store


def stall_in_link(patch: pytest.MonkeyPatch, during_stall: Callable[[], None]) -> None:
    """Let the next link wait until `during_stall` has returned."""
    link = os.link

    def stalled(source: Path, target: Path) -> None:
        patch.setattr(os, "link", link)
        during_stall()
        link(source, target)

    patch.setattr(os, "link", stalled)


def go_on(store: Store, first: int, drop: bool = True) -> None:
    """Make five more versions with checkpoints at the third and the fifth, and drop commits."""
    for version in range(first, first + 5):
        store.log.append(version, entries(EVENTS, version))
        if version in (first + 2, first + 4):
            store.log.folder.checkpoint()
    if drop:
        store.log.folder.drop_commits(store.log.folder.floor())


def test_a_commit_on_a_freed_number_is_not_acknowledged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = Store.open(store.root, sync=False)
    stall_in_link(monkeypatch, lambda: go_on(rival, STALLED))
    with pytest.raises(Unconfirmed, match="version 3 of the table log"):
        store.log.append(STALLED, entries(EVENTS, STALLED))
    newest = STALLED + 4
    assert store.log.latest_version() == newest
    assert len(store.log.folder.snapshot().files) == newest, "the late file is not among them"
    with pytest.raises(LogTrimmed):
        read_commit(store, STALLED, State())
    store.log.append(newest + 1, entries(EVENTS, newest + 1))
    # The next clean-up removes it.
    store.log.folder.drop_commits(store.log.folder.floor())
    assert store.log.folder.read_commit(STALLED) is None


def test_a_number_that_was_freed_before_the_commit_is_a_conflict(store: Store) -> None:
    go_on(Store.open(store.root, sync=False), STALLED)
    files = sorted(store.log.folder.root.rglob("*"))
    with pytest.raises(Conflict):
        store.log.append(STALLED, entries(EVENTS, STALLED))
    assert sorted(store.log.folder.root.rglob("*")) == files


def test_a_commit_that_others_consumed_before_its_writer_woke_is_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number is behind one checkpoint, so it can't have been free a second time."""
    link = os.link

    def slow(source: Path, target: Path) -> None:
        link(source, target)
        monkeypatch.setattr(os, "link", link)
        rival = Store.open(store.root, sync=False)
        rival.log.append(STALLED + 1, entries(EVENTS, STALLED + 1))
        rival.log.folder.checkpoint(STALLED)
        rival.log.folder.checkpoint()

    monkeypatch.setattr(os, "link", slow)
    appended, nbytes = store.log.append(STALLED, entries(EVENTS, STALLED))
    assert nbytes > 0
    assert read_commit(store, STALLED, State())[0] == appended


def test_the_floor_stays_if_a_damaged_checkpoint_is_taken_away(store: Store) -> None:
    go_on(store, STALLED, drop=False)
    folder = store.log.folder
    assert folder.floor() == STALLED + 2
    folder.drop_commits(folder.floor())
    (folder.log / f"{STALLED + 4:020d}.checkpoint.parquet").write_bytes(b"")
    folder.mend()
    assert folder.floor() == STALLED + 2


# ---- the chores


class Clock:
    """A monotonic clock that tests move by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(discard, "time", clock)
    return clock


def versions_of(store: Store) -> list[int]:
    return store.log.folder.versions()


def test_commits_stay_behind_two_checkpoints_for_the_grace_of_a_steady_clock(
    tmp_path: Path, clock: Clock
) -> None:
    """Clocks of machines do not matter: one that is set forward frees no number."""
    store = Store.open(tmp_path / "store", create=True, sync=False)
    author, engine = Author(store), HandMadeEngine(store)
    stream = author.create(READINGS)
    chore = Checkpoint(EngineSettings(housekeeping=0.0, checkpoint_commits=4, commit_grace=600.0))

    def checkpoint() -> None:
        for _ in range(4):
            author.publish(stream, readings([1], [1.0]))
        engine.step()
        chore.advance(open_ledger(store))
        for path in store.log.folder.log.iterdir():
            os.utime(path, (0.0, 0.0))

    checkpoint()
    checkpoint()
    floor = store.log.folder.floor()
    assert 0 < floor < store.log.latest_version()
    clock.now += 599.0
    checkpoint()
    assert versions_of(store)[0] == 0
    clock.now += 1.0
    checkpoint()
    assert versions_of(store)[0] == floor, "those that were behind two checkpoints 600 s ago"
    assert not list(store.log.folder.log.glob(f"{0:020d}*"))


def test_trimming_goes_on_over_commits_that_are_gone_behind_a_checkpoint(tmp_path: Path) -> None:
    """An engine that was away makes its checkpoints faster than it trims."""
    store = Store.open(tmp_path / "store", create=True, sync=False)
    author, engine = Author(store), HandMadeEngine(store)
    stream = author.create(READINGS)
    trim = Trim(EngineSettings(trim_commits=20))

    def steps(count: int) -> None:
        for _ in range(count):
            for _ in range(3):
                author.publish(stream, readings([1], [1.0]))
            engine.step()
            trim.advance(open_ledger(store))

    steps(4)
    folder = store.log.folder
    for _ in range(2):
        for _ in range(6):
            author.publish(stream, readings([1], [1.0]))
        engine.step()
        folder.checkpoint()
    folder.drop_commits(folder.floor())
    steps(3)
    live = folder.snapshot().files
    assert 0 < len(live) < 10, "what was consumed is trimmed"
    _, epoch = store.epochs.latest()
    newest = store.log.file(epoch.log_version)
    assert newest is not None and newest.path in live, "the last step's files are not"
