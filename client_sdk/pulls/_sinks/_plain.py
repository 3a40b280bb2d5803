"""Columns as plain Python values, for formats that have fewer types than the language.

| type      | JSON                                     | SQLite                     |
|-----------|------------------------------------------|----------------------------|
| BOOLEAN   | true, false                              | 1, 0                       |
| BIGINT    | a number, all digits                     | INTEGER                    |
| DOUBLE    | a number; "NaN", "Infinity", "-Infinity" | REAL; NaN is the text NaN  |
| DECIMAL   | text, all digits: "12.50"                | TEXT                       |
| TEXT      | text                                     | TEXT                       |
| TIMESTAMP | "2026-11-16T09:00:00.000000Z"            | TEXT, the same             |
| DATE      | "2026-11-16"                             | TEXT                       |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from client_sdk._columns import Column

Plain = Callable[[float], Any]


def plain_values(array: pa.Array, column: Column, odd_double: Plain) -> list[Any]:
    """`odd_double` says what stands for a DOUBLE that is not finite."""
    match column.kind:
        case "DOUBLE":
            return _doubles(array, odd_double)
        case "DECIMAL":
            return [None if value is None else format(value, "f") for value in array.to_pylist()]
        case "TIMESTAMP":
            return _instants(array)
        case "DATE":
            values: list[Any] = array.cast(pa.string()).to_pylist()
            return values
    plain: list[Any] = array.to_pylist()
    return plain


def odd_name(value: float) -> str:
    """As JSON writers that know no such numbers spell them."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _doubles(array: pa.Array, odd_double: Plain) -> list[Any]:
    values: list[Any] = array.to_pylist()
    if pc.all(pc.is_finite(array)).as_py() in (True, None):
        return values
    return [
        value if value is None or math.isfinite(value) else odd_double(value) for value in values
    ]


def _instants(array: pa.Array) -> list[Any]:
    texts = array.cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
    return [None if text is None else f"{text[:10]}T{text[11:]}Z" for text in texts]
