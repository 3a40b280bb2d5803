"""A back-up made while the engine steps, merges, trims and deletes between any two files."""

from __future__ import annotations

import itertools
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from psoup.engine.settings import EngineSettings
from psoup.store import Store
from psoup.store.backup import folder as folders
from psoup.store.backup.copying import damaged_files
from psoup.store.backup.making import BackupOptions, back_up
from psoup.store.backup.pins import Pin
from psoup.store.backup.restoring import restore
from psoup.store.delta import durable
from psoup.store.errors import BackupFailed, StoreError
from tests.support.engine.author import READINGS, Author, above, readings, sensor_is
from tests.support.engine.pump import Pump
from tests.support.engine.reading import assert_joined, stem_rows

pytestmark = pytest.mark.spark

# Everything that may be deleted is deleted at once.
EAGER = EngineSettings(
    housekeeping=0.0,
    grace=0.0,
    commit_grace=0.0,
    trim_commits=1,
    checkpoint_commits=2,
    merge_files=2,
    compact_files=2,
)


class Working:
    """An engine under load: `go_on` publishes, steps and does chores."""

    def __init__(self, store: Store, author: Author, pump: Pump) -> None:
        self.store, self.author, self.pump = store, author, pump
        self.stream = author.create(READINGS)
        _, self.high = author.register(self.stream, above(1.0))
        _, self.second = author.register(self.stream, sensor_is(2))
        self.rows: list[tuple[int, float]] = []
        self.dice = Random(7)

    def publish(self) -> None:
        rows = [(self.dice.randrange(4), self.dice.uniform(0, 2)) for _ in range(3)]
        self.author.publish(self.stream, readings(*map(list, zip(*rows, strict=True))))
        self.rows += rows

    def go_on(self) -> None:
        self.publish()
        self.pump.step()
        # Each chore has its turn.
        for _ in range(11):
            self.pump.maintenance.advance(self.pump.ledger)

    def check(self, root: Path, log_end: int) -> int:
        """Check a restored store after an engine has run on it; return how many rows it has."""
        store = Store.open(root, sync=False)
        assert store.log.latest_version() == log_end
        Pump(store, self.pump.spark).run()
        rows = stem_rows(store, self.stream)
        values = [(row["sensor"], row["value"]) for row in rows]
        assert values == self.rows[: len(values)], "a prefix of what was published"
        meanings = {
            self.high: lambda row: row["value"] > 1.0,
            self.second: lambda row: row["sensor"] == 2,
        }
        assert_joined(store, self.stream, meanings)
        return len(values)


@pytest.fixture
def working(store: Store, author: Author, spark: SparkSession) -> Working:
    working = Working(store, author, Pump(store, spark, EAGER))
    for _ in range(4):
        working.go_on()
    return working


def _interleave(working: Working, patch: pytest.MonkeyPatch, pause: int) -> None:
    """Let the engine work before every `pause`-th file that is copied, one after the other."""
    copy_file, numbers = durable.copy_file, itertools.count(1)

    def copy(source: Path, target: Path) -> tuple[int, int]:
        if next(numbers) % pause == 0:
            working.go_on()
        return copy_file(source, target)

    patch.setattr(folders.FolderFiles, "threads", 1)
    patch.setattr(folders, "copy_file", copy)


@pytest.mark.parametrize(
    ("pause", "back_ups"), [(10, 1), pytest.param(5, 2, marks=pytest.mark.long)]
)
def test_a_back_up_beside_a_working_engine_is_a_prefix(
    working: Working, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause: int, back_ups: int
) -> None:
    with monkeypatch.context() as patch:
        _interleave(working, patch, pause)
        for number in range(back_ups):
            acknowledged = len(working.rows)
            report = back_up(working.store.root, tmp_path / "target")
            generation = report.generation
            assert not list(damaged_files(generation.files, generation.marks()))
            root = tmp_path / f"restored {number}"
            assert restore(tmp_path / "target", root).log_end == generation.header.log_end
            assert working.check(root, generation.header.log_end) >= acknowledged
            working.go_on()


def test_without_its_pin_a_back_up_is_not_finished(
    working: Working, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine ignores pins at once, as it does those whose counter stands still."""
    for chore in working.pump.maintenance._chores:
        if hasattr(chore, "_pins"):
            chore._pins._timeout = 0.0
    _interleave(working, monkeypatch, 5)
    with pytest.raises((BackupFailed, StoreError, FileNotFoundError)):
        back_up(working.store.root, tmp_path / "target")
    monkeypatch.setattr(Pin, "check", lambda pin: None)
    with pytest.raises((BackupFailed, StoreError, FileNotFoundError)):
        for _ in range(5):
            back_up(working.store.root, tmp_path / "target", BackupOptions(verify=True))
    assert not list((tmp_path / "target").glob("0*/manifest.jsonl"))
