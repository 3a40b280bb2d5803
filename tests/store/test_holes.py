"""A version that is missing, empty or torn is damage with a name: never an end, never no rows."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from psoup.engine.repair.recover import open_ledger
from psoup.store import Conflict, CorruptStore, DeltaFolder, LogTrimmed, Store
from psoup.store.delta import Snapshot, TableDefinition
from psoup.store.delta.files import write_data_file
from tests.support.engine.author import READINGS, Author, above, readings
from tests.support.server.epochs import HandMadeEngine

SCHEMA = pa.schema([("a", pa.int64())])


@pytest.fixture
def folder(tmp_path: Path) -> DeltaFolder:
    return table(tmp_path / "t", 15)


def table(root: Path, versions: int, checkpointed: Iterable[int] = ()) -> DeltaFolder:
    """Return a table with a file in each version."""
    folder = DeltaFolder(root)
    folder.create(TableDefinition(SCHEMA))
    for version in range(1, versions + 1):
        add(folder, version)
        if version in checkpointed:
            folder.checkpoint()
    return folder


def add(folder: DeltaFolder, version: int) -> None:
    written = write_data_file(folder.root, pa.table({"a": [version]}))
    folder.commit(version, [written], operation="TEST")


def commit(folder: DeltaFolder, version: int) -> Path:
    return folder.log / f"{version:020d}.json"


def checkpoint(folder: DeltaFolder, version: int) -> Path:
    return folder.log / f"{version:020d}.checkpoint.parquet"


def forget(folder: DeltaFolder, *versions: int) -> None:
    for version in versions:
        commit(folder, version).unlink()


@pytest.mark.parametrize("holes", [(7,), (1,), (0,), (14,), (3, 9), (6, 7, 8), (12, 13, 14)])
def test_a_hole_is_not_the_end(folder: DeltaFolder, holes: tuple[int, ...]) -> None:
    forget(folder, *holes)
    for look in (folder.latest_version, folder.snapshot, folder.prove_end):
        with pytest.raises(CorruptStore, match=f"version {holes[0]} of the table t is missing"):
            look()


def test_a_hole_after_the_version_seen_is_not_the_end(folder: DeltaFolder) -> None:
    forget(folder, 7)
    with pytest.raises(CorruptStore, match="version 7 of"):
        folder.latest_version(6)


def test_a_hole_is_not_written_into(folder: DeltaFolder) -> None:
    forget(folder, 7)
    before = sorted(folder.log.iterdir())
    with pytest.raises(CorruptStore, match="version 7 of") as refused:
        add(folder, 7)
    assert refused.value.file == f"t/_delta_log/{commit(folder, 7).name}"
    assert sorted(folder.log.iterdir()) == before


def test_a_commit_stands_on_the_one_before_it(folder: DeltaFolder) -> None:
    with pytest.raises(CorruptStore, match="version 16 of"):
        add(folder, 17)
    forget(folder, 15)
    with pytest.raises(CorruptStore, match="version 15 of"):
        add(folder, 16)


def test_a_version_that_others_went_past_is_a_conflict_and_no_hole(folder: DeltaFolder) -> None:
    with pytest.raises(Conflict):
        add(folder, 7)


def test_an_end_before_what_was_seen_is_damage(folder: DeltaFolder) -> None:
    forget(folder, 14, 15)
    assert folder.latest_version() == 13
    with pytest.raises(CorruptStore, match="version 14 of"):
        folder.prove_end(15)
    with pytest.raises(CorruptStore, match="version 14 of"):
        folder.snapshot(15)


@pytest.mark.parametrize("content", [b"", b"\n", b'{"add":{"path":"x"', b'{"add":{}}', b"\0" * 80])
def test_an_empty_or_torn_commit_is_damage(folder: DeltaFolder, content: bytes) -> None:
    commit(folder, 15).write_bytes(content)
    for look in (folder.snapshot, lambda: folder.read_commit(15), lambda: folder.snapshot(15)):
        with pytest.raises(CorruptStore, match="15.json is damaged"):
            look()


def test_a_table_without_commits_has_no_snapshot(folder: DeltaFolder) -> None:
    for path in folder.log.iterdir():
        path.unlink()
    for version in (None, 0, 4):
        with pytest.raises(CorruptStore):
            folder.snapshot(version)


def test_what_a_clean_up_left_behind_its_checkpoint_is_no_hole(tmp_path: Path) -> None:
    """A clean-up was killed, or half undone by a power cut: any of those commits may exist."""
    folder = table(tmp_path / "t", 12, checkpointed=[5, 10])
    expected = folder.snapshot()
    for versions in ((0, 2, 3), (4, 5), (1, 6, 9), (7, 8), (10,)):
        forget(folder, *versions)
        assert folder.latest_version() == 12
        assert folder.snapshot() == expected
    with pytest.raises(LogTrimmed, match="version 6 of the table t is behind a checkpoint"):
        folder.snapshot(7)
    forget(folder, 11)
    with pytest.raises(CorruptStore, match="version 11 of"):
        folder.latest_version()


@pytest.mark.parametrize("content", [None, b"", b"PAR1", b"\0" * 4000])
def test_an_unreadable_checkpoint_is_passed_over(tmp_path: Path, content: bytes | None) -> None:
    folder = table(tmp_path / "t", 12, checkpointed=[5, 10])
    expected = folder.snapshot()
    forget(folder, 0, 1, 2, 3)
    if content is None:
        checkpoint(folder, 10).unlink()
    else:
        checkpoint(folder, 10).write_bytes(content)
    assert folder.snapshot() == expected
    assert folder.latest_version() == 12
    folder.mend()
    folder.checkpoint()
    assert folder.snapshot() == expected
    assert checkpoint(folder, 12).exists()


@pytest.mark.parametrize("content", [None, b"", b'{"vers', b"[]", b'{"version":11}'])
def test_a_lost_pointer_to_the_checkpoint_is_found_anew(
    tmp_path: Path, content: bytes | None
) -> None:
    folder = table(tmp_path / "t", 12, checkpointed=[5, 10])
    expected = folder.snapshot()
    forget(folder, *range(10))
    pointer = folder.log / "_last_checkpoint"
    if content is None:
        pointer.unlink()
    else:
        pointer.write_bytes(content)
    assert folder.exists
    assert folder.latest_version() == 12
    assert folder.snapshot() == expected
    assert folder.description == ""
    folder.mend()
    assert b"10" in pointer.read_bytes()
    add(folder, 13)
    folder.checkpoint()


def test_commits_stay_until_two_checkpoints_stand_for_them(tmp_path: Path) -> None:
    folder = table(tmp_path / "t", 12, checkpointed=[5])
    folder.drop_commits(6)
    assert folder.read_commit(0) is not None
    folder.checkpoint(10)
    assert folder.floor() == 5
    folder.drop_commits(6)
    remaining = [version for version in range(13) if folder.read_commit(version) is not None]
    assert remaining == list(range(5, 13))
    expected = folder.snapshot()
    checkpoint(folder, 10).write_bytes(b"")
    assert folder.snapshot() == expected
    with pytest.raises(CorruptStore):
        folder.drop_commits(folder.floor())


@pytest.mark.parametrize("damage", ["torn", "missing", "removed"])
def test_a_table_is_begun_again_over_a_log_that_can_t_be_read(tmp_path: Path, damage: str) -> None:
    folder = table(tmp_path / "t", 12, checkpointed=[5])
    before = folder.snapshot()
    if damage == "torn":
        commit(folder, 9).write_bytes(commit(folder, 9).read_bytes()[:30])
    elif damage == "missing":
        forget(folder, 9)
    else:
        shutil.rmtree(folder.root)
    begun = folder.restart(TableDefinition(SCHEMA), after=14)
    assert begun == Snapshot(15), "no version means two things"
    assert folder.snapshot() == folder.advance(before, 15) == begun
    for version in range(16, 20):
        add(folder, version)
    assert len(folder.snapshot().files) == len(folder.advance(before, 19).files) == 4
    folder.checkpoint()
    assert deltalake.DeltaTable(folder.root).to_pyarrow_table()["a"].to_pylist() == [
        *range(19, 15, -1)
    ]
    again = DeltaFolder(folder.root).restart(TableDefinition(SCHEMA), after=0)
    assert again.version == 20 and not folder.snapshot().files


# ---- a whole store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Twelve batches, and three epochs of them."""
    store = Store.open(tmp_path / "store", create=True, sync=False)
    author, engine = Author(store), HandMadeEngine(store)
    stream = author.create(READINGS)
    for number in range(12):
        author.register(stream, above(float(number)))
        author.publish(stream, readings([number], [1.0]), "me")
        if number % 4 == 3:
            engine.step()
    return store


