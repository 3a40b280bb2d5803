"""Damage to the files of a store, for tests."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from psoup.store import Store


def flip(path: Path, bit: int | None = None) -> None:
    """Flip one bit of a file, by default one in its middle."""
    content = bytearray(path.read_bytes())
    place = 4 * len(content) if bit is None else bit
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)


def flip_in(path: Path, text: bytes) -> None:
    """Flip the lowest bit of the first of these bytes in a file."""
    flip(path, 8 * path.read_bytes().index(text))


def flip_in_column(path: Path, name: str) -> None:
    """Flip a bit of the last value of a column in a Parquet file."""
    metadata = pq.read_metadata(path)
    column = metadata.row_group(0).column(metadata.schema.names.index(name))
    flip(path, 8 * (column.data_page_offset + column.total_compressed_size - 9))


def tear_commit(store: Store, table: str) -> Path:
    """Cut the newest commit of a table short; return its path."""
    commit = max(store.table(table).log.glob("*.json"))
    commit.write_bytes(commit.read_bytes()[:40])
    return commit


def named_files(store: Store, table: str) -> list[Path]:
    """Return the files of a table that the newest epoch names, oldest rows first."""
    _, epoch = store.epochs.latest()
    if table.startswith("stems/"):
        snapshot = store.stem_snapshot(epoch, int(table.removeprefix("stems/")))
    else:
        snapshot = store.snapshot(epoch, table)
    files = sorted(snapshot.files.values(), key=lambda file: file.low.get("_row_id", 0))
    return [store.table(table).path_of(file) for file in files]
