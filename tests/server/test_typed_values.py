"""Typed values made in columns are, byte for byte, those that protobuf makes of messages."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastem.instants import FOR_EVER, MAX_INSTANT, MIN_INSTANT, SINCE_EVER
from datastem.schema import Column
from datastem.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    MAX_PRECISION,
    TEXT,
    TIMESTAMP,
    Kind,
    Type,
    decimal_type,
)
from psoup.answers.difference.copier import CopyChunk
from psoup.formats.json_rows import decimal_texts
from psoup.server.wire import typed
from psoup.server.wire.sync_rows import row_bytes, row_messages, sync_rows
from psoup.server.wire.typed import typed_rows
from psoup.server.wire.values import to_rows
from psoup.v1 import psoup_pb2 as pb

_INT64 = st.integers(-(2**63), 2**63 - 1)
# Numbers on both sides of every length of a varint.
_EDGES = st.builds(lambda bits, step: 2**bits + step, st.integers(0, 62), st.integers(-1, 1))
_PLAIN: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.BOOLEAN: st.booleans(),
    Kind.BIGINT: _INT64 | _EDGES | st.integers(-2, 2),
    Kind.DOUBLE: st.floats() | st.sampled_from([0.0, -0.0, float("nan"), 5e-324]),
    Kind.TEXT: st.text(max_size=300) | st.sampled_from(["", "\0", "é", "\U0001f680", "x" * 20_000]),
    Kind.TIMESTAMP: st.integers(MIN_INSTANT, MAX_INSTANT)
    | st.sampled_from([MIN_INSTANT, MAX_INSTANT, -1_000_000, -1, 0, 1, 1_000_000]),
    Kind.DATE: st.dates() | st.sampled_from([datetime.date.min, datetime.date.max]),
}


def _values(type_: Type) -> st.SearchStrategy[Any]:
    if type_.kind is not Kind.DECIMAL:
        return _PLAIN[type_.kind]
    most = 10**type_.precision - 1
    numbers = st.integers(-most, most) | st.sampled_from([-most, most, -1, 0, 1])
    exact = decimal.Context(prec=MAX_PRECISION)
    return numbers.map(lambda number: decimal.Decimal(number).scaleb(-type_.scale, exact))


@st.composite
def _types(draw: st.DrawFn) -> Type:
    plain = [BOOLEAN, BIGINT, DOUBLE, TEXT, TIMESTAMP, DATE]
    precision = draw(st.integers(1, MAX_PRECISION))
    number = decimal_type(precision, draw(st.integers(0, precision)))
    return draw(st.sampled_from([*plain, number]))


@st.composite
def _arrays(draw: st.DrawFn, type_: Type, rows: int) -> pa.Array:
    """Return an array that may be a slice of a longer one, in which places may be NULL."""
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    cell = _values(type_) if draw(st.booleans()) else st.none() | _values(type_)
    count = before + rows + after
    values = draw(st.lists(cell, min_size=count, max_size=count))
    if type_.kind is Kind.TIMESTAMP:
        array = pa.array(values, pa.int64()).view(type_.arrow)
    else:
        array = pa.array(values, type_.arrow)
    return array.slice(before, rows)


@st.composite
def _tables(draw: st.DrawFn) -> tuple[pa.RecordBatch, list[Column]]:
    rows = draw(st.integers(1, 12))
    types = draw(st.lists(_types(), min_size=1, max_size=6))
    columns = [Column(f"column{place}", type_) for place, type_ in enumerate(types)]
    arrays = [draw(_arrays(type_, rows)) for type_ in types]
    return pa.RecordBatch.from_arrays(arrays, names=[c.name for c in columns]), columns


@pytest.fixture(autouse=True)
def _always_in_columns(core_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed, "FEW_VALUES", 0)
    monkeypatch.setattr(typed, "_SLICE_VALUES", 20)


@settings(max_examples=150)
@given(_tables(), st.sampled_from([1, 100, 1 << 20]))
def test_rows_are_those_of_messages(table: tuple[pa.RecordBatch, list[Column]], limit: int) -> None:
    batch, columns = table
    (whole,) = to_rows([batch], columns, 1 << 40)
    messages = [pb.Rows.FromString(content) for content in typed_rows(batch, columns, limit)]
    assert all(list(message.columns) == list(whole.columns) for message in messages)
    rows = [row.SerializeToString() for message in messages for row in message.rows]
    assert rows == [row.SerializeToString() for row in whole.rows]
    sizes = [sum(map(pb.Row.ByteSize, message.rows)) for message in messages]
    assert all(
        size <= limit or len(message.rows) == 1
        for size, message in zip(sizes, messages, strict=True)
    )


@settings(max_examples=50)
@given(_tables())
def test_the_bytes_are_those_of_protobuf(table: tuple[pa.RecordBatch, list[Column]]) -> None:
    batch, columns = table
    content, _ = typed.row_fields(batch, columns)
    (message,) = to_rows([batch], columns, 1 << 40)
    del message.columns[:]
    assert bytes(content) == message.SerializeToString()


def test_decimals_have_all_digits_and_no_exponent() -> None:
    for scale in range(MAX_PRECISION + 1):
        numbers = [0, 1, -1, 10**38 - 1, 1 - 10**38, None, 10**scale if scale < 38 else 5]
        exact = decimal.Context(prec=MAX_PRECISION)
        values = [
            None if number is None else decimal.Decimal(number).scaleb(-scale, exact)
            for number in numbers
        ]
        array = pa.array([None, *values], pa.decimal128(38, scale)).slice(1)
        expected = [None if value is None else format(value, "f") for value in values]
        assert decimal_texts(array).to_pylist() == expected


@settings(max_examples=75)
@given(_tables(), st.data())
def test_rows_of_copies_are_those_of_messages(
    table: tuple[pa.RecordBatch, list[Column]], data: st.DataObject
) -> None:
    batch, columns = table
    count = batch.num_rows

    def numbers(*special: int) -> np.ndarray:
        cell = _INT64 | st.sampled_from([0, -1, 1, *special])
        return np.array(data.draw(st.lists(cell, min_size=count, max_size=count)), np.int64)

    keys = data.draw(st.lists(st.binary(max_size=200), min_size=count, max_size=count))
    chunk = CopyChunk(
        np.abs(numbers() >> 1),
        numbers(SINCE_EVER),
        numbers(FOR_EVER),
        pa.array(keys, pa.binary()),
        batch,
        keys=numbers() if data.draw(st.booleans()) else None,
    )
    expected = pb.SyncRows(rows=row_messages(chunk, columns))
    assert row_bytes(chunk, columns) == expected.SerializeToString()
    assert sync_rows(chunk, columns).SerializeToString() == expected.SerializeToString()