TABLES = ["log", "epochs", "registrations", "predicates", "publishers", "stems/1"]
DERIVED = ["matches", "coverage", "closures"]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("damage", ["missing", "empty"])
def test_an_engine_does_not_start_over_damage(store: Store, name: str, damage: str) -> None:
    version = store.table(name).latest_version() - 1
    path = commit(store.table(name), version)
    path.unlink() if damage == "missing" else path.write_bytes(b"")
    with pytest.raises(CorruptStore, match=f"version {version} of the table {name}"):
        open_ledger(store)
        store.table(name).snapshot()


@pytest.mark.parametrize("name", DERIVED)
@pytest.mark.parametrize("damage", ["missing", "empty"])
def test_an_engine_begins_a_derived_table_again(store: Store, name: str, damage: str) -> None:
    folder = store.table(name)
    if not folder.latest_version():
        folder.commit(1, operation="TEST")
    path = commit(folder, max(folder.latest_version() - 1, 0))
    path.unlink() if damage == "missing" else path.write_bytes(b"")
    ledger = open_ledger(store)
    assert ledger.tables[name].version > folder.latest_version() - 2
    _, epoch = store.epochs.latest()
    assert store.snapshot(epoch, name) == ledger.tables[name]
    assert open_ledger(store).epoch == ledger.epoch


def test_a_log_that_ends_before_the_epoch_is_damage(store: Store) -> None:
    forget(store.log.folder, store.log.latest_version())
    with pytest.raises(CorruptStore, match="of the table log is missing"):
        open_ledger(store)


def test_after_a_failed_proof_nothing_is_appended(store: Store) -> None:
    newest = store.log.latest_version()
    content = commit(store.log.folder, 5).read_bytes()
    forget(store.log.folder, 5)
    with pytest.raises(CorruptStore):
        store.log.prove_end(newest)
    with pytest.raises(CorruptStore):
        store.log.append(newest + 1, [])
    commit(store.log.folder, 5).write_bytes(content)
    store.log.prove_end(newest)


def test_a_lost_log_is_not_made_anew(store: Store) -> None:
    store.log.folder.root.rename(store.root.parent / "elsewhere")
    with pytest.raises(CorruptStore, match="the table log is gone"):
        Store.open(store.root, create=True)
