"""What is wrong with a row, said so that it can be found: row (from 0), column, value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from client_sdk._columns import Column
from client_sdk._exceptions import ErrorDetail, RowProblem


def first_failure(array: pa.Array, cast: Callable[[pa.Array], pa.Array]) -> int:
    """The index of the first value `cast` refuses; there must be one. A binary search."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            cast(array.slice(low, middle - low))
        except ValueError:
            high = middle
        else:
            low = middle
    return low


def wrong_fields(number: int, got: Iterable[str], names: set[str]) -> RowProblem:
    fields = list(got)
    missing, extra = sorted(names - set(fields)), sorted(set(map(str, fields)) - names)
    said = [f"missing {', '.join(missing)}"] if missing else []
    said += [f"unknown {', '.join(extra)}"] if extra else []
    where = f"row {number}" if number >= 0 else "columns"
    detail = ErrorDetail(
        reason="WRONG_COLUMNS",
        row=number,
        field=(missing + extra + [""])[0],
        expected=", ".join(sorted(names)),
        got=", ".join(map(str, fields)),
        hint="Give every column of the stream, None where it is NULL, and no other.",
    )
    return RowProblem(f"{where}: {'; '.join(said) or 'a column is there twice'}", detail=detail)


def bad_value(number: int, column: Column, value: Any, error: Exception) -> RowProblem:
    shown = repr(value.as_py() if isinstance(value, pa.Scalar) else value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}…"
    detail = ErrorDetail(
        reason="BAD_VALUE", row=number, field=column.name, expected=column.type, got=shown
    )
    message = f"row {number}, column {column.name} {column.type}: {shown} does not fit ({error})"
    return RowProblem(message, detail=detail)


def null_time(number: int, name: str) -> RowProblem:
    message = f"row {number}, column {name}: the event time can't be NULL"
    detail = ErrorDetail(reason="NULL_EVENT_TIME", row=number, field=name, got="NULL")
    return RowProblem(message, detail=detail)


def null_key(number: int, name: str) -> RowProblem:
    message = f"row {number}, column {name}: a column of the key can't be NULL"
    detail = ErrorDetail(reason="NULL_KEY", row=number, field=name, got="NULL")
    return RowProblem(message, detail=detail)
