"""Values as the file holds them: exact, and comparable in SQL where SQLite has a type for it.

    BOOLEAN     0 or 1
    BIGINT      an integer
    DOUBLE      a real; the text NaN, since SQLite has none
    DECIMAL     text, with as many digits after the point as its type says
    TEXT        text
    TIMESTAMP   an integer, microseconds since 1970
    DATE        an integer, days since 1970

Columns are declared without a type, so that SQLite converts nothing. A query sees them through
`shown`: timestamps and dates as ISO text, decimals as reals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from client_sdk._wire.values import Column

NAN = "NaN"


def stored(array: pa.Array, column: Column) -> list[Any]:
    """The values of an Arrow array of the column's type."""
    kind = column.kind
    if kind == "BOOLEAN":
        array = array.cast(pa.int8())
    elif kind == "TIMESTAMP":
        array = array.view(pa.int64())
    elif kind == "DATE":
        array = array.view(pa.int32())
    values: list[Any] = array.to_pylist()
    if kind == "DOUBLE" and any(value is not None and math.isnan(value) for value in values):
        return [NAN if value is not None and math.isnan(value) else value for value in values]
    if kind == "DECIMAL":
        return [None if value is None else format(value, "f") for value in values]
    return values


def restored(values: Sequence[Any], column: Column) -> pa.Array:
    """The Arrow array. Raises ValueError or TypeError for values that are none of the type."""
    kind = column.kind
    if kind == "BOOLEAN":
        return pa.array([None if value is None else bool(value) for value in values], pa.bool_())
    if kind == "DOUBLE":
        return pa.array([math.nan if value == NAN else value for value in values], pa.float64())
    if kind == "TIMESTAMP":
        return pa.array(values, pa.int64()).view(column.arrow)
    if kind == "DATE":
        return pa.array(values, pa.int32()).view(column.arrow)
    if kind == "DECIMAL":
        numbers = [None if value is None else Decimal(value) for value in values]
        return pa.array(numbers, column.arrow)
    return pa.array(values, column.arrow)


def _timestamp(name: str) -> str:
    micros = f"(({name} % 1000000) + 1000000) % 1000000"
    seconds = f"strftime('%Y-%m-%d %H:%M:%S', ({name} - {micros}) / 1000000, 'unixepoch')"
    return f"{seconds} || printf('.%06d', {micros})"


_SHOWN: dict[str, Callable[[str], str]] = {
    "DECIMAL": lambda name: f"CAST({name} AS REAL)",
    "TIMESTAMP": lambda name: f"CASE WHEN {name} IS NOT NULL THEN {_timestamp(name)} END",
    "DATE": lambda name: f"date({name} * 86400, 'unixepoch')",
}


def shown(name: str, column: Column) -> str:
    """The SQL expression by which a query sees the stored column of that name."""
    return _SHOWN[column.kind](name) if column.kind in _SHOWN else name


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
