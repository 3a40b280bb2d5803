"""A search for the bytes of a value in a folder: in raw files, in every page of a Parquet file, in
the Arrow payloads of the log, and in SQLite files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def leftovers(root: Path, *values: bytes | str | int) -> list[str]:
    """Return where one of the values is in the files of a folder: path, column and value."""
    return [
        place
        for path in sorted(root.rglob("*"))
        if path.is_file()
        for place in _in_file(path, root, values)
    ]


def _in_file(path: Path, root: Path, values: tuple[bytes | str | int, ...]) -> Iterator[str]:
    name = str(path.relative_to(root))
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    for value in values:
        if not isinstance(value, int) and _bytes(value) in content:
            yield f"{name}: raw {value!r}"
    if content.startswith(b"PAR1"):
        yield from _in_parquet(path, name, values)


def _in_parquet(path: Path, name: str, values: tuple[bytes | str | int, ...]) -> Iterator[str]:
    file = pq.ParquetFile(path)
    for column, array in zip(file.schema_arrow.names, file.read().columns, strict=True):
        for item in array.to_pylist():
            for value in values:
                if _holds(item, value):
                    yield f"{name}: column {column}: {value!r}"
    metadata = file.metadata
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            statistics = metadata.row_group(group).column(number).statistics
            if statistics is not None and statistics.has_min_max:
                for bound in (statistics.min, statistics.max):
                    for value in values:
                        if _holds(bound, value):
                            yield f"{name}: statistics of {metadata.schema.column(number).path}"


def _holds(item: Any, value: bytes | str | int) -> bool:
    """Return True if an item of a column has a value in it, in a nested value, or in a payload."""
    if isinstance(item, dict):
        return any(_holds(part, value) for part in item.values())
    if isinstance(item, list | tuple):
        return any(_holds(part, value) for part in item)
    if isinstance(value, int):
        if isinstance(item, bytes):
            return any(_holds(part, value) for part in _payload(item))
        return bool(item == value)
    if isinstance(item, str):
        return _bytes(value) in item.encode() or _bytes(value) in json.dumps(item).encode()
    if isinstance(item, bytes):
        return _bytes(value) in item or any(_holds(part, value) for part in _payload(item))
    return False


def _payload(content: bytes) -> Iterator[Any]:
    """Yield the values of an Arrow stream; nothing if the content is none."""
    try:
        table = pa.ipc.open_stream(content).read_all()
    except (pa.ArrowInvalid, OSError):
        return
    for column in table.columns:
        yield from column.to_pylist()


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value
