"""A pin is honoured while its counter rises, and an owner notices that it was not."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from psoup.engine.maintain import Chore
from psoup.engine.maintain.discard import Checkpoint, Trim, Vacuum
from psoup.engine.repair.recover import open_ledger
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from psoup.store.backup import pins
from psoup.store.backup.pins import PINS, Pin, PinWatch
from psoup.store.delta.durable import remove
from psoup.store.errors import BackupFailed
from tests.support.engine.author import READINGS, Author, readings
from tests.support.server.epochs import HandMadeEngine

NEVER = 3600.0


class Clock:
    """A monotonic clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pins, "time", clock)
    return clock


def test_a_pin_is_honoured_until_its_counter_has_stood_still(tmp_path: Path, clock: Clock) -> None:
    watch = PinWatch(600.0)
    assert not watch.are_held(tmp_path, remove)
    with Pin(tmp_path, NEVER) as pin:
        for _ in range(3):
            assert watch.are_held(tmp_path, remove)
            clock.now += 200.0
        assert not watch.are_held(tmp_path, remove), "its counter did not rise"
        with pytest.raises(BackupFailed, match="ignored the pin"):
            pin.check()
        pin._write()
        assert not watch.are_held(tmp_path, remove), "it does not come back"
        with pytest.raises(BackupFailed):
            pin.check()


def test_a_counter_that_rises_keeps_its_pin(tmp_path: Path, clock: Clock) -> None:
    watch = PinWatch(600.0)
    with Pin(tmp_path, NEVER) as pin:
        for _ in range(5):
            assert watch.are_held(tmp_path, remove)
            clock.now += 5000.0
            pin._write()
        pin.check()
        clock.now += 599.0
        assert PinWatch(600.0).are_held(tmp_path, remove), "a new engine counts from its first look"
    assert not watch.are_held(tmp_path, remove)


def test_a_killed_owner_and_a_damaged_pin_end_by_themselves(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / PINS).mkdir()
    (tmp_path / PINS / "a.json").write_bytes(b"\xff not a pin")
    (tmp_path / PINS / "b.json").mkdir()
    (tmp_path / PINS / "notes.txt").write_text("ignored")
    watch = PinWatch(600.0)
    assert watch.are_held(tmp_path, remove)
    clock.now += 600.0
    assert not watch.are_held(tmp_path, remove)
    assert {path.name for path in (tmp_path / PINS).iterdir()} == {"b.json", "notes.txt"}


def test_the_thread_raises_the_counter(tmp_path: Path) -> None:
    with Pin(tmp_path, 0.01) as pin:
        (path,) = (tmp_path / PINS).iterdir()
        before = path.read_bytes()
        while path.read_bytes() == before:
            pin.check()
    assert not list((tmp_path / PINS).iterdir())


def _names(store: Store) -> set[str]:
    return {str(path) for path in store.root.rglob("*") if path.parent.name != PINS}


def test_trim_checkpoint_and_vacuum_wait_for_pins(tmp_path: Path) -> None:
    """Each chore deletes in every round without the pin, and nothing while there is one."""
    store = Store.open(tmp_path / "store", create=True, sync=False)
    author, engine = Author(store), HandMadeEngine(store)
    stream = author.create(READINGS)
    settings = EngineSettings(
        housekeeping=0.0, grace=0.0, commit_grace=0.0, trim_commits=2, checkpoint_commits=2
    )
    chores: list[Chore] = [Trim(settings), Checkpoint(settings), Vacuum(settings)]

    def round() -> Iterable[str]:
        for _ in range(3):
            author.publish(stream, readings([1], [1.0]))
        engine.step()
        before = _names(store)
        ledger = open_ledger(store)
        for chore in chores:
            chore.advance(ledger)
        return before - _names(store)

    for _ in range(4):
        round()
    assert round(), "they delete"
    with Pin(store.root, NEVER):
        snapshot = store.log.folder.snapshot().files
        for _ in range(3):
            assert not round()
        assert snapshot.keys() <= store.log.folder.snapshot().files.keys(), "nothing was trimmed"
    round()
    assert round(), "they delete again"
