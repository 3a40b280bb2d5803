"""Files that were copied, restored or damaged lose nothing, and send nothing twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from client_sdk import ConnectionFailed, Copies, Timeout
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._queue.outbox import Outbox
from tests.support.client_sdk.flaky_store import FlakyStore, client_of, rows


@pytest.mark.parametrize("forgets", [False, True])
def test_a_file_from_a_backup_loses_nothing_new(
    store: FlakyStore, tmp_path: Path, opened: Callable[[], Outbox], forgets: bool
) -> None:
    """If the store has forgotten what a sequence held, the batch waits for a decision."""
    outbox, client = opened(), client_of(store)
    outbox.publish("s", rows(1))
    outbox.send(client)
    _back_up(tmp_path / "phone.db", tmp_path / "backup.db")
    outbox.publish("s", rows(2))
    outbox.publish("s", rows(3))
    outbox.send(client)
    store.forgets = forgets
    file = CopyFile(tmp_path / "backup.db")
    restored = Outbox(file)
    restored.publish("s", rows(4))
    restored.publish("s", rows(5))
    sent = restored.send(client)
    assert (sent.batches, len(sent.doubtful)) == ((1, 1) if forgets else (2, 0))
    if forgets:
        assert (restored.queued.doubtful, restored.queued.batches) == (1, 0)
        [doubtful] = restored.doubtful
        assert (doubtful.reason, doubtful.content.to_pylist()) == ("UNVERIFIED", rows(4))
        assert restored.resend(doubtful.batch) == 1
        assert restored.send(client).batches == 1
    file.close()
    assert sorted(store.values()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("stored", range(4))
def test_two_clones_send_what_waited_once(
    store: FlakyStore, tmp_path: Path, opened: Callable[[], Outbox], forgets: bool, stored: int
) -> None:
    """Both files have the same batches, and each has some of its own; the first is anywhere."""
    outbox, client = opened(), client_of(store)
    for number in range(3):
        outbox.publish("s", rows(number))
    _back_up(tmp_path / "phone.db", tmp_path / "clone.db")
    store.faults = iter([""] * stored + ["there"])
    outbox.publish("s", rows(10))
    with pytest.raises(ConnectionFailed):
        outbox.send(client)
    store.forgets = forgets
    file = CopyFile(tmp_path / "clone.db")
    clone = Outbox(file)
    clone.publish("s", rows(20))
    clone.publish("s", rows(21))
    clone.send(client)
    outbox.send(client)
    clone.publish("s", rows(22))
    clone.send(client)
    undecided = [doubtful for box in (outbox, clone) for doubtful in box.doubtful]
    for box in (outbox, clone):
        for doubtful in box.doubtful:
            present = doubtful.content.column("a")[0].as_py() in store.values()
            assert (box.discard if present else box.resend)(doubtful.batch) == 1
        box.send(client)
        assert not box.queued and not box.doubtful and not box.rejected
    file.close()
    assert sorted(store.values()) == [0, 1, 2, 10, 20, 21, 22]
    assert forgets or not undecided


def test_what_is_doubtful_is_discarded_only_by_its_number(
    store: FlakyStore, tmp_path: Path, opened: Callable[[], Outbox]
) -> None:
    outbox, client = opened(), client_of(store)
    _back_up(tmp_path / "phone.db", tmp_path / "backup.db")
    outbox.publish("s", rows(1))
    outbox.publish("nowhere", rows(1))
    _clone_identity(tmp_path / "phone.db", tmp_path / "backup.db")
    outbox.publish("s", rows(2))
    outbox.send(client)
    store.forgets = True
    file = CopyFile(tmp_path / "backup.db")
    restored = Outbox(file)
    restored.publish("s", rows(3))
    assert len(restored.send(client).doubtful) == 1
    with pytest.raises(ValueError, match="no batch 7 was put aside; those that were: "):
        restored.discard(7)
    assert restored.discard() == 0 and restored.queued.doubtful == 1
    with pytest.raises(ValueError, match="was refused"):
        restored.requeue(restored.doubtful[0].batch)
    assert restored.discard(restored.doubtful[0].batch) == 1 and not restored.doubtful
    file.close()


def _clone_identity(path: Path, target: Path) -> None:
    raw = sqlite3.connect(target)
    with raw:
        raw.execute("ATTACH ? AS original", (str(path),))
        raw.execute("INSERT INTO _psoup_publisher SELECT * FROM original._psoup_publisher")
    raw.close()


def _back_up(path: Path, target: Path) -> None:
    source, backup = sqlite3.connect(path), sqlite3.connect(target)
    source.backup(backup)
    source.close()
    backup.close()


def test_a_damaged_batch_is_not_published(
    store: FlakyStore, tmp_path: Path, opened: Callable[[], Outbox]
) -> None:
    outbox = opened()
    outbox.publish("s", rows(1))
    outbox.publish("s", rows(2))
    raw = sqlite3.connect(tmp_path / "phone.db")
    with raw:
        raw.execute("UPDATE _psoup_queue SET payload = zeroblob(40) WHERE batch = 1")
    raw.close()
    sent = outbox.send(client_of(store))
    assert store.values() == [2]
    assert [(rejected.batch, rejected.reason) for rejected in sent.rejected] == [(1, "DAMAGED")]


def test_what_waits_survives_a_recovery(store: FlakyStore, tmp_path: Path) -> None:
    path, client = tmp_path / "phone.db", client_of(store)
    with Copies(path) as copies:
        copies.publish("s", rows(1))
        store.faults = iter(["back"])
        with pytest.raises(Timeout):
            copies.send(client)
        copies.publish("s", rows(2))
    assert Copies.recover(path).rows == 5
    with Copies(path) as copies:
        sent = copies.send(client)
    assert (sent.batches, sent.duplicates, store.values()) == (2, 1, [1, 2])
