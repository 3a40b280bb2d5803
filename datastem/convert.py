"""The conversion of a column that a publisher sent to the declared type.

The values stay what they were, with zeros under every NULL. A value that the declared type would
change is refused, with its row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Array
from datastem.errors import RowError
from datastem.instants import DAY, MAX_INSTANT, MIN_INSTANT
from datastem.schema import Column
from datastem.types import Kind


def normalise(sent: pa.ChunkedArray, column: Column, value_bytes: int, total: int) -> pa.Array:
    """Return the `sent` values as the declared type of `column`; raise RowError if that would
    change one.

    `value_bytes` bounds one TEXT, `total` all of the column's TEXT together.
    """
    # Validated before anything else, because later steps read buffers directly. The offsets of an
    # invalid array may point anywhere.
    _check_valid(sent, column)
    if pa.types.is_null(sent.type):
        return pa.nulls(len(sent), column.type.arrow)
    # Checked before a dictionary is expanded: a few bytes of it may stand for any amount of text.
    if column.type.kind is Kind.TEXT:
        _check_lengths(sent, column, value_bytes, total)
    if pa.types.is_dictionary(sent.type):
        sent = sent.cast(sent.type.value_type)
    values = _single(sent)
    # Conversions write zeros under NULLs and return no validity, so it is put back at the end.
    nulls = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    try:
        result = _CONVERSIONS[column.type.kind](values, column)
    except pa.ArrowException as error:
        # Types that Arrow itself makes nothing of, such as decimals with a scale past all digits.
        raise _wrong_type(values.type, column) from error
    return result if nulls is None else _masked(result, nulls)


def _single(sent: pa.ChunkedArray) -> pa.Array:
    if sent.num_chunks == 1:
        return sent.chunk(0)
    return pa.concat_arrays(sent.chunks) if sent.num_chunks else pa.array([], sent.type)


def _masked(values: pa.Array, nulls: Array) -> pa.Array:
    """Return the buffers of `values` with NULL where `nulls` is true; the values are zeros
    there."""
    # The validity made below begins with the first value, so the other buffers must, too.
    if values.offset:
        values = values.take(pa.array(np.arange(len(values))))
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(values.type, len(values), [validity, *values.buffers()[1:]])


def _check_valid(sent: pa.ChunkedArray, column: Column) -> None:
    try:
        sent.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            message = f"column {column.name} is not a valid Arrow array: {error}"
            raise RowError("MALFORMED_ARROW", message, field=column.name) from error
        row = _first_invalid(sent)
        raise RowError(
            "INVALID_UTF8",
            f"column {column.name}, row {row}: text that is not valid UTF-8",
            row=row,
            field=column.name,
            expected="UTF-8",
            hint="encode text as UTF-8 before it is sent",
        ) from error


def _first_invalid(sent: pa.ChunkedArray) -> int:
    """Return the first row whose text is not valid; -1 if only an unused dictionary entry is.

    A dictionary is not expanded: a few bytes of it may stand for any number of rows.
    """
    before = 0
    for chunk in sent.chunks:
        values = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
        try:
            values.validate(full=True)
        except pa.ArrowInvalid:
            place = _first_failure(values, lambda part: part.validate(full=True))
            if values is chunk:
                return before + place
            row = pc.index(chunk.indices, pa.scalar(place, chunk.indices.type)).as_py()
            return -1 if row < 0 else before + int(row)
        before += len(chunk)
    return -1


def _check_lengths(sent: pa.ChunkedArray, column: Column, value_bytes: int, total: int) -> None:
    row, size = 0, 0
    for chunk in sent.chunks:
        lengths = _lengths(chunk, column)
        long = np.flatnonzero(lengths > value_bytes)
        if len(long):
            got = int(lengths[long[0]])
            raise RowError(
                "VALUE_TOO_LONG",
                f"column {column.name}, row {row + long[0]}: a text of {got:,} bytes; "
                f"at most {value_bytes:,} are taken",
                row=row + int(long[0]),
                field=column.name,
                expected=f"at most {value_bytes} bytes",
                got=f"{got} bytes",
            )
        row, size = row + len(chunk), size + int(lengths.sum())
    if size > total:
        raise RowError(
            "BATCH_TOO_LARGE",
            f"column {column.name} holds {size:,} bytes of text; at most {total:,} are taken",
            field=column.name,
            expected=f"at most {total} bytes",
            got=f"{size} bytes",
            hint="send it in several batches",
        )


def _lengths(chunk: pa.Array, column: Column) -> Array:
    """Return the bytes of each text, 0 for NULL, without expanding a dictionary or a view."""
    if pa.types.is_dictionary(chunk.type):
        if not len(chunk.dictionary):
            return np.zeros(len(chunk), dtype=np.int64)
        # A NULL looks up entry 0, and its length is set to 0 afterwards.
        indices = chunk.indices.fill_null(0).cast(pa.int64()).to_numpy()
        lengths: Array = _lengths(chunk.dictionary, column)[indices]
        lengths[chunk.indices.is_null().to_numpy(zero_copy_only=False)] = 0
        return lengths
    if not _is_text(chunk.type):
        raise _wrong_type(chunk.type, column)
    if chunk.type == pa.string_view():
        # A buffer may be longer than its views, by anything.
        count = 4 * (chunk.offset + len(chunk))
        views = np.frombuffer(chunk.buffers()[1] or b"", np.int32, count)
        # A view has 16 bytes, here four int32, of which the first is the length.
        lengths = views[4 * chunk.offset :: 4].astype(np.int64)
        lengths[chunk.is_null().to_numpy(zero_copy_only=False)] = 0
        return lengths
    counted = pc.binary_length(chunk).cast(pa.int64()).fill_null(0)
    return np.array(counted.to_numpy(zero_copy_only=False))


_DAY_MILLIS = DAY // 1000
_MIN_DAY = MIN_INSTANT // DAY
_MAX_DAY = MAX_INSTANT // DAY
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _is_text(kind: pa.DataType) -> bool:
    return bool(kind in (pa.string(), pa.large_string(), pa.string_view()))


def _wide_decimal(kind: pa.DataType) -> pa.DataType:
    """Return a decimal type that holds any integer, for the way to the decimal `kind`; else
    `kind`."""
    return pa.decimal256(76, kind.scale) if pa.types.is_decimal(kind) else kind


def _wrong_type(got: pa.DataType, column: Column) -> RowError:
    return RowError(
        "WRONG_TYPE",
        f"column {column.name} is {column.type}, and {got} does not convert to it without loss",
        field=column.name,
        expected=str(column.type),
        got=str(got),
        hint=f"send {column.name} as {column.type.arrow}",
    )


def _first_failure(values: pa.Array, attempt: Callable[[pa.Array], object]) -> int:
    """Return the first row on which `attempt` raises ArrowInvalid, found by halving."""
    # All rows below `low` pass; the first one that fails is in `[low, high)`.
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
    if _is_text(values.type):
        return values.fill_null("")
    return values.fill_null(pa.scalar(0).cast(_wide_decimal(values.type)).cast(values.type))


def _bad_value(reason: str, problem: str, column: Column, values: pa.Array, bad: Array) -> RowError:
    row = int(np.flatnonzero(bad)[0])
    return _bad_row(reason, problem, column, values, row)


def _bad_row(reason: str, problem: str, column: Column, values: pa.Array, row: int) -> RowError:
    try:
        # Arrow holds instants that Python's datetime does not. Those are shown as numbers.
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
        raise _wrong_type(values.type, column)
    return values.fill_null(False)


def _to_bigint(values: pa.Array, column: Column) -> pa.Array:
    if not pa.types.is_integer(values.type):
        raise _wrong_type(values.type, column)
    filled = _zero_nulls(values)
    # The only integer type with values that do not fit int64.
    if values.type == pa.uint64():
        bad = filled.to_numpy() > np.uint64(2**63 - 1)
        if bad.any():
            raise _bad_value("OUT_OF_RANGE", "does not fit BIGINT", column, values, bad)
    return filled.cast(pa.int64())


def _to_double(values: pa.Array, column: Column) -> pa.Array:
    if pa.types.is_integer(values.type):
        return _exact_double(values, column)
    if not pa.types.is_floating(values.type):
        raise _wrong_type(values.type, column)
    doubles = _zero_nulls(values.cast(pa.float64()))
    numbers = doubles.to_numpy()
    # NaN has many bit patterns. One is stored, so that equal batches have equal digests.
    nan = np.isnan(numbers)
    return pa.array(np.where(nan, np.nan, numbers)) if nan.any() else doubles


def _exact_double(values: pa.Array, column: Column) -> pa.Array:
    filled = _zero_nulls(values)
    integers = filled.to_numpy()
    doubles = integers.astype(np.float64)
    # 2.0**63 and 2.0**64 are what the greatest integers round to, and no integer themselves.
    top = 2.0**64 if values.type == pa.uint64() else 2.0**63
    inside = doubles < top
    # A double from `top` on would overflow on its way back, so 0 takes its place.
    back = np.where(inside, doubles, 0.0).astype(integers.dtype)
    bad = ~inside | (back != integers)
    if bad.any():
        raise _bad_value("NOT_EXACT", "is an integer no DOUBLE holds exactly", column, values, bad)
    return pa.array(doubles)


def _to_decimal(values: pa.Array, column: Column) -> pa.Array:
    if not pa.types.is_integer(values.type) and not pa.types.is_decimal(values.type):
        raise _wrong_type(values.type, column)
    target = column.type.arrow
    integers = pa.types.is_integer(values.type)

    # Arrow refuses a decimal with fewer digits than an integer type can have, even if all values
    # fit. With a wide decimal in between, the values decide.
    def convert(part: pa.Array) -> pa.Array:
        return (part.cast(_wide_decimal(target)) if integers else part).cast(target)

    filled = _zero_nulls(values)
    try:
        return convert(filled)
    except pa.ArrowInvalid as error:
        row = _first_failure(filled, convert)
        problem = f"has more digits than {column.type}"
        raise _bad_row("NOT_EXACT", problem, column, values, row) from error


def _to_text(values: pa.Array, column: Column) -> pa.Array:
    return _zero_nulls(_blanked(values).cast(pa.string()))


def _blanked(values: pa.Array) -> pa.Array:
    """Return the texts with empty views under every NULL. What lies there is not validated, may
    point anywhere, and Arrow's cast follows it."""
    if values.type != pa.string_view() or not values.null_count:
        return values
    validity, views, *texts = values.buffers()
    count = values.offset + len(values)
    blanked = np.frombuffer(views, np.uint8, 16 * count).reshape(count, 16).copy()
    blanked[values.offset :][values.is_null().to_numpy(zero_copy_only=False)] = 0
    buffers = [validity, pa.py_buffer(blanked), *texts]
    return pa.Array.from_buffers(values.type, len(values), buffers, offset=values.offset)


