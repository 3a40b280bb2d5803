"""The seven conversions: an array of the type sent → the declared type, zeros under NULLs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from datastem.arrays import Array
from datastem.errors import RowError
from datastem.instants import DAY, MAX_INSTANT, MIN_INSTANT
from datastem.schema import Column
from datastem.types import Kind

_DAY_MILLIS = DAY // 1000
_MIN_DAY = MIN_INSTANT // DAY
_MAX_DAY = MAX_INSTANT // DAY
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def convert(values: pa.Array, column: Column) -> pa.Array:
    """Raises RowError where a value would lose something."""
    return _CONVERT[column.type.kind](values, column)


def is_text(kind: pa.DataType) -> bool:
    return bool(kind in (pa.string(), pa.large_string(), pa.string_view()))


def wide_decimal(kind: pa.DataType) -> pa.DataType:
    """A type any integer can be cast to on its way to a decimal; other types as they are."""
    return pa.decimal256(76, kind.scale) if pa.types.is_decimal(kind) else kind


def wrong_type(got: pa.DataType, column: Column) -> RowError:
    return RowError(
        "WRONG_TYPE",
        f"column {column.name} is {column.type}, and {got} does not convert to it without loss",
        field=column.name,
        expected=str(column.type),
        got=str(got),
        hint=f"send {column.name} as {column.type.arrow}",
    )


def first_failure(values: pa.Array, attempt: Callable[[pa.Array], object]) -> int:
    """The first row on which `attempt` raises ArrowInvalid, by halving."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            attempt(values.slice(low, middle - low))
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _zero_nulls(values: pa.Array) -> pa.Array:
    if not values.null_count:
        return values
    if is_text(values.type):
        return values.fill_null("")
    return values.fill_null(pa.scalar(0).cast(wide_decimal(values.type)).cast(values.type))


def _bad_value(reason: str, problem: str, column: Column, values: pa.Array, bad: Array) -> RowError:
    row = int(np.flatnonzero(bad)[0])
    return _bad_row(reason, problem, column, values, row)


def _bad_row(reason: str, problem: str, column: Column, values: pa.Array, row: int) -> RowError:
    try:
        got = str(values[row].as_py())
    except (ValueError, OverflowError):
        got = str(values[row].value)
    return RowError(
        reason,
        f"column {column.name}, row {row}: {got} {problem}",
        row=row,
        field=column.name,
        expected=str(column.type),
        got=got,
    )


def _to_boolean(values: pa.Array, column: Column) -> pa.Array:
    if not pa.types.is_boolean(values.type):
        raise wrong_type(values.type, column)
    return values.fill_null(False)


def _to_bigint(values: pa.Array, column: Column) -> pa.Array:
    if not pa.types.is_integer(values.type):
        raise wrong_type(values.type, column)
    filled = _zero_nulls(values)
    if values.type == pa.uint64():
        bad = filled.to_numpy() > np.uint64(2**63 - 1)
        if bad.any():
            raise _bad_value("OUT_OF_RANGE", "does not fit BIGINT", column, values, bad)
    return filled.cast(pa.int64())


def _to_double(values: pa.Array, column: Column) -> pa.Array:
    if pa.types.is_integer(values.type):
        return _exact_double(values, column)
    if not pa.types.is_floating(values.type):
        raise wrong_type(values.type, column)
    doubles = _zero_nulls(values.cast(pa.float64()))
    numbers = doubles.to_numpy()
    nan = np.isnan(numbers)
    return pa.array(np.where(nan, np.nan, numbers)) if nan.any() else doubles


def _exact_double(values: pa.Array, column: Column) -> pa.Array:
    filled = _zero_nulls(values)
    integers = filled.to_numpy()
    doubles = integers.astype(np.float64)
    # 2.0**63 and 2.0**64 are what the greatest integers round to, and no integer themselves.
    top = 2.0**64 if values.type == pa.uint64() else 2.0**63
    inside = doubles < top
    back = np.where(inside, doubles, 0.0).astype(integers.dtype)
    bad = ~inside | (back != integers)
    if bad.any():
        raise _bad_value("NOT_EXACT", "is an integer no DOUBLE holds exactly", column, values, bad)
    return pa.array(doubles)


def _to_decimal(values: pa.Array, column: Column) -> pa.Array:
    if not pa.types.is_integer(values.type) and not pa.types.is_decimal(values.type):
        raise wrong_type(values.type, column)
    target = column.type.arrow
    integers = pa.types.is_integer(values.type)

    def convert(part: pa.Array) -> pa.Array:
        return (part.cast(wide_decimal(target)) if integers else part).cast(target)

    filled = _zero_nulls(values)
    try:
        return convert(filled)
    except pa.ArrowInvalid as error:
        row = first_failure(filled, convert)
        problem = f"has more digits than {column.type}"
        raise _bad_row("NOT_EXACT", problem, column, values, row) from error


def _to_text(values: pa.Array, column: Column) -> pa.Array:
    return _zero_nulls(values.cast(pa.string()))


def _to_timestamp(values: pa.Array, column: Column) -> pa.Array:
    if not pa.types.is_timestamp(values.type):
        raise wrong_type(values.type, column)
    ticks = _zero_nulls(values.view(pa.int64())).to_numpy()
    per_second = _PER_SECOND[values.type.unit]
    if per_second > 10**6:
        bad = ticks % 1000 != 0
        if bad.any():
            raise _bad_value("TOO_FINE", "is finer than a microsecond", column, values, bad)
        micros = ticks // 1000
    else:
        factor = 10**6 // per_second
        _check_range(ticks, -(-MIN_INSTANT // factor), MAX_INSTANT // factor, column, values)
        micros = ticks * factor
    return pa.array(micros).view(column.type.arrow)


def _to_date(values: pa.Array, column: Column) -> pa.Array:
    """A date64 is whole days, or `validate` has refused it already."""
    if values.type == pa.date64():
        days = _zero_nulls(values.view(pa.int64())).to_numpy() // _DAY_MILLIS
    elif values.type == pa.date32():
        days = _zero_nulls(values.view(pa.int32())).to_numpy()
    else:
        raise wrong_type(values.type, column)
    _check_range(days, _MIN_DAY, _MAX_DAY, column, values)
    return pa.array(days.astype(np.int32)).view(pa.date32())


def _check_range(ticks: Array, low: int, high: int, column: Column, values: pa.Array) -> None:
    bad = (ticks < low) | (ticks > high)
    if bad.any():
        problem = "is outside the years 0001 to 9999"
        raise _bad_value("OUT_OF_RANGE", problem, column, values, bad)


_CONVERT: dict[Kind, Callable[[pa.Array, Column], pa.Array]] = {
    Kind.BOOLEAN: _to_boolean,
    Kind.BIGINT: _to_bigint,
    Kind.DOUBLE: _to_double,
    Kind.DECIMAL: _to_decimal,
    Kind.TEXT: _to_text,
    Kind.TIMESTAMP: _to_timestamp,
    Kind.DATE: _to_date,
}
