"""Random schemas, rows and values, extremes included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from datastem.instants import MAX_INSTANT, MIN_INSTANT, from_micros
from datastem.schema import SYSTEM_COLUMNS, Column, StreamSchema
from datastem.types import BIGINT, BOOLEAN, DATE, DOUBLE, TEXT, TIMESTAMP, Kind, Type, decimal_type

Row = dict[str, Any]

_NAMES = ("a", "b", "c", "d", "e", "f")
_BIGINTS = (0, 1, -1, 2, 3, 10, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63))
_DOUBLES = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.5,
    0.1,
    2.675,
    2.0**53,
    2.0**63,
    -(2.0**63),
    1e300,
    5e-324,
) + (float("inf"), float("-inf"), float("nan"))
# Cased letters that have exactly one partner in every version of Unicode, wildcards, signs.
_LETTERS = "abzABZéÉжЖ日𝄞 %_\\\n\x0001.-+:TZ"
_TEXTS = (
    ("", " ", "a", "b", "ab", "aB", "%", "_", "a%", "\\", " 7 ", "-12", "1.5", "2e3", "1e-2", ".5")
    + ("9223372036854775808", "true", "No", "nan", "-Infinity", "2026-11-16", "2026-02-30")
    + ("2026-11-16 09:00", "1969-12-31T23:59:59.999999Z", "0001-01-01 00:00+01:00")
    + ("2026-11-16 09:00:00.1234567", "2026-11-16 09:00:00.1234560-0130", "2026-11-16 09:00.5")
)
_DATES = (date.min, date.max, date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29))
_MOMENTS = (MIN_INSTANT, MAX_INSTANT, 0, -1, 1, 1_763_280_000_000_000, -86_400_000_001) + (
    1_709_164_800_000_000,
    951_782_399_999_999,
)
_DAY = 86_400_000_000
_DURATIONS = (0, 1, -1, 1_000_000, 500_000, 60_000_000, -_DAY, 7 * _DAY, 2**53 + 1) + (
    MAX_INSTANT - MIN_INSTANT,
    MIN_INSTANT - MAX_INSTANT,
    2**63 - 1,
    -(2**63),
)


@st.composite
def decimal_types(draw: DrawFn) -> Type:
    precision = draw(st.sampled_from((1, 4, 9, 18, 19, 38)))
    return decimal_type(precision, draw(st.integers(0, min(precision, 38))))


def types() -> SearchStrategy[Type]:
    """Return the types that columns have."""
    return st.one_of(
        st.sampled_from((BIGINT, DOUBLE, TEXT, TIMESTAMP, DATE, BOOLEAN)), decimal_types()
    )


@st.composite
def decimals(draw: DrawFn, type_: Type) -> Decimal:
    limit = 10**type_.precision - 1
    few = min(limit, 5)
    unit = 10**type_.scale
    whole = st.integers(-few, few).map(lambda value: value * unit).filter(lambda v: abs(v) <= limit)
    unscaled = draw(
        st.one_of(st.integers(-few, few), whole, st.integers(-limit, limit), st.just(limit))
    )
    return Decimal(f"{unscaled}e-{type_.scale}")


def values(type_: Type) -> SearchStrategy[Any]:
    """Any value of the type but NULL; few enough of them that equal ones meet."""
    match type_.kind:
        case Kind.BOOLEAN:
            return st.booleans()
        case Kind.BIGINT:
            every = st.integers(-(2**63), 2**63 - 1)
            return st.one_of(st.sampled_from(_BIGINTS), st.integers(-4, 12), every)
        case Kind.DOUBLE:
            return st.one_of(
                st.sampled_from(_DOUBLES), st.integers(-20, 20).map(lambda v: v / 4), st.floats()
            )
        case Kind.DECIMAL:
            return decimals(type_)
        case Kind.TEXT:
            return st.one_of(st.sampled_from(_TEXTS), st.text(_LETTERS, max_size=6))
        case Kind.DATE:
            return st.one_of(st.sampled_from(_DATES), st.dates())
        case Kind.DURATION:
            return st.one_of(
                st.sampled_from(_DURATIONS),
                st.integers(-40, 40).map(lambda quarters: quarters * _DAY // 96),
                st.integers(-(2**63), 2**63 - 1),
            )
    return st.one_of(st.sampled_from(_MOMENTS), st.integers(MIN_INSTANT, MAX_INSTANT)).map(
        from_micros
    )


def nullable(type_: Type) -> SearchStrategy[Any]:
    return st.one_of(values(type_), values(type_), values(type_), st.none())


@st.composite
def schemas(draw: DrawFn) -> StreamSchema:
    """Draw a stream with arrival time and up to six columns."""
    kinds = draw(st.lists(types(), min_size=1, max_size=len(_NAMES)))
    columns = tuple(Column(name, type_) for name, type_ in zip(_NAMES, kinds, strict=False))
    return StreamSchema("s", columns)


@st.composite
def rows(draw: DrawFn, schema: StreamSchema, max_size: int = 8) -> list[Row]:
    """Draw rows as the oracle takes them: `ts` in microseconds, `row_id` from 0."""
    columns = {column.name: nullable(column.type) for column in schema.columns}
    stamps = st.one_of(st.sampled_from(_MOMENTS), st.integers(MIN_INSTANT, MAX_INSTANT))
    drawn_rows: list[Row] = draw(
        st.lists(st.fixed_dictionaries({**columns, "ts": stamps}), max_size=max_size)
    )
    return [{**row, "row_id": place} for place, row in enumerate(drawn_rows)]


def to_batch(schema: StreamSchema, found: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Return the same rows as the kernel takes them."""
    kinds = {**{column.name: column.type for column in schema.columns}, **SYSTEM_COLUMNS}
    arrays = [pa.array([row[name] for row in found], kind.arrow) for name, kind in kinds.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(kinds))
