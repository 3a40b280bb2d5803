"""CAST: from any type to any other that has a meaning; what can't be converted is NULL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.types import DATE, TIMESTAMP, Kind, Type
from querystem.kernel import integers, moments, rounding
from querystem.kernel.arithmetic import fit
from querystem.kernel.parse import PARSERS
from querystem.kernel.vector import Vector, both, of_scalars, of_text

_INT64_END = 2.0**63


def cast(operand: Vector, type_: Type) -> Vector:
    """Raises TypeError for a pair of types without a conversion."""
    if operand.type == type_:
        return operand
    convert = CASTS.get((operand.type.kind, type_.kind))
    if convert is None:
        raise TypeError(f"{operand.type} can't be cast to {type_}")
    return convert(operand, type_)


def _exact(operand: Vector, type_: Type) -> Vector:
    return fit(operand.values, operand.type.scale, type_, operand.valid)


def _decimal_to_bigint(operand: Vector, type_: Type) -> Vector:
    """Truncates towards zero, as DOUBLE does."""
    unit = integers.constant(10**operand.type.scale)
    return fit(integers.divide(operand.values, unit), 0, type_, operand.valid)


def _to_double(operand: Vector, type_: Type) -> Vector:
    return Vector(type_, rounding.to_double(operand.values, operand.type.scale), operand.valid)


def _double_to_bigint(operand: Vector, type_: Type) -> Vector:
    whole = np.trunc(operand.values)
    inside = (whole >= -_INT64_END) & (whole < _INT64_END)
    values = np.where(inside, whole, 0.0).astype(np.int64)
    return Vector(type_, values, both(operand.valid, inside))


def _double_to_decimal(operand: Vector, type_: Type) -> Vector:
    """As it is written: 0.285 is a half of a hundredth."""
    finite = np.abs(operand.values) < 1e39
    values = rounding.unscaled(np.where(finite, operand.values, 0.0), type_.scale)
    return fit(values, type_.scale, type_, both(operand.valid, finite))


def _boolean_to_bigint(operand: Vector, type_: Type) -> Vector:
    return Vector(type_, operand.values.astype(np.int64), operand.valid)


def _timestamp_to_date(operand: Vector, _: Type) -> Vector:
    return Vector(DATE, moments.days_of(operand), operand.valid)


def _date_to_timestamp(operand: Vector, _: Type) -> Vector:
    return Vector(TIMESTAMP, moments.micros_of(operand), operand.valid)


def _parse(operand: Vector, type_: Type) -> Vector:
    """Each distinct text is read once."""
    encoded = operand.values.dictionary_encode()
    read = PARSERS[type_.kind]
    values = [read(text, type_) for text in encoded.dictionary.to_pylist()]
    parsed = of_scalars([*values, None], type_)
    places = encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    valid = None if parsed.valid is None else parsed.valid[places]
    return Vector(type_, parsed.values[places], valid)


def _boolean_to_text(operand: Vector, _: Type) -> Vector:
    return _texts(pc.if_else(pa.array(operand.values), "true", "false"), operand)


def _bigint_to_text(operand: Vector, _: Type) -> Vector:
    return _texts(pa.array(operand.values).cast(pa.string()), operand)


def _double_to_text(operand: Vector, _: Type) -> Vector:
    return _distinct_texts(operand.values + 0.0, _write_double, operand)


def _decimal_to_text(operand: Vector, _: Type) -> Vector:
    scale = operand.type.scale
    return _distinct_texts(operand.values, lambda value: _write_decimal(value, scale), operand)


def _date_to_text(operand: Vector, _: Type) -> Vector:
    days = operand.values.astype("datetime64[D]")
    return _texts(pa.array(np.datetime_as_string(days)), operand)


def _timestamp_to_text(operand: Vector, _: Type) -> Vector:
    written = np.datetime_as_string(operand.values.astype("datetime64[us]"))
    spaced = pc.replace_substring(pa.array(written), "T", " ")
    return _texts(pc.replace_substring_regex(spaced, r"\.000000$", ""), operand)


def _distinct_texts(values: Any, write: Callable[[Any], str], operand: Vector) -> Vector:
    distinct, places = np.unique(values, return_inverse=True)
    written = pa.array([write(value) for value in distinct.tolist()], pa.string())
    return _texts(written.take(pa.array(places)), operand)


def _texts(array: pa.Array, operand: Vector) -> Vector:
    return of_text(array.cast(pa.string())).also_valid(operand.valid)


def _write_double(value: float) -> str:
    """The shortest form that reads back as the same number."""
    return repr(value).replace("nan", "NaN").replace("inf", "Infinity")


def _write_decimal(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits


Convert = Callable[[Vector, Type], Vector]

CASTS: dict[tuple[Kind, Kind], Convert] = {
    (Kind.BIGINT, Kind.DECIMAL): _exact,
    (Kind.DECIMAL, Kind.DECIMAL): _exact,
    (Kind.DECIMAL, Kind.BIGINT): _decimal_to_bigint,
    (Kind.BIGINT, Kind.DOUBLE): _to_double,
    (Kind.DECIMAL, Kind.DOUBLE): _to_double,
    (Kind.DOUBLE, Kind.BIGINT): _double_to_bigint,
    (Kind.DOUBLE, Kind.DECIMAL): _double_to_decimal,
    (Kind.BOOLEAN, Kind.BIGINT): _boolean_to_bigint,
    (Kind.TIMESTAMP, Kind.DATE): _timestamp_to_date,
    (Kind.DATE, Kind.TIMESTAMP): _date_to_timestamp,
    (Kind.BOOLEAN, Kind.TEXT): _boolean_to_text,
    (Kind.BIGINT, Kind.TEXT): _bigint_to_text,
    (Kind.DOUBLE, Kind.TEXT): _double_to_text,
    (Kind.DECIMAL, Kind.TEXT): _decimal_to_text,
    (Kind.DATE, Kind.TEXT): _date_to_text,
    (Kind.TIMESTAMP, Kind.TEXT): _timestamp_to_text,
    **{(Kind.TEXT, kind): _parse for kind in PARSERS},
}
