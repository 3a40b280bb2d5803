"""What fails half way leaves nothing behind."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import pytest

from psoup.store import Store
from psoup.store.delta.durable import put_if_absent, together, write_durably
from tests.store.test_state import EVENTS, entries


def test_put_if_absent_keeps_the_first(tmp_path: Path) -> None:
    put_if_absent(tmp_path / "a", b"first")
    with pytest.raises(FileExistsError):
        put_if_absent(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_durably(tmp_path / "part", fail)
    assert list(tmp_path.iterdir()) == []


def test_what_is_done_together_has_ended_when_one_fails() -> None:
    ended = []

    def slow(number: int) -> int:
        time.sleep(0.01 * number)
        ended.append(number)
        return number

    def fail(_: int) -> int:
        raise OSError(28, "No space left on device")

    assert together(partial(slow, number) for number in (3, 0, 2, 1)) == [3, 0, 2, 1]
    with pytest.raises(OSError, match="No space"):
        together(partial(fail if number == 4 else slow, number) for number in range(4, 9))
    assert sorted(ended) == [0, 1, 2, 3, 5, 6, 7, 8]


def test_a_log_append_on_a_full_disk_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(tmp_path / "store", create=True)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    before = sorted(store.log.folder.root.rglob("*"))
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(os, "fsync", full)
        store.log.append(1, entries(EVENTS))
    assert sorted(store.log.folder.root.rglob("*")) == before
    store.log.append(1, entries(EVENTS))
    assert store.log.latest_version() == 1


def test_a_commit_that_was_seen_keeps_its_file_when_the_sync_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(tmp_path / "store", create=True)

    def fail(folder: Path) -> None:
        if folder.name == "_delta_log":
            raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output"):
        patch.setattr("psoup.store.delta.durable.sync_folder", fail)
        store.log.append(1, entries(EVENTS))
    assert store.log.read(1) == entries(EVENTS)


def test_what_another_linked_is_synced_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its maker may be between the link and the sync of the folder, or have died there."""
    maker = Store.open(tmp_path / "store", create=True)
    reader = Store.open(tmp_path / "store")
    synced: list[Path] = []
    monkeypatch.setattr("psoup.store.log.log.sync_folder", synced.append)
    for version in (1, 2):
        maker.log.append(version, entries(EVENTS, version))
    maker.log.read(2)
    assert synced == []
    reader.log.read(1)
    reader.log.read(2)
    assert synced == [reader.log.folder.log]


def test_every_folder_above_a_new_file_is_synced_by_each_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made the folders may have died before they were."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    synced: list[Path] = []
    monkeypatch.setattr("psoup.store.delta.durable.sync_folder", synced.append)
    for name in ("c", "d"):
        write_durably(tmp_path / "a" / "b" / name, lambda path: path.touch(), top=tmp_path)
    assert synced[:2] == [tmp_path, tmp_path / "a"]
    assert synced[2:] == [tmp_path / "a" / "b"] * 2
