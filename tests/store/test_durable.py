"""A write that fails half way leaves nothing behind."""

from __future__ import annotations

import errno
import itertools
import os
import time
from functools import partial
from pathlib import Path

import pytest

from psoup.store import Conflict, Store
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
    assert store.log.read(1)[:-1] == entries(EVENTS)


def test_what_another_linked_is_synced_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process may be between the link and the sync of the folder, or have died there."""
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
    """The process that made the folders may have died before it synced them."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    synced: list[Path] = []
    monkeypatch.setattr("psoup.store.delta.durable.sync_folder", synced.append)
    for name in ("c", "d"):
        write_durably(tmp_path / "a" / "b" / name, lambda path: path.touch(), top=tmp_path)
    assert synced[:2] == [tmp_path, tmp_path / "a"]
    assert synced[2:] == [tmp_path / "a" / "b"] * 2


LINK_ERRORS = [errno.EEXIST, errno.ENOENT, errno.EIO, errno.ESTALE]


def misreport_links(patch: pytest.MonkeyPatch, code: int, every: int = 1) -> None:
    """Let one in `every` links succeed and report an error, as NFS may."""
    link, calls = os.link, itertools.count(1)

    def misreport(source: Path, target: Path) -> None:
        link(source, target)
        if next(calls) % every == 0:
            raise OSError(code, "injected")

    patch.setattr(os, "link", misreport)


@pytest.mark.parametrize("code", LINK_ERRORS)
def test_a_link_that_reports_an_error_although_it_was_made_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    synced: list[Path] = []
    with monkeypatch.context() as patch:
        misreport_links(patch, code)
        patch.setattr("psoup.store.delta.durable.sync_folder", synced.append)
        put_if_absent(tmp_path / "a", b"own")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert synced == [tmp_path], "it is durable before it is reported"
    with pytest.raises(FileExistsError):
        put_if_absent(tmp_path / "a", b"own")


@pytest.mark.parametrize("code", LINK_ERRORS)
def test_a_link_that_failed_is_not_taken_for_one_that_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Neither over the file of another process, nor if a back-up has linked the draft."""
    link = os.link

    def fail(source: Path, target: Path) -> None:
        link(source, tmp_path / "back-up")
        raise OSError(code, "injected")

    (tmp_path / "a").write_bytes(b"other")
    for target in ("a", "b"):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="injected"):
            patch.setattr(os, "link", fail)
            put_if_absent(tmp_path / target, b"own")
        (tmp_path / "back-up").unlink(missing_ok=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_of_two_writers_whose_links_are_misreported_one_makes_each_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [Store.open(tmp_path / "store", create=True, sync=False) for _ in range(2)]
    misreport_links(monkeypatch, errno.EEXIST, every=3)
    for version in range(1, 10):
        first, second = stores if version % 2 else stores[::-1]
        first.log.append(version, entries(EVENTS, version))
        with pytest.raises(Conflict):
            second.log.append(version, entries(EVENTS, version))
    assert len(list((tmp_path / "store" / "log").glob("*.parquet"))) == 9
