"""Columns of Arrow as plain values of Python, as JSON and SQLite take them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

OddDouble = Callable[[float], Any]


def odd_name(value: float) -> str:
    """Spell a number that is not finite as JSON writers do that know no such numbers."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def plain_values(array: pa.Array, odd_double: OddDouble = odd_name) -> list[Any]:
    """Return plain values of a column; `odd_double` says what stands for a DOUBLE that is not
    finite.
    """
    if pa.types.is_floating(array.type):
        return _doubles(array, odd_double)
    if pa.types.is_decimal(array.type):
        return [None if value is None else format(value, "f") for value in array.to_pylist()]
    if pa.types.is_timestamp(array.type):
        return _instants(array)
    values: list[Any] = (
        array.cast(pa.string()) if pa.types.is_date(array.type) else array
    ).to_pylist()
    return values


def _doubles(array: pa.Array, odd_double: OddDouble) -> list[Any]:
    values: list[Any] = array.to_pylist()
    # The result is None if the column has no values, or only NULLs.
    if pc.all(pc.is_finite(array)).as_py() in (True, None):
        return values
    return [
        value if value is None or math.isfinite(value) else odd_double(value) for value in values
    ]


def _instants(array: pa.Array) -> list[Any]:
    # Without a zone, Arrow writes `YYYY-MM-DD HH:MM:SS.ffffff`; the instants are in UTC.
    texts = array.cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
    return [None if text is None else f"{text[:10]}T{text[11:]}Z" for text in texts]
