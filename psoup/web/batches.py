"""Bodies with rows of a stream, JSON, lines of JSON or CSV, as tables. `accept` checks the rest.

A row of JSON is an object with every column, null for NULL; one whose `_op` is `delete` needs only
the columns that a delete does. Values are written as answers write them. Numbers may be texts too,
which BIGINT past 2^53 and DOUBLE that is not finite need.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from datastem.accept import Limits
from datastem.errors import RowError
from datastem.schema import OP, Column, StreamSchema
from datastem.types import TEXT, Kind
from psoup.formats.convert import Converted, convert_text
from psoup.formats.json_values import array_of, convert_array, misfits
from psoup.server.admission import TYPED_FACTOR
from psoup.server.call import BatchForm
from psoup.server.wire.arrow import Buffer
from psoup.web.exchange import ARROW, CSV, JSON, NDJSON
from querystem.pace import spending

# To parse a row takes the interpreter for some milliseconds at most; larger rows come as Arrow.
MAX_ROW_BYTES = 2 << 20
# The line with the names of a CSV.
MAX_HEADER_BYTES = 64 << 10
# Rows that become columns at once: other work may run in between.
_CHUNK_ROWS = 4096
_CHUNK_BYTES = 1 << 20
# Units (`querystem.pace`) of a value that is made of text.
_VALUE_UNITS = 400

_SPACE = re.compile(r"[ \t\r\n]*")
_Decode = Callable[[str, int], tuple[Any, int]]


@dataclass(frozen=True, slots=True)
class _Target:
    """A column of a stream, as conversions need it."""

    name: str
    type: str
    kind: str
    arrow: pa.DataType

    @classmethod
    def of(cls, column: Column) -> _Target:
        type_ = column.type
        return cls(column.name, str(type_), type_.kind.value, type_.arrow)


def _targets(schema: StreamSchema) -> dict[str, _Target]:
    return {column.name: _Target.of(column) for column in (*schema.columns, Column(OP, TEXT))}


# ---- JSON


def read_json(content: Buffer, schema: StreamSchema, limits: Limits) -> pa.Table:
    """Read an object, or an array of objects. Raise RowError."""
    return _table(_json_rows(_Cursor(_text(content)), _decoder(schema).raw_decode), schema)


def read_ndjson(content: Buffer, schema: StreamSchema, limits: Limits) -> pa.Table:
    """Read an object of each line that is not empty. Raise RowError."""
    return _table(_lines(_text(content), _decoder(schema).decode), schema)


def _text(content: Buffer) -> str:
    try:
        return str(content, "utf-8-sig")
    except UnicodeDecodeError:
        raise RowError("INVALID_UTF8", "the body is not valid UTF-8", expected="UTF-8") from None


def _decoder(schema: StreamSchema) -> json.JSONDecoder:
    # A float would round the digits of a DECIMAL. Without such columns floats are quicker.
    exact = any(column.type.kind is Kind.DECIMAL for column in schema.columns)
    return json.JSONDecoder(parse_float=Decimal if exact else None, parse_constant=_constant)


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
                raise _too_long(row) from None
            raise _malformed(row, error) from None
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
                raise _malformed(row, ValueError(f"expected , or ], got {separator!r}"))
            if separator == "]":
                break
            cursor.step()
            cursor.look()
        cursor.step()
    else:
        yield cursor.value(row, decode)
    if cursor.look():
        raise _malformed(-1, ValueError("there is more after the end"))


def _lines(text: str, decode: Callable[[str], Any]) -> Iterator[Any]:
    row = 0
    for line in io.StringIO(text, newline="\n"):
        if line.isspace():
            continue
        if len(line) > MAX_ROW_BYTES:
            raise _too_long(row)
        try:
            yield decode(line)
        except (ValueError, RecursionError) as error:
            raise _malformed(row, error) from None
        row += 1


# ---- rows as columns


def _table(rows: Iterator[Any], schema: StreamSchema) -> pa.Table:
    tables, first, targets = [], 0, _targets(schema)
    while chunk := list(islice(rows, _CHUNK_ROWS)):
        table = _columns(chunk, first, schema, targets)
        tables.append(table)
        spending()(table.num_rows * max(1, table.num_columns) * _VALUE_UNITS)
        first += len(chunk)
    if not tables:
        return schema.arrow.empty_table()
    return pa.concat_tables(tables, promote_options="default")


def _columns(
    rows: Sequence[Any], first: int, schema: StreamSchema, targets: Mapping[str, _Target]
) -> pa.Table:
    names = {column.name for column in schema.columns}
    present: set[str] = set()
    for row, value in enumerate(rows, first):
        if not isinstance(value, dict):
            raise _malformed(row, ValueError("a row is an object"))
        # Rows with exactly the stream's columns need no closer look.
        if value.keys() != names:
            _check_names(value, row, names)
        present |= value.keys()
    arrays = {}
    for name, target in targets.items():
        if name in present:
            arrays[name] = _array([row.get(name) for row in rows], first, target)
    return pa.table(arrays)


def _check_names(row: Mapping[str, Any], number: int, names: set[str]) -> None:
    for name in row:
        if name not in names and name != OP:
            message = f"row {number}: the stream has no column {name[:80]}"
            raise RowError("EXTRA_COLUMN", message, row=number, field=name[:80])
    if row.get(OP) == "delete":
        return
    if missing := sorted(names - row.keys()):
        raise RowError(
            "MISSING_COLUMN",
            f"row {number}: column {missing[0]} is missing",
            row=number,
            field=missing[0],
            hint="write null for NULL",
        )


def _array(values: list[Any], first: int, target: _Target) -> pa.Array:
    for place in misfits(values, target, number_texts=True):
        raise _wrong(first + place, target, json.dumps(values[place], default=str), "WRONG_TYPE")
    try:
        array = array_of(values, target)
    except UnicodeEncodeError:
        place = next(place for place, text in enumerate(values) if _is_broken(text))
        message = f"column {target.name}, row {first + place}: text that is not valid UTF-8"
        raise RowError("INVALID_UTF8", message, row=first + place, field=target.name) from None
    if pa.types.is_floating(array.type) and pc.any(pc.is_inf(array)).as_py():
        # Texts are not floats yet: 1e999 is no DOUBLE, "Infinity" is one.
        place = next(place for place, value in enumerate(values) if not _is_finite(value))
        raise _wrong(first + place, target, "a number past the range of DOUBLE")
    return _converted(convert_array(array, target), values, first, target)


def _is_finite(value: float | None) -> bool:
    return value is None or math.isfinite(value)


def _is_broken(text: str | None) -> bool:
    return text is not None and any("\ud800" <= character <= "\udfff" for character in text)


def _converted(converted: Converted, values: Any, first: int, target: _Target) -> pa.Array:
    array, failed = converted
    if failed:
        place = min(failed)
        raise _wrong(first + place, target, str(values[place]))
    return array


# ---- CSV


def read_csv(content: Buffer, schema: StreamSchema, limits: Limits) -> pa.Table:
    """Read a line of names and lines of values; nothing between two commas is NULL, and "" is an
    empty text. Raise RowError."""
    names, begin = _csv_names(content)
    targets = _targets(schema)
    for name in names:
        # Before anything is parsed: a line of commas would be millions of columns.
        if name not in targets:
            message = f"the stream has no column {name[:80]!r}"
            raise RowError("EXTRA_COLUMN", message, field=name[:80])
        if names.count(name) > 1:
            raise RowError("DUPLICATE_COLUMN", f"column {name} comes twice", field=name)
    table = _csv_table(memoryview(content)[begin:], names)
    spending()(table.num_rows * len(names) * _VALUE_UNITS // 4)
    arrays = {}
    for name in names:
        texts = table.column(name).combine_chunks()
        converted = convert_text(texts, targets[name])
        arrays[name] = _converted(converted, _Texts(texts), 0, targets[name])
    return pa.table(arrays)


@dataclass(frozen=True, slots=True)
class _Texts:
    """Values of a column as texts."""

    array: pa.Array

    def __getitem__(self, place: int) -> str:
        content: bytes = self.array[place].as_py() or b""
        return content[:200].decode(errors="replace")


def _csv_names(content: Buffer) -> tuple[list[str], int]:
    """Return the names in the first line, and where the next one begins."""
    head = bytes(content[:MAX_HEADER_BYTES])
    text = head.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    lines = io.StringIO(text, newline="").readlines()
    reader = csv.reader(lines)
    try:
        names = next((record for record in reader if record), [])
    except csv.Error as error:
        raise _malformed(-1, ValueError(error)) from None
    is_cut = len(content) > len(head) and reader.line_num == len(lines)
    if not names or is_cut:
        problem = "the names of the columns are too long" if is_cut else "the body is empty"
        raise _malformed(-1, ValueError(f"{problem}; a CSV begins with a line of names"))
    passed = "".join(lines[: reader.line_num]).encode("utf-8", "surrogateescape")
    mark = len(head) - len(text.encode("utf-8", "surrogateescape"))
    return names, mark + len(passed)


def _csv_table(content: memoryview, names: list[str]) -> pa.Table:
    invalid: list[Any] = []

    def note(row: Any) -> str:
        invalid.append(row)
        return "error"

    if not bytes(content[:_CHUNK_BYTES]).strip() and len(content) <= _CHUNK_BYTES:
        return pa.table({name: pa.array([], pa.binary()) for name in names})
    try:
        return pyarrow.csv.read_csv(
            pa.py_buffer(content),
            # One thread: the others have calls of their own.
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=2 * MAX_ROW_BYTES, column_names=names
            ),
            parse_options=pyarrow.csv.ParseOptions(
                newlines_in_values=True, invalid_row_handler=note
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.binary()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )
    except pa.ArrowInvalid as error:
        if not invalid:
            raise _malformed(-1, error) from None
        row = invalid[0]
        raise RowError(
            "WRONG_LENGTH",
            f"a line has {row.actual_columns} values for {row.expected_columns} columns: "
            f"{row.text[:80]!r}",
            row=-1 if row.number is None else row.number - 1,
            expected=f"{row.expected_columns} values",
            got=f"{row.actual_columns} values",
        ) from None


# ---- refusals


def _malformed(row: int, error: Exception) -> RowError:
    problem = "nested too deep" if isinstance(error, RecursionError) else str(error)
    place = f"row {row}: " if row >= 0 else ""
    return RowError("MALFORMED_ROWS", f"{place}{problem[:200]}", row=row)


def _too_long(row: int) -> RowError:
    return RowError(
        "BATCH_TOO_LARGE",
        f"row {row} has more than {MAX_ROW_BYTES:,} bytes of JSON",
        row=row,
        expected=f"at most {MAX_ROW_BYTES} bytes",
        hint="send such rows as an Arrow IPC stream",
    )


def _wrong(row: int, target: _Target, got: str, reason: str = "BAD_VALUE") -> RowError:
    return RowError(
        reason,
        f"column {target.name}, row {row}: {got[:100]} is not {target.type}",
        row=row,
        field=target.name,
        expected=target.type,
        got=got[:100],
    )


# Arrow is what a call brings anyway.
BATCH_FORMS: Mapping[str, BatchForm | None] = {
    JSON: BatchForm(read_json, TYPED_FACTOR),
    NDJSON: BatchForm(read_ndjson, TYPED_FACTOR),
    CSV: BatchForm(read_csv, TYPED_FACTOR),
    ARROW: None,
}
