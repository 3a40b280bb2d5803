"""Killed between any two commits, the engine ends where it would have ended anyway."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from datastem.schema import Column
from datastem.types import DOUBLE, TEXT
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from psoup.store.delta import commits as delta_commits
from psoup.store.delta import durable
from querystem.language import DropColumn, RenameColumn
from tests.support.engine.author import (
    READINGS,
    Author,
    above,
    add_column,
    alter_columns,
    fee_is,
    readings,
    sensor_is,
)
from tests.support.engine.killing import Killed, Killer
from tests.support.engine.pump import Pump
from tests.support.engine.reading import covered, matched, stem_rows
from tests.support.lengths import short_first

pytestmark = pytest.mark.spark

BUSY = EngineSettings(
    slice_rows=12,
    slice_seconds=0.0,
    housekeeping=0.0,
    trim_commits=2,
    checkpoint_commits=1000,
    merge_files=2,
    compact_files=1,
)

# The commits after which a run of the test dies are this far apart.
EVERY = 6


def write_log(store: Store) -> tuple[list[int], int, list[int]]:
    """Return the versions at which steps end, the stream, and the predicates."""
    author = Author(store)
    stream = author.create(READINGS)
    handle, _ = author.register(stream, above(1.0))
    author.publish(stream, readings([1, 2] * 10, [float(n) for n in range(20)]), "me")
    ends = [author.state.position.version]
    author.unregister(handle)
    _, first = author.register(stream, above(7.5))
    _, second = author.register(stream, sensor_is(2))
    author.publish(stream, readings([2, 3], [0.0, 60.0]), "me")
    add_column(author, stream, Column("fee", DOUBLE, default=1.5))
    _, free = author.register(stream, fee_is(1.5))
    author.publish(stream, readings([2, 3], [0.0, 60.0]), "me")
    alter_columns(author, stream, RenameColumn("fee", "charge"))
    add_column(author, stream, Column("note", TEXT, default="none"))
    author.publish(stream, readings([2, 3], [0.0, 60.0]), "me")
    alter_columns(author, stream, DropColumn("note"))
    alter_columns(author, stream, RenameColumn("sensor", "gauge"))
    author.publish(stream, readings([2, 3], [0.0, 60.0]), "me")
    ends.append(author.state.position.version)
    return ends, stream, [first, second, free]


def drive(store: Store, spark: SparkSession, ends: list[int]) -> None:
    """Run the engine to the end of the log, with a slice and a chore after each step."""
    pump = Pump(store, spark, BUSY)
    for end in ends:
        pump.step(max(end, pump.ledger.epoch.log_version))
        pump.backfill.advance(pump.ledger)
        pump.maintenance.advance(pump.ledger)
    pump.run()


def outcome(store: Store, stream: int, predicates: list[int]) -> dict[str, Any]:
    _, epoch = store.epochs.latest()
    state = store.state(epoch)
    return {
        "rows": stem_rows(store, stream),
        "matched": [matched(store, predicate) for predicate in predicates],
        "covered": [covered(store, stream, predicate) for predicate in predicates],
        "registrations": state.registrations,
        "predicates": state.predicates,
        "publishers": state.publishers,
        "streams": {stream: epoch.streams[stream].high},
        "position": epoch.position,
        "schema": state.streams[stream].schema,
    }


def copy(origin: Store, folder: Path) -> Store:
    shutil.copytree(origin.root, folder)
    return Store.open(folder, sync=False)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", short_first(range(EVERY)))
def test_killed_between_any_two_commits(
    store: Store, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    ends, stream, predicates = write_log(store)
    whole = copy(store, tmp_path / "whole")
    drive(whole, spark, ends)
    expected = outcome(whole, stream, predicates)
    assert expected["covered"] == [[(0, 28)]] * 3
    passed = first
    while True:
        victim = copy(store, tmp_path / f"victim-{passed}")
        killer = Killer(passed)
        monkeypatch.setattr(delta_commits, "put_if_absent", killer)
        try:
            drive(victim, spark, ends)
        except Killed:
            monkeypatch.setattr(delta_commits, "put_if_absent", durable.put_if_absent)
            drive(victim, spark, ends)
            assert outcome(victim, stream, predicates) == expected
            passed += EVERY
        else:
            break
    assert passed > 20


def test_recovering_twice_changes_nothing(
    store: Store, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, _, _ = write_log(store)
    monkeypatch.setattr(delta_commits, "put_if_absent", Killer(7))
    with pytest.raises(Killed):
        drive(store, spark, ends)
    monkeypatch.undo()
    first = Pump(store, spark).ledger
    second = Pump(store, spark).ledger
    assert second.tables == first.tables
    assert second.epoch == first.epoch
