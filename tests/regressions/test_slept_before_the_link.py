"""A server that slept between writing a file and linking its commit named a file that was deleted.

Nobody names the file meanwhile, so the engine's clean-up takes it once the grace is over. The rows
were acknowledged, and in no answer.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from psoup.engine.maintain.discard import Vacuum
from psoup.engine.repair.recover import open_ledger
from psoup.engine.settings import EngineSettings
from psoup.store import Store
from psoup.store.delta.durable import MIN_GRACE_SECONDS
from psoup.store.delta.files import DataFile, write_data_file
from psoup.store.errors import FileGone
from tests.store.test_state import EVENTS, entries

ENTRIES = entries(EVENTS)[:1]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store", create=True)


def on_disk(store: Store) -> list[str]:
    return [path.name for path in store.log.folder.root.glob("*.parquet")]


def after_the_first_write(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[Path], None]) -> None:
    """Something happens when the file of a commit is written, and before the commit is made."""
    written: list[DataFile] = []

    def write(root: Path, *args: Any, **named: Any) -> DataFile:
        written.append(write_data_file(root, *args, **named))
        if len(written) == 1:
            sleep(root / written[0].path)
        return written[-1]

    monkeypatch.setattr("psoup.store.log.log.write_data_file", write)


def clean_up(store: Store) -> None:
    """The engine's, when the grace of everything unnamed is over."""
    vacuum = Vacuum(EngineSettings(grace=0.0, housekeeping=0.0))
    ledger = open_ledger(store)
    for _ in range(2):
        vacuum.advance(ledger)


def test_a_file_deleted_before_the_link_is_written_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_the_first_write(monkeypatch, lambda _: clean_up(store))
    store.log.append(1, ENTRIES)
    assert store.log.read(1)[:-1] == ENTRIES
    assert len(on_disk(store)) == 1


def test_a_file_as_old_as_half_the_grace_is_not_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there still, and may be deleted the moment after."""
    old: list[str] = []
    clock = [0.0]
    monkeypatch.setattr("psoup.store.delta.durable.seconds", lambda: clock[0])

    def sleep(path: Path) -> None:
        old.append(path.name)
        clock[0] += MIN_GRACE_SECONDS / 2 + 1

    after_the_first_write(monkeypatch, sleep)
    store.log.append(1, ENTRIES)
    assert store.log.read(1)[:-1] == ENTRIES
    assert on_disk(store) != old


def test_a_server_that_falls_asleep_at_the_link_itself(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, asleep, awake = os.link, threading.Event(), threading.Event()

    def sleep_once(source: Path, target: Path) -> None:
        if not asleep.is_set():
            asleep.set()
            assert awake.wait(240)
        link(source, target)

    monkeypatch.setattr(os, "link", sleep_once)
    with ThreadPoolExecutor(1) as pool:
        appending = pool.submit(store.log.append, 1, ENTRIES)
        assert asleep.wait(240)
        clean_up(store)
        awake.set()
        appending.result()
    assert store.log.read(1)[:-1] == ENTRIES
    assert len(on_disk(store)) == 1


def test_no_table_gets_a_commit_that_names_nothing(store: Store) -> None:
    folder = store.table("coverage")
    table = pa.table({"stream_id": pa.array([1])})
    written = write_data_file(folder.root, table)
    folder.path_of(written).unlink()
    with pytest.raises(FileGone, match="is gone"):
        folder.commit(1, [written], operation="TEST")
    assert folder.read_commit(1) is None


def test_a_disk_that_is_too_slow_for_ever_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10**9, int(MIN_GRACE_SECONDS)))
    monkeypatch.setattr("psoup.store.delta.durable.seconds", lambda: next(clock))
    with pytest.raises(OSError, match="seconds ago"):
        store.log.append(1, ENTRIES)
    assert store.log.folder.read_commit(1) is None
    assert on_disk(store) == []
