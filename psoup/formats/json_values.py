"""Values of JSON as columns of a stream: which types fit, and arrays of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from psoup.formats.convert import Converted, TargetColumn, convert_text

_SHOWN_CHARACTERS = 40
_NONE = type(None)
# The JSON types of each column type; the others are written as strings.
_JSON_TYPES: dict[str, frozenset[type]] = {
    "BOOLEAN": frozenset({bool, _NONE}),
    "BIGINT": frozenset({int, _NONE}),
    "DOUBLE": frozenset({int, float, Decimal, _NONE}),
    "DECIMAL": frozenset({int, Decimal, str, _NONE}),
}
_STRING = frozenset({str, _NONE})
_NUMBERS = ("BIGINT", "DOUBLE")


def exact_number(text: str) -> Decimal:
    """Return a number of JSON with all its digits, as `parse_float` of decoders. Raise ValueError
    for an exponent that no Decimal has."""
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"has the number {text[:_SHOWN_CHARACTERS]}, which is too large") from None


def json_constant(value: Any) -> Any:
    """Return a constant as JSON has it: numbers and booleans as they are, times as texts."""
    return value.isoformat() if isinstance(value, date) else value


def misfits(
    values: Sequence[Any], column: TargetColumn, *, number_texts: bool = False
) -> list[int]:
    """Return the places of values whose JSON type the column does not take. With `number_texts`
    numbers may be texts, as those that JSON or JavaScript has not are written."""
    allowed = _JSON_TYPES.get(column.kind, _STRING)
    if number_texts and column.kind in _NUMBERS:
        allowed |= _STRING
    # One look at the types of all values; only a column with a wrong one is searched.
    if set(map(type, values)) <= allowed:
        return []
    return [place for place, value in enumerate(values) if type(value) not in allowed]


def array_of(values: Sequence[Any], column: TargetColumn) -> pa.Array:
    """Return numbers and booleans as they are, if they fit; anything else as text to be cast.
    Raise UnicodeEncodeError for a text with half of a surrogate pair."""
    if column.kind in ("BOOLEAN", "BIGINT", "DOUBLE"):
        try:
            return pa.array(values, column.arrow)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def convert_array(array: pa.Array, column: TargetColumn) -> Converted:
    """Convert what `array_of` returned to the type of the column."""
    return (array, {}) if array.type == column.arrow else convert_text(array, column)