def _to_timestamp(values: pa.Array, column: Column) -> pa.Array:
    if not pa.types.is_timestamp(values.type):
        raise _wrong_type(values.type, column)
    ticks = _zero_nulls(values.view(pa.int64())).to_numpy()
    per_second = _PER_SECOND[values.type.unit]
    if per_second > 10**6:
        bad = ticks % 1000 != 0
        if bad.any():
            raise _bad_value("TOO_FINE", "is finer than a microsecond", column, values, bad)
        # No range check: int64 nanoseconds lie within the years 1677 to 2262.
        micros = ticks // 1000
    else:
        factor = 10**6 // per_second
        # Checked in the unit that was sent, because the product with `factor` may overflow. The
        # lower bound is rounded up.
        _check_range(ticks, -(-MIN_INSTANT // factor), MAX_INSTANT // factor, column, values)
        micros = ticks * factor
    return pa.array(micros).view(column.type.arrow)


def _to_date(values: pa.Array, column: Column) -> pa.Array:
    """Take date32 and date64; a date64 of other than whole days was refused before."""
    if values.type == pa.date64():
        days = _zero_nulls(values.view(pa.int64())).to_numpy() // _DAY_MILLIS
    elif values.type == pa.date32():
        days = _zero_nulls(values.view(pa.int32())).to_numpy()
    else:
        raise _wrong_type(values.type, column)
    _check_range(days, _MIN_DAY, _MAX_DAY, column, values)
    return pa.array(days.astype(np.int32)).view(pa.date32())


def _check_range(ticks: Array, low: int, high: int, column: Column, values: pa.Array) -> None:
    bad = (ticks < low) | (ticks > high)
    if bad.any():
        problem = "is outside the years 0001 to 9999"
        raise _bad_value("OUT_OF_RANGE", problem, column, values, bad)


_CONVERSIONS: dict[Kind, Callable[[pa.Array, Column], pa.Array]] = {
    Kind.BOOLEAN: _to_boolean,
    Kind.BIGINT: _to_bigint,
    Kind.DOUBLE: _to_double,
    Kind.DECIMAL: _to_decimal,
    Kind.TEXT: _to_text,
    Kind.TIMESTAMP: _to_timestamp,
    Kind.DATE: _to_date,
}
