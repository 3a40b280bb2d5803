"""Joins to measure: their rows, and their texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

EQUALITY_AIM, OTHER_AIM = 2.0, 3.0
BATCH = 200_000


@dataclass(frozen=True)
class Join:
    """A query over streams, and what DuckDB is asked for the same: `duckdb_sql`, or the same text.

    A stream has the columns of its table; a column `ts` is its event time. `keys` names the column
    that is the key, of streams that have one. `batch` rows are published at a time. `aim` is how
    many times as long as DuckDB it may take, `most` how many milliseconds.
    """

    title: str
    streams: Mapping[str, pa.Table]
    sql: str
    aim: float | None = EQUALITY_AIM
    batch: int = BATCH
    memory: int = 1 << 30
    duckdb_sql: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    most: float | None = None

    def definition(self, name: str) -> str:
        """The statement that makes a stream."""
        schema = self.streams[name].schema
        columns = ", ".join(f"{column.name} {_kind(column.type)}" for column in schema)
        key = f" KEY ({self.keys[name]})" if name in self.keys else ""
        order = " ORDERED BY ts" if "ts" in schema.names else ""
        return f"CREATE STREAM {name} ({columns}){key}{order}"


def _kind(type_: pa.DataType) -> str:
    if pa.types.is_timestamp(type_):
        return "TIMESTAMP"
    return "TEXT" if type_ == pa.string() else "BIGINT"


def joins(scale: int) -> list[Join]:
    """Joins by equal keys of many kinds, and a band."""
    small, middle, large = 1_000 // scale, 100_000 // scale, 1_000_000 // scale
    block = 65_536 // scale
    random = np.random.default_rng(1)

    def keys(count: int) -> np.ndarray[Any, Any]:
        return sparse(random.permutation(count))

    two = "SELECT x.v AS v, y.v AS w FROM l x, r y WHERE "
    equal = two + "x.k = y.k"
    three = "SELECT x.v AS v, y.v AS w, z.v AS u FROM l x, r y, n z WHERE x.k = y.k AND y.v = z.k"
    hot = sparse(np.where(np.arange(large) % 2, 7, np.arange(large)))
    dense = {name: rows_of(random.permutation(block)) for name in "lr"}
    text = {name: rows_of(keys(block).astype(str)) for name in "lr"}
    many = {"l": rows_of(keys(middle)), "r": rows_of(sparse(np.arange(large) % middle))}
    permuted = {name: rows_of(keys(block)) for name in "lr"}
    return [
        Join(f"{block:,} × {block:,} by equal keys", permuted, equal),
        Join(
            f"{small:,} × {large:,} by equal keys",
            {"l": rows_of(sparse(np.arange(small) * 7)), "r": rows_of(keys(large))},
            equal,
        ),
        Join(f"{middle:,} × {large:,} by equal keys", many, equal),
        Join(
            f"{middle:,} × {large:,} by equal keys, DuckDB in order too",
            many,
            equal,
            duckdb_sql=equal + " ORDER BY x.rowid, y.rowid",
        ),
        Join(f"{block:,} × {block:,} by dense keys", dense, equal, OTHER_AIM),
        Join(f"{block:,} × {block:,} by texts", text, equal, OTHER_AIM),
        Join(
            f"{small:,} × {large:,}, half of them with one key",
            {"l": rows_of(sparse(np.arange(small))), "r": rows_of(hot)},
            equal,
            OTHER_AIM,
        ),
        Join(
            f"{middle:,} × {large:,} without a match",
            {"l": rows_of(keys(middle)), "r": rows_of(sparse(np.arange(large)) + 1)},
            equal,
            OTHER_AIM,
        ),
        Join(
            f"{block:,} × {block:,} by equal keys, published in batches of 100",
            permuted,
            equal,
            OTHER_AIM,
            100,
        ),
        Join(
            f"a band over {middle // 10:,} × {middle:,}",
            {"l": rows_of(np.arange(middle // 10) * 10), "r": rows_of(random.permutation(middle))},
            two + "y.k >= x.k - 2 AND y.k <= x.k + 2",
            OTHER_AIM,
        ),
        Join(
            f"{large:,} × {small:,} × {small // 10:,}",
            {
                "l": rows_of(keys(large)),
                "r": rows_of(sparse(np.arange(small)), np.arange(small) % max(1, small // 10)),
                "n": rows_of(np.arange(max(1, small // 10))),
            },
            three,
            OTHER_AIM,
        ),
    ]


def sparse(keys: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Keys that lie far apart: dense ones DuckDB has an array for, in place of a hash table."""
    return keys * 1_000_003 + 17


def rows_of(keys: np.ndarray[Any, Any], values: np.ndarray[Any, Any] | None = None) -> pa.Table:
    values = np.arange(len(keys)) if values is None else values
    return pa.table({"k": pa.array(keys.tolist()), "v": pa.array(values)})
