"""JSON and lines of JSON as tables.

A row is an object with every column, null for NULL; one whose `_op` is `delete` needs only the
columns that a delete does, and one whose `_op` is `patch` has its key and the columns that it sets,
the same in all patches. Any row may have `_expected`. Values are written as answers write
them. Numbers may be texts too, which BIGINT past 2^53 and DOUBLE that is not finite need.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from datastem.accept import Limits
from datastem.errors import RowError
from datastem.schema import StreamSchema
from datastem.types import Kind
from psoup.formats.json_values import exact_number
from psoup.server.wire.arrow import Buffer
from psoup.web.bodies.columns import MAX_ROW_BYTES, malformed, table_of, too_long
from querystem.pace import spending

# How many blank lines are passed before other work may run, and the units of each.
_BLANK_LINES, _BLANK_LINE_UNITS = 4096, 100
_SPACE = re.compile(r"[ \t\r\n]*")
_Decode = Callable[[str, int], tuple[Any, int]]


def read_json(content: Buffer, schema: StreamSchema, limits: Limits) -> pa.Table:
    """Read an object, or an array of objects. Raise RowError."""
    return table_of(_json_rows(_Cursor(_text(content)), _decoder(schema).raw_decode), schema)


def read_ndjson(content: Buffer, schema: StreamSchema, limits: Limits) -> pa.Table:
    """Read an object of each line that is not empty. Raise RowError."""
    return table_of(_lines(_text(content), _decoder(schema).decode), schema)


def _text(content: Buffer) -> str:
    try:
        return str(content, "utf-8-sig")
    except UnicodeDecodeError:
        raise RowError("INVALID_UTF8", "the body is not valid UTF-8", expected="UTF-8") from None


def _decoder(schema: StreamSchema) -> json.JSONDecoder:
    # A float would round the digits of a DECIMAL. Without such columns floats are quicker.
    exact = any(column.type.kind is Kind.DECIMAL for column in schema.columns)
    return json.JSONDecoder(parse_float=exact_number if exact else None, parse_constant=_constant)


def _constant(name: str) -> Any:
    raise ValueError(f'JSON has no {name}; write "{name}"')


class _Cursor:
    """A place in a text. Values are decoded out of a window of it, so that none is larger."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._begin = self._at = 0
        self._window = ""

    def look(self) -> str:
        """Return the next character that is no space, or an empty text at the end."""
        while True:
            self._fill()
            match = _SPACE.match(self._window, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._window) or self._is_last:
                return self._window[self._at : self._at + 1]

    def step(self) -> None:
        """Pass the character that `look` returned."""
        self._at += 1

    def value(self, row: int, decode: _Decode) -> Any:
        """Return the value that begins here. Raise RowError."""
        self._fill()
        try:
            value, self._at = decode(self._window, self._at)
        except (ValueError, RecursionError) as error:
            # What the window cuts can't be decoded either.
            if not self._is_last:
                raise too_long(row) from None
            raise malformed(row, error) from None
        return value

    @property
    def _is_last(self) -> bool:
        """Whether the window reaches to the end of the text."""
        return self._begin + len(self._window) >= len(self._text)

    def _fill(self) -> None:
        if len(self._window) - self._at < MAX_ROW_BYTES and not self._is_last:
            self._begin += self._at
            self._window = self._text[self._begin : self._begin + 2 * MAX_ROW_BYTES]
            self._at = 0


def _json_rows(cursor: _Cursor, decode: _Decode) -> Iterator[Any]:
    row = 0
    if cursor.look() == "[":
        cursor.step()
        while cursor.look() != "]" or row:
            yield cursor.value(row, decode)
            row += 1
            if (separator := cursor.look()) not in (",", "]"):
                raise malformed(row, ValueError(f"expected , or ], got {separator!r}"))
            if separator == "]":
                break
            cursor.step()
            cursor.look()
        cursor.step()
    else:
        yield cursor.value(row, decode)
    if cursor.look():
        raise malformed(-1, ValueError("there is more after the end"))


def _lines(text: str, decode: Callable[[str], Any]) -> Iterator[Any]:
    row = blank_lines = 0
    for line in io.StringIO(text, newline="\n"):
        if line.isspace():
            blank_lines += 1
            if not blank_lines % _BLANK_LINES:
                spending()(_BLANK_LINES * _BLANK_LINE_UNITS)
            continue
        if len(line) > MAX_ROW_BYTES:
            raise too_long(row)
        try:
            yield decode(line)
        except (ValueError, RecursionError) as error:
            raise malformed(row, error) from None
        row += 1
