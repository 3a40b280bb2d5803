"""CAST: from any type to any other that has a meaning; a value that can't be converted is NULL.

A TEXT is read strictly, except for spaces at both ends.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.instants import MAX_INSTANT, MIN_INSTANT, MINUTE, to_micros
from datastem.types import DATE, TIMESTAMP, Kind, Type
from querystem.kernel import integers
from querystem.kernel.arithmetic import fit, to_double, unscaled
from querystem.kernel.dates import days_of, micros_of
from querystem.kernel.integers import INT64_MAX, INT64_MIN
from querystem.kernel.vector import Vector, both, of_scalars, of_text

_INT64_END = 2.0**63


def cast(operand: Vector, type_: Type) -> Vector:
    """Return the operand as another type; raise TypeError for two types without a conversion."""
    if operand.type == type_:
        return operand
    convert = CASTS.get((operand.type.kind, type_.kind))
    if convert is None:
        raise TypeError(f"{operand.type} can't be cast to {type_}")
    return convert(operand, type_)


def _exact(operand: Vector, type_: Type) -> Vector:
    return fit(operand.values, operand.type.scale, type_, operand.valid)


def _decimal_to_bigint(operand: Vector, type_: Type) -> Vector:
    """Truncate towards zero, as the cast from DOUBLE does."""
    unit = integers.constant(10**operand.type.scale)
    return fit(integers.divide(operand.values, unit), 0, type_, operand.valid)


def _to_double(operand: Vector, type_: Type) -> Vector:
    return Vector(type_, to_double(operand.values, operand.type.scale), operand.valid)


def _double_to_bigint(operand: Vector, type_: Type) -> Vector:
    whole = np.trunc(operand.values)
    inside = (whole >= -_INT64_END) & (whole < _INT64_END)
    values = np.where(inside, whole, 0.0).astype(np.int64)
    return Vector(type_, values, both(operand.valid, inside))


def _double_to_decimal(operand: Vector, type_: Type) -> Vector:
    """Round the number as it is written: the last digit of 0.285 is a half of a hundredth."""
    # The limit is past every DECIMAL(38), and the comparison is false for NaN.
    finite = np.abs(operand.values) < 1e39
    values = unscaled(np.where(finite, operand.values, 0.0), type_.scale)
    return fit(values, type_.scale, type_, both(operand.valid, finite))


def _boolean_to_bigint(operand: Vector, type_: Type) -> Vector:
    return Vector(type_, operand.values.astype(np.int64), operand.valid)


def _timestamp_to_date(operand: Vector, _: Type) -> Vector:
    return Vector(DATE, days_of(operand), operand.valid)


def _date_to_timestamp(operand: Vector, _: Type) -> Vector:
    return Vector(TIMESTAMP, micros_of(operand), operand.valid)


def _parse(operand: Vector, type_: Type) -> Vector:
    """Read each distinct text once."""
    encoded = operand.values.dictionary_encode()
    read = PARSERS[type_.kind]
    values = [read(text, type_) for text in encoded.dictionary.to_pylist()]
    # The last value is for NULL, whose index is filled in below.
    parsed = of_scalars([*values, None], type_)
    places = encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    valid = None if parsed.valid is None else parsed.valid[places]
    return Vector(type_, parsed.values[places], valid)


def _boolean_to_text(operand: Vector, _: Type) -> Vector:
    return _texts(pc.if_else(pa.array(operand.values), "true", "false"), operand)


def _bigint_to_text(operand: Vector, _: Type) -> Vector:
    return _texts(pa.array(operand.values).cast(pa.string()), operand)


def _double_to_text(operand: Vector, _: Type) -> Vector:
    # Adding 0.0 makes −0.0 the text 0.0.
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
    """Return the shortest text that is read as the same number."""
    return repr(value).replace("nan", "NaN").replace("inf", "Infinity")


def _write_decimal(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits


# ---- reading TEXT, one value at a time: None for a text that is no value of the type

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_SPECIAL = re.compile(r"[+-]?(inf|infinity)|nan", re.IGNORECASE)
_DATE = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
_TIME = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
_ZONE = r"(?:[Zz]|([+-])([0-9]{2})(?::?([0-9]{2}))?)"
_MOMENT = re.compile(rf"{_DATE}(?:[ Tt]{_TIME} ?{_ZONE}?)?")
_DAY = re.compile(_DATE)
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
# A longer text is not read as a number: no DECIMAL has so many digits, and reading takes long.
_MAX_NUMBER_CHARACTERS = 4096
_CONTEXT = decimal.Context(
    prec=2 * _MAX_NUMBER_CHARACTERS, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN
)


def read_boolean(text: str, _: Type) -> bool | None:
    return _BOOLEANS.get(text.strip(" ").lower())


def read_bigint(text: str, _: Type) -> int | None:
    text = text.strip(" ")
    if not _INTEGER.fullmatch(text) or len(text) > _MAX_NUMBER_CHARACTERS:
        return None
    value = int(text)
    return value if INT64_MIN <= value <= INT64_MAX else None


def read_double(text: str, _: Type) -> float | None:
    text = text.strip(" ")
    if _NUMBER.fullmatch(text) or _SPECIAL.fullmatch(text):
        return float(text)
    return None


def read_decimal(text: str, type_: Type) -> decimal.Decimal | None:
    text = text.strip(" ")
    if not _NUMBER.fullmatch(text) or len(text) > _MAX_NUMBER_CHARACTERS:
        return None
    value = _CONTEXT.create_decimal(text)
    # `quantize` would write out all digits of a number such as 1e9999, so those are refused first.
    if value and value.adjusted() > type_.precision:
        return None
    step = decimal.Decimal(1).scaleb(-type_.scale)
    rounded = value.quantize(step, decimal.ROUND_HALF_UP, _CONTEXT)
    return rounded if abs(rounded) < 10 ** (type_.precision - type_.scale) else None


def read_timestamp(text: str, _: Type) -> int | None:
    """Return an instant in microseconds; without a zone it is UTC, and without a time midnight."""
    match = _MOMENT.fullmatch(text.strip(" "))
    # Instants have microseconds: digits of the fraction after the sixth must be zeros.
    if match is None or (match[7] or "")[6:].strip("0"):
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    try:
        moment = datetime.datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None
    hours, minutes = int(match[9] or 0), int(match[10] or 0)
    if hours > 23 or minutes > 59:
        return None
    offset = (hours * 60 + minutes) * (-MINUTE if match[8] == "-" else MINUTE)
    micros = to_micros(moment) + int((match[7] or "")[:6].ljust(6, "0")) - offset
    return micros if MIN_INSTANT <= micros <= MAX_INSTANT else None


def read_date(text: str, _: Type) -> datetime.date | None:
    match = _DAY.fullmatch(text.strip(" "))
    if match is None:
        return None
    try:
        return datetime.date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        return None


PARSERS: dict[Kind, Callable[[str, Type], Any]] = {
    Kind.BOOLEAN: read_boolean,
    Kind.BIGINT: read_bigint,
    Kind.DOUBLE: read_double,
    Kind.DECIMAL: read_decimal,
    Kind.TIMESTAMP: read_timestamp,
    Kind.DATE: read_date,
}


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
