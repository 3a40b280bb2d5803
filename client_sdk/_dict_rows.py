"""Rows that are dicts: Python values, checked one type at a time."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from client_sdk._columns import Column, schema_of
from client_sdk._models import Stream
from client_sdk._operations import OP_COLUMN, completed
from client_sdk._row_problems import bad_value
from client_sdk._time import utc

_NONE = type(None)
# Types whose values pyarrow itself converts exactly or refuses.
_PLAIN: dict[str, frozenset[type]] = {
    "BOOLEAN": frozenset({bool, _NONE}),
    "BIGINT": frozenset({int, _NONE}),
    "DOUBLE": frozenset({float, int, _NONE}),
    "DECIMAL": frozenset({decimal.Decimal, int, _NONE}),
    "TEXT": frozenset({str, _NONE}),
    "TIMESTAMP": frozenset({datetime.datetime, _NONE}),
    "DATE": frozenset({datetime.date, _NONE}),
}
_BASES: dict[str, tuple[type, ...]] = {
    kind: tuple(types - {_NONE}) for kind, types in _PLAIN.items()
}
_WANTED = {
    "BOOLEAN": "bool",
    "BIGINT": "int",
    "DOUBLE": "float or int",
    "DECIMAL": "decimal.Decimal or int",
    "TEXT": "str",
    "TIMESTAMP": "datetime.datetime",
    "DATE": "datetime.date",
}
_WRONG = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError)


def from_dicts(rows: Sequence[Mapping[str, Any]], stream: Stream) -> pa.Table:
    """With a column `_op` where a row says what it does."""
    rows, ops = completed(rows, stream)
    columns = stream.columns
    arrays = [column_of([row[column.name] for row in rows], column) for column in columns]
    if ops is not None:
        columns = (*columns, OP_COLUMN)
        arrays.append(column_of(ops, OP_COLUMN))
    return pa.Table.from_arrays(arrays, schema=schema_of(columns))


def column_of(values: list[Any], column: Column) -> pa.Array:
    if set(map(type, values)) <= _PLAIN[column.kind]:
        try:
            return pa.array(values, column.arrow)
        except _WRONG:
            pass
    return pa.array(
        [_value(value, column, number) for number, value in enumerate(values)], column.arrow
    )


def _value(value: Any, column: Column, number: int) -> Any:
    """The value as pyarrow takes it for certain, or a RowProblem."""
    if value is None:
        return None
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    try:
        if not isinstance(value, _BASES[column.kind]) or _is_lookalike(value, column.kind):
            wanted = _WANTED[column.kind]
            raise TypeError(f"{type(value).__name__} is not {column.type}; use {wanted}")
        if isinstance(value, datetime.datetime):
            value = utc(value)
        pa.array([value], column.arrow)
    except _WRONG as error:
        raise bad_value(number, column, value, error) from None
    return value


def _is_lookalike(value: Any, kind: str) -> bool:
    """A bool is an int to Python and a datetime is a date; not here."""
    if isinstance(value, bool):
        return kind != "BOOLEAN"
    return kind == "DATE" and isinstance(value, datetime.datetime)
