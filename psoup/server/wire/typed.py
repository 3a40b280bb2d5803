"""Arrow → typed values, as the bytes that protobuf would write, without an object for each cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from datastem import native
from datastem.instants import SECOND
from datastem.schema import Column
from datastem.types import Kind, Type
from psoup.server.wire.fields import (
    Bools,
    DecimalField,
    Field,
    FixedField,
    Int32s,
    MessageField,
    NumberField,
    TextField,
    encode_fields,
    text_bytes,
    without_nulls,
)
from psoup.server.wire.values import to_rows
from psoup.v1 import psoup_pb2 as pb
from querystem.pace import spending

# The fields of google.protobuf.Timestamp.
_SECONDS, _NANOS = 1, 2
# Below this, messages are made sooner than arrays.
FEW_VALUES = 200 if native.core is None else 40
# Units (`querystem.pace`) of a value that is made a message, of one that is not, and of a slice.
_MESSAGE_UNITS = 1500
_VALUE_UNITS = 150 if native.core is None else 50
_SLICE_UNITS = 300_000 if native.core is None else 100_000
# Values that are encoded in one go.
_SLICE_VALUES = 16_384


# ---- values


def value_field(number: int, array: pa.Array, type_: Type) -> Field:
    """Return a field that holds a Value for each row; NULL is an empty one."""
    present = None
    if array.null_count:
        present = array.is_valid().to_numpy(zero_copy_only=False)
    return MessageField(number, [_INSIDE[type_.kind](array, present)])


_Inside: TypeAlias = Callable[[pa.Array, Bools | None], Field]


def _boolean(array: pa.Array, present: Bools | None) -> Field:
    values = without_nulls(array, False).to_numpy(zero_copy_only=False)
    return NumberField(pb.Value.BOOLEAN_FIELD_NUMBER, values, present)


def _bigint(array: pa.Array, present: Bools | None) -> Field:
    return NumberField(pb.Value.BIGINT_FIELD_NUMBER, without_nulls(array, 0).to_numpy(), present)


def _double(array: pa.Array, present: Bools | None) -> Field:
    return FixedField(pb.Value.DOUBLE_FIELD_NUMBER, without_nulls(array, 0.0).to_numpy(), present)


def _text(array: pa.Array, present: Bools | None) -> Field:
    return TextField(pb.Value.TEXT_FIELD_NUMBER, array, present)


def _date(array: pa.Array, present: Bools | None) -> Field:
    return TextField(pb.Value.DATE_FIELD_NUMBER, array.cast(pa.string()), present)


def _decimal(array: pa.Array, present: Bools | None) -> Field:
    return DecimalField(pb.Value.DECIMAL_FIELD_NUMBER, array, present)


def _timestamp(array: pa.Array, present: Bools | None) -> Field:
    instants = without_nulls(array.view(pa.int64()), 0).to_numpy()
    # Rounded down, so that nanos are not negative before 1970.
    seconds, micros_within = np.divmod(instants, SECOND)
    inside = [
        NumberField(_SECONDS, seconds, seconds != 0),
        NumberField(_NANOS, micros_within * 1000, micros_within != 0),
    ]
    return MessageField(pb.Value.TIMESTAMP_FIELD_NUMBER, inside, present)


_INSIDE: dict[Kind, _Inside] = {
    Kind.BOOLEAN: _boolean,
    Kind.BIGINT: _bigint,
    Kind.DOUBLE: _double,
    Kind.DECIMAL: _decimal,
    Kind.TEXT: _text,
    Kind.TIMESTAMP: _timestamp,
    Kind.DATE: _date,
}


# ---- rows


def typed_rows(batch: pa.RecordBatch, columns: Sequence[Column], limit: int) -> Iterator[bytes]:
    """Yield messages `Rows`, as bytes, of about `limit` bytes, at least one row each."""
    values = batch.num_rows * len(columns)
    if values <= FEW_VALUES:
        spending()(values * _MESSAGE_UNITS)
        yield from (rows.SerializeToString() for rows in to_rows([batch], columns, limit))
        return
    names = pb.Rows(columns=[column.name for column in columns]).SerializeToString()
    for part in _slices(batch, columns, limit):
        content, places = row_fields(part, columns)
        start = 0
        while start < part.num_rows:
            # A row larger than the limit goes alone: rows are not split.
            fitting = int(np.searchsorted(places, places[start] + limit, side="right")) - 1
            end = max(fitting, start + 1)
            yield names + content[places[start] : places[end]]
            start = end


def row_fields(rows: pa.RecordBatch, columns: Sequence[Column]) -> tuple[memoryview, Int32s]:
    """Return the rows as fields of a `Rows`, and the places where they begin and end."""
    values = [
        value_field(pb.Row.VALUES_FIELD_NUMBER, rows.column(place), column.type)
        for place, column in enumerate(columns)
    ]
    return encode_fields([MessageField(pb.Rows.ROWS_FIELD_NUMBER, values)], rows.num_rows)


def _slices(
    rows: pa.RecordBatch, columns: Sequence[Column], limit: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch, some at a time; each time others may go first."""
    step = max(1, _SLICE_VALUES // max(1, len(columns)))
    letters = sum(
        text_bytes(rows.column(place))
        for place, column in enumerate(columns)
        if column.type.kind is Kind.TEXT
    )
    if letters > limit:
        # Of about `limit` bytes on average.
        step = max(1, min(step, rows.num_rows * limit // letters))
    for start in range(0, rows.num_rows, step):
        part = rows.slice(start, step)
        spending()(_SLICE_UNITS + part.num_rows * len(columns) * _VALUE_UNITS)
        yield part
