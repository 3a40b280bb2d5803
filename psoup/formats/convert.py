"""Conversion of whole columns to a stream's types, and which values do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc


class TargetColumn(Protocol):
    """A column of a stream: its name; its type as SQL writes it, without its precision, and in
    Arrow."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> object: ...
    @property
    def kind(self) -> str: ...
    @property
    def arrow(self) -> pa.DataType: ...


Cast = Callable[[pa.Array], pa.Array]
# The converted array, with NULL for each value that does not fit; and why it does not, by index.
Converted = tuple[pa.Array, dict[int, str]]

_NAIVE = pa.timestamp("us")
_UTC = pa.timestamp("us", tz="UTC")
# Not by pa.scalar, which imports pandas if that is installed.
_NULL_TEXT = pa.nulls(1, pa.string())[0]

_MAX_DECIMAL_DIGITS = 38
_ZONE = r"(?:Z|[+-]\d\d(?::?\d\d)?)"
# The form of text for each type. A text of this form may still not fit: 2026-02-31.
_SHAPES = {
    "BOOLEAN": r"(?i:true|false|1|0)",
    "BIGINT": r"-?\d{1,19}",
    "DOUBLE": r"(?i:[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|[+-]?inf(?:inity)?|nan)",
    "TIMESTAMP": rf"\d{{4}}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{{1,6}}0*)?)?{_ZONE}?)?",
    "DATE": r"\d{4}-\d\d-\d\d",
}


def convert(array: pa.Array, cast: Cast, why: str) -> Converted:
    """Cast an array at once if all values fit; else by halves, so that only bad values cost."""
    failed: dict[int, str] = {}
    pieces = _halves(array, 0, cast, why, failed)
    return (pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)), failed


def _halves(
    array: pa.Array, start: int, cast: Cast, why: str, failed: dict[int, str]
) -> list[pa.Array]:
    try:
        return [cast(array)]
    except ValueError:
        if len(array) == 1:
            failed[start] = why
            # A NULL in the place of the bad value keeps the indexes of the rows.
            return [cast(pa.nulls(1, array.type))]
        # A bad value costs about log2(n) casts, and the good halves are cast whole.
        middle = len(array) // 2
        first_half = _halves(array.slice(0, middle), start, cast, why, failed)
        return first_half + _halves(array.slice(middle), start + middle, cast, why, failed)


def convert_text(array: pa.Array, column: TargetColumn) -> Converted:
    """Convert from text, or from bytes in UTF-8. Space around other types than TEXT is ignored."""
    texts, failed = convert(array, lambda part: part.cast(pa.string()), "is not UTF-8")
    if column.kind == "TEXT":
        return texts, failed
    cast, why = _cast_of(column), f"is not {column.type}"
    texts = pc.utf8_trim_whitespace(texts)
    try:
        return cast(texts), failed
    except ValueError:
        # One pass of the regular expression finds most bad values, so that few are left for the
        # halves. NULL texts are in neither mask.
        fits = pc.match_substring_regex(texts, f"^(?:{_shape(column)})$")
        wrong = pc.indices_nonzero(pc.invert(fits)).to_pylist()
        values, misfits = convert(pc.if_else(fits, texts, _NULL_TEXT), cast, why)
        return values, {**misfits, **dict.fromkeys(wrong, why), **failed}


def _shape(column: TargetColumn) -> str:
    if column.kind != "DECIMAL":
        return _SHAPES[column.kind]
    whole = column.arrow.precision - column.arrow.scale
    plain = rf"0*\d{{0,{whole}}}(?:\.\d{{0,{column.arrow.scale}}}0*)?"
    return rf"[+-]?(?:{plain}|\d*(?:\.\d*)?[eE][+-]?\d+)"


def _cast_of(column: TargetColumn) -> Cast:
    if column.kind == "BIGINT":
        return _bigint
    if column.kind == "DECIMAL":
        return lambda texts: _decimal(texts, column.arrow)
    return _timestamp if column.kind == "TIMESTAMP" else lambda texts: texts.cast(column.arrow)


def _bigint(texts: pa.Array) -> pa.Array:
    """Cast decimal digits only: Arrow would also read 0x1A."""
    if pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py():
        raise ValueError("hexadecimal")
    return texts.cast(pa.int64())


def _decimal(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast numbers; zeros before and behind the digits of a DECIMAL are allowed."""
    longest = pc.max(pc.utf8_length(texts)).as_py()
    if longest is not None and longest > _MAX_DECIMAL_DIGITS:
        texts = pc.replace_substring_regex(texts, r"^([+-]?)0+(\d)", r"\1\2")
        texts = pc.replace_substring_regex(texts, r"(\.\d*?)0+$", r"\1")
        digits = pc.replace_substring_regex(texts, r"[eE].*|[+-.]", "")
        # Of more digits Arrow keeps the last 128 bits: another number.
        if pc.any(pc.greater(pc.utf8_length(digits), _MAX_DECIMAL_DIGITS)).as_py():
            raise ValueError("has more digits than any DECIMAL")
    return texts.cast(type_)


def _timestamp(texts: pa.Array) -> pa.Array:
    """Cast ISO 8601, in UTC without an offset; zeros past the microsecond are allowed."""
    # The fast path: all values of a column have an offset, or none has.
    for type_ in (_NAIVE, _UTC):
        try:
            return texts.cast(type_).cast(_UTC)
        except pa.ArrowInvalid:
            continue
    texts = pc.replace_substring_regex(texts, r"(\.\d{6})0+", r"\1")
    zoned = pc.match_substring_regex(texts, rf":\d\d.*{_ZONE}$")
    # `zoned` is a mask of the texts with an offset. The two halves are NULL at each other's rows.
    offset = pc.if_else(zoned, texts, _NULL_TEXT).cast(_UTC)
    naive = pc.if_else(zoned, _NULL_TEXT, texts).cast(_NAIVE).cast(_UTC)
    return pc.coalesce(offset, naive)
