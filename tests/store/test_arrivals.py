"""New files in folders, as the operating system reports them."""

from __future__ import annotations

import os
import select
import sys
import threading
from pathlib import Path

import pytest

from psoup.store.delta import arrivals
from psoup.store.delta.arrivals import Arrivals
from psoup.store.delta.durable import put_if_absent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")

HOUR_SECONDS = 3600.0


def watched(*folders: Path) -> Arrivals:
    opened = Arrivals.open(folders)
    assert opened is not None
    return opened


def has_news(new_files: Arrivals) -> bool:
    return bool(select.select([new_files.fileno()], [], [], 0)[0])


def test_a_commit_in_any_of_the_folders_arrives(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    new_files = watched(*folders)
    for folder in folders:
        assert not has_news(new_files)
        put_if_absent(folder / "1.json", b"{}", sync=False)
        assert has_news(new_files)
        new_files.clear()
    os.replace(tmp_path / "a" / "1.json", tmp_path / "b" / "2.json")
    new_files.wait(HOUR_SECONDS)
    assert not has_news(new_files)
    new_files.close()


def test_an_arrival_ends_a_wait_and_so_does_wake(tmp_path: Path) -> None:
    new_files, ends = watched(tmp_path), threading.Semaphore(0)

    def wait_twice() -> None:
        for _ in range(2):
            new_files.wait(HOUR_SECONDS)
            ends.release()

    waiting = threading.Thread(target=wait_twice, daemon=True)
    waiting.start()
    (tmp_path / "file").touch()
    assert ends.acquire(timeout=240)
    new_files.wake()
    assert ends.acquire(timeout=240)
    waiting.join(60)
    # A wait after it ends at once, too: a thread that is about to wait must not miss it.
    new_files.wait(HOUR_SECONDS)
    new_files.close()


def test_a_folder_that_other_machines_may_write_to_is_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert arrivals.is_local(tmp_path)
    assert not arrivals.is_local(Path("/proc"))
    assert not arrivals.is_local(tmp_path / "missing")
    monkeypatch.setattr(arrivals, "is_local", lambda folder: folder == tmp_path)
    (tmp_path / "far").mkdir()
    assert Arrivals.open([tmp_path, tmp_path / "far"]) is None


def test_a_system_without_room_is_polled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "is_local", lambda folder: True)
    before = len(os.listdir("/proc/self/fd"))
    assert Arrivals.open([tmp_path, tmp_path / "missing"]) is None
    assert len(os.listdir("/proc/self/fd")) == before
    assert "the store is polled" in caplog.text
