"""Commits are compare-and-set, and what they write is an ordinary Delta table."""

from __future__ import annotations

import threading
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pytest

from psoup.store import Conflict, DeltaFolder, LogTrimmed
from psoup.store.delta import TableDefinition
from psoup.store.delta.files import PLAIN, FileEncoding, write_data_file
from psoup.store.delta.reading import reader

SCHEMA = pa.schema([("_row_id", pa.int64()), ("_ts", pa.timestamp("us", tz="UTC"))])


@pytest.fixture
def folder(tmp_path: Path) -> DeltaFolder:
    folder = DeltaFolder(tmp_path / "a table")
    folder.create(TableDefinition(SCHEMA))
    return folder


def rows(*ids: int) -> pa.Table:
    return pa.table({"_row_id": list(ids), "_ts": [i * 1_000_001 for i in ids]}, schema=SCHEMA)


def add(folder: DeltaFolder, version: int, *ids: int) -> None:
    written = write_data_file(folder.root, rows(*ids), bounds=["_row_id", "_ts"])
    folder.commit(version, [written], operation="TEST")


def test_a_version_is_committed_once(folder: DeltaFolder) -> None:
    add(folder, 1, 1)
    with pytest.raises(Conflict):
        add(folder, 1, 2)
    assert folder.latest_version() == 1
    assert folder.snapshot().files == folder.snapshot(1).files


def test_of_many_writers_one_wins_each_version(folder: DeltaFolder) -> None:
    won: list[int] = []

    def write(writer: int) -> None:
        for version in range(1, 21):
            try:
                add(folder, version, writer)
                won.append(version)
            except Conflict:
                continue

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(1, 21))
    assert len(folder.snapshot().files) == 20


def test_deltalake_reads_what_we_commit(folder: DeltaFolder) -> None:
    add(folder, 1, 1, 2)
    add(folder, 2, 3)
    first = next(file for file in folder.snapshot().files.values() if file.rows == 2)
    folder.commit(3, [], [first], operation="TEST")
    assert deltalake.DeltaTable(folder.root).to_pyarrow_table().column("_row_id").to_pylist() == [3]


def test_bounds_survive_to_the_microsecond(folder: DeltaFolder) -> None:
    add(folder, 1, 3, 7)
    (file,) = folder.snapshot().files.values()
    assert file.low == {"_row_id": 3, "_ts": 3_000_003}
    assert file.high == {"_row_id": 7, "_ts": 7_000_007}


def test_partitions_are_in_the_commit_not_in_the_file(tmp_path: Path) -> None:
    folder = DeltaFolder(tmp_path / "parts")
    schema = SCHEMA.append(pa.field("segment", pa.int64()))
    folder.create(TableDefinition(schema, partition_by=("segment",)))
    table = rows(1).append_column("segment", pa.array([4], pa.int64()))
    written = write_data_file(folder.root, table, partition={"segment": "4"})
    folder.commit(1, [written], operation="TEST")
    read = deltalake.DeltaTable(folder.root).to_pyarrow_table()
    assert read.column("segment").to_pylist() == [4]


def test_a_checkpoint_stands_for_the_commits_before_it(folder: DeltaFolder) -> None:
    for version in range(1, 6):
        add(folder, version, version)
    expected = folder.snapshot().files
    folder.checkpoint()
    for path in folder.log.glob("*.json"):
        path.unlink()
    assert folder.latest_version() == 5
    assert folder.snapshot().files == expected
    add(folder, 6, 6)
    behind = DeltaFolder(folder.root).snapshot(6)
    assert len(behind.files) == 6
    with pytest.raises(LogTrimmed):
        folder.snapshot(3)


def test_advance_gives_the_same_as_opening(folder: DeltaFolder) -> None:
    early = folder.snapshot()
    for version in range(1, 4):
        add(folder, version, version)
    assert folder.advance(early, 2) == folder.snapshot(2)
    assert folder.advance(early, 3) == folder.snapshot()


def test_the_newest_version_is_found_from_any_earlier_one(folder: DeltaFolder) -> None:
    for version in range(1, 20):
        folder.commit(version, operation="TEST")
        assert [folder.latest_version(at_least) for at_least in range(version + 1)] == [version] * (
            version + 1
        )


@pytest.mark.parametrize("encoding", [PLAIN, FileEncoding("zstd", 1, ("lo", "hi"))])
def test_rows_between_two_numbers_are_read_from_any_encoding(
    tmp_path: Path, encoding: FileEncoding
) -> None:
    dice = np.random.default_rng(1)
    table = pa.table(
        {
            "lo": np.sort(dice.integers(0, 300, 1000)),
            "hi": dice.integers(0, 9, 1000),
            "bitmap": [dice.bytes(n % 7) for n in range(1000)],
        }
    )
    root = tmp_path / "matches"
    file = write_data_file(
        root, table, bounds=["lo"], sync=False, row_group_rows=64, encoding=encoding
    )
    assert reader(root, file).whole() == table
    for lo, hi in ((0, 300), (17, 18), (40, 120), (299, 10**6), (500, 600), (8, 8)):
        numbers = table.column("lo").to_numpy()
        expected = table.filter(pa.array((numbers >= lo) & (numbers < hi)))
        assert reader(root, file).between("lo", lo, hi, ["bitmap"]) == expected.select(["bitmap"])
        assert reader(root, file).between("lo", lo, hi, ["hi", "lo"]) == expected.select(
            ["hi", "lo"]
        )


def test_deltalake_reads_encoded_pieces(folder: DeltaFolder) -> None:
    table = rows(4, 4, 5)
    encoding = FileEncoding("zstd", 1, ("_row_id",))
    added = write_data_file(folder.root, table, sync=False, encoding=encoding)
    folder.commit(1, [added], operation="TEST", sync=False)
    assert deltalake.DeltaTable(folder.root).to_pyarrow_table().to_pylist() == table.to_pylist()
