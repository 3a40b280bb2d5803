"""Rows of Arrow as JSON, made by columns: no Python object for each cell.

| type      | JSON                                                      |
|-----------|-----------------------------------------------------------|
| NULL      | null                                                      |
| BOOLEAN   | true, false                                               |
| BIGINT    | a number, all digits; text past 2^53 with `bigint_text`   |
| DOUBLE    | a number; "NaN", "Infinity", "-Infinity"                  |
| DECIMAL   | text, all digits: "12.50"                                 |
| TEXT      | text                                                      |
| TIMESTAMP | "2026-11-16T09:00:00.000000Z"                             |
| DATE      | "2026-11-16"                                              |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from psoup.formats.plain import plain_values

# The largest integers that a double holds exactly, which is what JavaScript has.
_MAX_SAFE_INTEGER = 2**53
# Up to so many values, objects of Python are made sooner than columns of texts: in about 0.3 ms.
_FEW_VALUES = 700
# A cast writes decimals of a greater scale with an exponent, if they are small.
_MAX_PLAIN_SCALE = 6
# What JSON wants escaped: the quote, the backslash and control characters.
_SPECIAL = r'["\\\x00-\x1f]'
_CONTROL = r"[\x00-\x1f]"
_SHORT_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def rows_as_json(
    rows: pa.RecordBatch,
    separator: str,
    names: Sequence[str] | None = None,
    *,
    bigint_text: bool = False,
) -> bytes:
    """Return the rows joined by a separator, each an object if there are names, else an array."""
    if rows.num_rows * rows.num_columns > _FEW_VALUES:
        return joined(row_texts(rows, names, bigint_text=bigint_text), separator)
    columns = [_plain_column(array, bigint_text) for array in rows.columns]
    values: Iterable[Any] = zip(*columns, strict=True) if columns else [()] * rows.num_rows
    if names is not None:
        values = (dict(zip(names, row, strict=True)) for row in values)
    return separator.join(json.dumps(row, ensure_ascii=False) for row in values).encode()


def _plain_column(array: pa.Array, bigint_text: bool) -> list[Any]:
    values = plain_values(array)
    if not bigint_text or not pa.types.is_int64(array.type):
        return values
    return [
        str(value) if value is not None and abs(value) > _MAX_SAFE_INTEGER else value
        for value in values
    ]


def row_texts(
    rows: pa.RecordBatch, names: Sequence[str] | None = None, *, bigint_text: bool = False
) -> pa.Array:
    """Return a JSON text for each row: an object if there are names, else an array."""
    parts: list[Any] = []
    for place, array in enumerate(rows.columns):
        key = "" if names is None else f"{json.dumps(names[place], ensure_ascii=False)}: "
        separator = ", " if place else "[" if names is None else "{"
        parts += [separator + key, value_texts(array, bigint_text=bigint_text)]
    end = "]" if names is None else "}"
    if not parts:
        empty = "[]" if names is None else "{}"
        return pa.array([empty] * rows.num_rows, pa.string())
    return pc.binary_join_element_wise(*parts, end, "")


def joined(texts: pa.Array, separator: str) -> bytes:
    """Return texts, none of them NULL, joined into one; less than 2 GiB."""
    if not len(texts):
        return b""
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    content: bytes = pc.binary_join(whole, separator)[0].as_buffer().to_pybytes()
    return content


def value_texts(array: pa.Array, *, bigint_text: bool = False) -> pa.Array:
    """Return the values of a column as JSON."""
    texts = _writer(array.type)(array)
    if bigint_text and pa.types.is_int64(array.type):
        texts = _quoted_if(texts, _is_unsafe(array))
    return texts.fill_null("null") if texts.null_count else texts


def _writer(type_: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    if pa.types.is_floating(type_):
        return _doubles
    if pa.types.is_decimal(type_):
        return lambda array: _quoted(decimal_texts(array))
    if pa.types.is_timestamp(type_):
        return lambda array: _quoted(instant_texts(array))
    if pa.types.is_date(type_):
        return lambda array: _quoted(array.cast(pa.string()))
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _texts
    # Booleans and integers are spelled as JSON has them.
    return lambda array: array.cast(pa.string())


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _quoted_if(texts: pa.Array, mask: pa.Array) -> pa.Array:
    if not pc.any(mask).as_py():
        return texts
    return pc.if_else(mask, _quoted(texts), texts)


def _is_unsafe(array: pa.Array) -> pa.Array:
    return pc.or_(pc.greater(array, _MAX_SAFE_INTEGER), pc.less(array, -_MAX_SAFE_INTEGER))


def _doubles(array: pa.Array) -> pa.Array:
    texts = array.cast(pa.string())
    # Arrow spells 1.0 as `1`, which programs would read as an integer.
    whole = pc.match_substring_regex(texts, r"^-?\d+$")
    if pc.any(whole).as_py():
        texts = pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    # None if the column has no values.
    if pc.all(pc.is_finite(array)).as_py() is not False:
        return texts
    for spelled, name in (("nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"')):
        texts = pc.if_else(pc.equal(texts, spelled), name, texts)
    return texts


def instant_texts(array: pa.Array) -> pa.Array:
    """Return instants as ISO 8601 with six digits of the second, in UTC."""
    # Without a zone, Arrow writes `YYYY-MM-DD HH:MM:SS.ffffff`; the instants are in UTC.
    texts = array.cast(pa.timestamp("us")).cast(pa.string())
    parts = pc.replace_substring(texts, " ", "T", max_replacements=1)
    return pc.binary_join_element_wise(parts, "Z", "")


def decimal_texts(array: pa.Array) -> pa.Array:
    """Return decimals with all digits of their scale and no exponent, which a cast would write for
    small ones."""
    scale = array.type.scale
    if scale <= _MAX_PLAIN_SCALE:
        return array.cast(pa.string())
    validity, content = array.buffers()
    # The same numbers without their point.
    digits = pa.Array.from_buffers(
        pa.decimal128(array.type.precision, 0), len(array), [validity, content], offset=array.offset
    )
    sign = pc.if_else(pc.less(digits, pa.scalar(0, digits.type)), "-", "")
    # At least one digit stands before the point.
    padded = pc.ascii_lpad(pc.abs(digits).cast(pa.string()), scale + 1, "0")
    whole = pc.utf8_slice_codeunits(padded, 0, -scale)
    fraction = pc.utf8_slice_codeunits(padded, -scale)
    return pc.binary_join_element_wise(sign, whole, ".", fraction, "")


def _texts(array: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(array, _SPECIAL)).as_py():
        for character, escape in _SHORT_ESCAPES.items():
            array = pc.replace_substring(array, character, escape)
        array = _without_control_characters(array)
    return _quoted(array)


def _without_control_characters(array: pa.Array) -> pa.Array:
    """Escape the rare control characters that have no short escape, cell by cell."""
    cells = pc.indices_nonzero(pc.match_substring_regex(array, _CONTROL).fill_null(False))
    if not len(cells):
        return array
    escaped = [
        "".join(f"\\u{ord(letter):04x}" if letter < " " else letter for letter in text)
        for text in array.take(cells).to_pylist()
    ]
    mask = pc.is_in(pa.array(range(len(array)), pa.uint64()), value_set=cells)
    return pc.replace_with_mask(array, mask, pa.array(escaped, array.type))
