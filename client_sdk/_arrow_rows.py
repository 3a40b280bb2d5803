"""Rows that are Arrow already, or pandas: brought to the stream's types, column by column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from client_sdk._columns import Column, schema_of
from client_sdk._dict_rows import column_of
from client_sdk._exceptions import ErrorDetail, RowProblem
from client_sdk._models import Stream
from client_sdk._operations import OP, OP_COLUMN, with_optional
from client_sdk._row_problems import bad_value, first_failure, wrong_fields


def from_arrow(table: pa.Table, stream: Stream) -> pa.Table:
    """With a column `_op` where the table has one."""
    table = with_optional(table, stream)
    columns = (*stream.columns, *([OP_COLUMN] if OP in table.column_names else []))
    names = {column.name for column in columns}
    if len(table.column_names) != len(names) or set(table.column_names) != names:
        raise wrong_fields(-1, table.column_names, names)
    arrays = [_cast(_one_chunk(table.column(column.name)), column) for column in columns]
    return pa.Table.from_arrays(arrays, schema=schema_of(columns))


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _cast(array: pa.Array, column: Column) -> pa.Array:
    try:
        return column.cast(array)
    except TypeError as error:
        detail = ErrorDetail(
            reason="WRONG_TYPE", field=column.name, expected=column.type, got=str(array.type)
        )
        raise RowProblem(str(error), detail=detail) from None
    except ValueError as error:
        number = first_failure(array, column.cast)
        raise bad_value(number, column, array[number], error) from None


def is_pandas(rows: Any) -> bool:
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")


def pandas_table(frame: Any, stream: Stream) -> pa.Table:
    """NaN, NaT and None are NULL, as pandas means them; whole floats may be BIGINT."""
    kinds = {column.name: column for column in (*stream.columns, OP_COLUMN)}
    arrays = []
    for name in frame.columns:
        column = kinds.get(name)
        arrays.append(_pandas_column(frame[name], column))
    return pa.Table.from_arrays(arrays, names=[str(name) for name in frame.columns])


def _pandas_column(series: Any, column: Column | None) -> pa.Array:
    if column is None:
        return pa.nulls(len(series))  # an extra column: refused by name, whatever it holds
    if series.dtype == object:
        return column_of([None if _is_missing(value) else value for value in series], column)
    array = pa.array(series, from_pandas=True)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if column.kind == "BIGINT" and pa.types.is_floating(array.type):
        try:
            return array.cast(pa.int64(), safe=True)
        except pa.ArrowInvalid as error:
            number = first_failure(array, lambda part: part.cast(pa.int64(), safe=True))
            raise bad_value(number, column, array[number], error) from None
    return array


def _is_missing(value: Any) -> bool:
    """None, NaN, NaT and pandas.NA: the last is not even equal to itself as a bool."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and value != value
