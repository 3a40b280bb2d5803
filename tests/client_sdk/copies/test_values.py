"""Values survive the file exactly, and their checksums are those of docs/reference/protocol.md."""

from __future__ import annotations

import random
import sqlite3
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk._wire.values import Column, schema_of
from client_sdk.copies._file.checksums import Checksums, digest, signed, sum_of_bytes
from client_sdk.copies._file.tables import restored, sql_expression, stored
from datastem.types import parse_type
from tests.oracle import checksums

COLUMNS = (
    Column("b", "BOOLEAN"),
    Column("i", "BIGINT"),
    Column("x", "DOUBLE"),
    Column("d", "DECIMAL(38,5)"),
    Column("e", "DECIMAL(4,4)"),
    Column("t", "TEXT"),
    Column("at", "TIMESTAMP"),
    Column("day", "DATE"),
)

_digits = st.decimals(allow_nan=False, allow_infinity=False, places=5).filter(
    lambda number: abs(number) < Decimal(10) ** 33
)
row = st.tuples(
    st.none() | st.booleans(),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats() | st.just(-0.0),
    st.none() | _digits,
    st.none() | st.integers(-9999, 9999).map(lambda n: Decimal(n).scaleb(-4)),
    st.none() | st.text(),
    st.none() | st.datetimes(timezones=st.just(UTC)),
    st.none() | st.dates(),
)


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    arrays = [
        pa.array([values[place] for values in rows], column.arrow)
        for place, column in enumerate(COLUMNS)
    ]
    return pa.Table.from_arrays(arrays, schema=schema_of(COLUMNS)).combine_chunks()


def through_sqlite(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Out of a file's pages, not of a cache of values."""
    connection = sqlite3.connect(":memory:")
    places = ", ".join("?" * len(COLUMNS))
    names = ", ".join(f"c{n}" for n in range(len(COLUMNS)))
    connection.execute(f"CREATE TABLE t ({names})")
    connection.executemany(f"INSERT INTO t VALUES ({places})", rows)
    fetched = connection.execute("SELECT * FROM t").fetchall()
    connection.close()
    return fetched


def bits(value: Any) -> Any:
    """Tells -0.0 from 0.0, and takes any NaN for another."""
    if isinstance(value, float):
        return "NaN" if value != value else struct.pack("<d", value)
    return value


@given(st.lists(row, min_size=1, max_size=5))
def test_values_come_back_as_they_were(rows: list[tuple[Any, ...]]) -> None:
    table = table_of(rows)
    columns = [stored(table.column(n).combine_chunks(), column) for n, column in enumerate(COLUMNS)]
    restored_table = through_sqlite(list(zip(*columns, strict=True)))
    back = [
        restored(values, column)
        for values, column in zip(zip(*restored_table, strict=True), COLUMNS, strict=True)
    ]
    assert pa.Table.from_arrays(back, schema=schema_of(COLUMNS)).schema == table.schema
    for array, before in zip(back, table.columns, strict=True):
        assert list(map(bits, array.to_pylist())) == list(map(bits, before.to_pylist()))


instants = st.none() | st.integers(-(2**63) + 1, 2**63 - 2)


@given(
    st.lists(
        st.tuples(st.integers(0, 2**63 - 1), instants, instants, st.binary(max_size=9), row),
        max_size=4,
    )
)
def test_checksums_are_those_of_the_wire(rows: list[Any]) -> None:
    types = [parse_type(column.type) for column in COLUMNS]
    table = table_of([values for *_, values in rows])
    columns = [stored(table.column(n).combine_chunks(), column) for n, column in enumerate(COLUMNS)]
    stored_rows = [
        (*head, 0, *values)
        for (*head, _), values in zip(rows, zip(*columns, strict=True), strict=True)
    ]
    computed = Checksums(COLUMNS).of(stored_rows)
    assert computed == [
        checksums.checksum(row_id, begin, until, key, values, types)
        for row_id, begin, until, key, values in rows
    ]
    right = [
        (*number[:4], signed(total), *number[5:])
        for number, total in zip(stored_rows, computed, strict=True)
    ]
    assert Checksums(COLUMNS).wrong(right) == []


def test_the_example_of_the_protocol() -> None:
    columns = (
        Column("t", "TEXT"),
        Column("x", "DOUBLE"),
        Column("d", "DECIMAL(10,2)"),
        Column("i", "BIGINT"),
    )
    row = (7, 1_000_000, None, b"", 0, "IBM", 184.5, "-12.50", None)
    assert Checksums(columns).of([row]) == [0x69E3A7265E71E899]
    assert digest([7]).hex() == "dda1a1b5cb045ff70d21b083019afbfb"
    assert digest([7, 8]).hex() == "13d836a57c56b5951ddb4013bbc0e5f7"
    assert digest([]) == bytes(16)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=9))
def test_digests_are_those_of_the_wire(numbers: list[int]) -> None:
    assert digest([signed(number) for number in numbers]) == checksums.digest(numbers)


@given(st.binary(max_size=50))
def test_sums_of_texts(content: bytes) -> None:
    assert sum_of_bytes(content) == checksums.sum_of_bytes(content)


@pytest.mark.parametrize("place", range(len(COLUMNS)))
@pytest.mark.parametrize("wrong_value", [7, 1.5, "text", b"bytes", None, "12.345678", 2**40])
def test_a_value_of_another_type_is_wrong_and_no_other_row_is(place: int, wrong_value: Any) -> None:
    chance = random.Random(3)
    values = (1, 3, 2.5, "1.50000", "0.2500", "word", 5, 9)
    sums = Checksums(COLUMNS)
    rows = [(n, None, None, b"k", 0, *values) for n in range(5)]
    rows = [(*row[:4], signed(sums.of([row])[0]), *row[5:]) for row in rows]
    bad = chance.randrange(5)
    changed = list(rows[bad])
    changed[5 + place] = wrong_value
    same = changed[5 + place] == values[place]
    assert sums.wrong([*rows[:bad], tuple(changed), *rows[bad + 1 :]]) == ([] if same else [bad])


@given(st.datetimes(timezones=st.just(UTC)), st.dates())
def test_sql_sees_iso_text(at: datetime, day: date) -> None:
    connection = sqlite3.connect(":memory:")
    stamp = stored(pa.array([at], COLUMNS[6].arrow), COLUMNS[6])[0]
    number = stored(pa.array([day], COLUMNS[7].arrow), COLUMNS[7])[0]
    columns = f"{sql_expression('a', COLUMNS[6])}, {sql_expression('b', COLUMNS[7])}"
    select = f"SELECT {columns} FROM (SELECT ? a, ? b)"
    row = connection.execute(select, (stamp, number)).fetchone()
    connection.close()
    text = at.replace(tzinfo=None).isoformat(" ", "microseconds")
    assert row == (text, day.isoformat())
