"""A Parquet file of a Delta table: how it is written, and how a commit names it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datastem.instants import from_micros, to_micros
from psoup.store.delta.checksums import Checks, checks_of, read_checks
from psoup.store.delta.durable import write_durably

# The columns whose bounds are instants; Delta writes those as text.
_INSTANTS = frozenset({"_ts", "_until", "_stamp"})


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table. `path` is relative to the table's folder. `low` and `high` are the
    bounds of the columns named when it was written; instants are microseconds."""

    path: str
    size: int
    rows: int
    checks: Checks
    partition: Mapping[str, str] = field(default_factory=dict)
    low: Mapping[str, int] = field(default_factory=dict)
    high: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileEncoding:
    """How a file is compressed, and which integer columns have so few different values that a
    dictionary takes less space than differences."""

    codec: str = "snappy"
    level: int | None = None
    repeated: tuple[str, ...] = ()


PLAIN = FileEncoding()


def write_data_file(
    root: Path,
    table: pa.Table,
    *,
    partition: Mapping[str, str] | None = None,
    bounds: Iterable[str] = (),
    sync: bool = True,
    row_group_rows: int = 1 << 16,
    cuts: Sequence[int] = (),
    encoding: FileEncoding = PLAIN,
) -> DataFile:
    """Write one synced file under the table's folder; a commit makes it visible.

    `bounds` names int64 or timestamp columns whose least and greatest value are recorded, unless a
    value is NULL. A row group ends before each row of `cuts`, which ascend, and after
    `row_group_rows`. Partition columns are not written: their values are in the path and in the
    commit.
    """
    partition = dict(partition or {})
    folder = "".join(f"{name}={value}/" for name, value in partition.items())
    path = f"{folder}part-{uuid.uuid4().hex}.parquet"
    low, high = _bounds(table, bounds)
    content = table.drop_columns([name for name in partition if name in table.column_names])
    encoded = _parquet(content, row_group_rows, cuts, encoding)
    write_durably(root / path, lambda target: _put(target, encoded), top=root, sync=sync)
    return DataFile(path, encoded.size, table.num_rows, checks_of(encoded), partition, low, high)


def _parquet(
    content: pa.Table, row_group_rows: int, cuts: Sequence[int], encoding: FileEncoding
) -> pa.Buffer:
    """Return the encoded file. It is made in memory, so that checksums are of what was to be
    written, not of what a disk returned."""
    options = {
        "compression": encoding.codec,
        "compression_level": encoding.level,
        "write_page_checksum": True,
        **_encodings(content.schema, encoding.repeated),
    }
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, content.schema, **options) as writer:
        for first, last in pairwise([0, *cuts, content.num_rows]):
            writer.write_table(content.slice(first, last - first), row_group_rows)
    return sink.getvalue()


def _put(target: Path, content: pa.Buffer) -> None:
    with target.open("wb") as file:
        file.write(content)


def _encodings(schema: pa.Schema, repeated: Sequence[str]) -> dict[str, Any]:
    """Return the encodings of columns: differences for integers and instants, dictionaries for
    texts and `repeated` columns.

    Ids and instants ascend, so their differences take almost no space
    (docs/explanation/decisions/files.md).
    """
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    whole = [
        field.name
        for field in schema
        if field.name not in repeated
        and (pa.types.is_int64(field.type) or pa.types.is_timestamp(field.type))
    ]
    # Statistics of a payload column would hold two whole payloads in memory.
    bounded = [field.name for field in schema if not pa.types.is_binary(field.type)]
    return {
        "use_dictionary": [*texts, *repeated] or False,
        "write_statistics": bounded or False,
        "column_encoding": dict.fromkeys(whole, "DELTA_BINARY_PACKED"),
    }


def _bounds(table: pa.Table, names: Iterable[str]) -> tuple[dict[str, int], dict[str, int]]:
    low, high = {}, {}
    for name in names:
        bounds = pc.min_max(table.column(name).cast(pa.int64()), skip_nulls=False)
        if bounds["min"].is_valid:
            low[name], high[name] = bounds["min"].as_py(), bounds["max"].as_py()
    return low, high


def add_action(file: DataFile, moment: int, data_change: bool) -> dict[str, Any]:
    stats = {
        "numRecords": file.rows,
        "minValues": _stats(file.low),
        "maxValues": _stats(file.high),
        # Spark skips files by their bounds only if the statistics say that no value is NULL.
        "nullCount": dict.fromkeys(file.low, 0),
    }
    return {
        "add": {
            "path": quote(file.path, safe="/="),
            "partitionValues": dict(file.partition),
            "size": file.size,
            "modificationTime": moment,
            "dataChange": data_change,
            "stats": json.dumps(stats, separators=(",", ":")),
            "tags": file.checks.tags(),
        }
    }


def remove_action(file: DataFile, moment: int, data_change: bool) -> dict[str, Any]:
    return {
        "remove": {
            "path": quote(file.path, safe="/="),
            "deletionTimestamp": moment,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": dict(file.partition),
            "size": file.size,
        }
    }


def data_file(add: Mapping[str, Any]) -> DataFile:
    """Return the data file that an add action names."""
    stats = json.loads(add["stats"] or "{}")
    return DataFile(
        path=unquote(add["path"]),
        size=add["size"],
        rows=stats.get("numRecords", 0),
        partition=add["partitionValues"],
        low=_unstats(stats.get("minValues", {})),
        high=_unstats(stats.get("maxValues", {})),
        checks=read_checks(dict(add.get("tags") or {})),
    )


def _stats(bounds: Mapping[str, int]) -> dict[str, int | str]:
    return {
        name: from_micros(value).isoformat().replace("+00:00", "Z") if name in _INSTANTS else value
        for name, value in bounds.items()
    }


def _unstats(stats: Mapping[str, Any]) -> dict[str, int]:
    return {
        name: to_micros(datetime.fromisoformat(value)) if name in _INSTANTS else value
        for name, value in stats.items()
    }
