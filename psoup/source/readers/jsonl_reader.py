"""The parser of JSON lines: an object a line, with the stream's columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from client_sdk import Column, Stream
from psoup.formats.json_values import array_of, convert_array, exact_number, json_constant, misfits
from psoup.source.errors import BadInput
from psoup.source.readers.chunk import (
    BATCH_COLUMNS,
    OP,
    PATCH,
    BadLine,
    FileChunk,
    Options,
    build,
    column_map,
)
from psoup.source.readers.encoding import as_utf8, without_bom
from psoup.source.readers.records import RecordBlock, Splitter

_SHOWN_CHARACTERS = 200
_MAX_RAW_BYTES = 1 << 20

Row = dict[str, Any]


class JsonLinesParser:
    """A parser of JSON lines that arrive in pieces.

    A row must have every column, null for NULL; a delete only those it needs. Instants and dates
    are strings. `fit` returns the row of an object that has other fields than the stream's
    columns, and raises ValueError if it can't be one.
    """

    def __init__(
        self, stream: Stream, options: Options, fit: Callable[[Row], Row] | None = None
    ) -> None:
        # A float would round the digits of a DECIMAL. Without such columns floats are quicker.
        exact = any(column.kind == "DECIMAL" for column in stream.columns)
        self._load = partial(json.loads, parse_float=exact_number) if exact else json.loads
        self._stream = stream
        self._options = options
        self._names = {column.name for column in stream.columns}
        self._always_fit = fit is not None
        self._fit = fit or partial(_renamed, stream=stream, options=options)
        self._splitter = Splitter()

    def feed(self, data: bytes) -> Iterator[FileChunk]:
        yield from map(self._chunk, self._splitter.feed(data))

    def finish(self) -> Iterator[FileChunk]:
        yield from map(self._chunk, self._splitter.finish())

    def _chunk(self, block: RecordBlock) -> FileChunk:
        if block.bad is not None:
            return FileChunk(self._stream.schema.empty_table(), (block.bad,), block.size)
        content = as_utf8(block.content, self._options.encoding, final=True)
        if block.first_line == 1:
            content = without_bom(content)
        rows, numbers, unread = list[Row](), list[int](), dict[int, BadLine]()
        for number, line in enumerate(content.split(b"\n"), block.first_line):
            if not line or line.isspace():
                continue
            try:
                rows.append(self._row(line))
            except (ValueError, RecursionError) as error:
                text = line[:_SHOWN_CHARACTERS].decode("utf-8", "backslashreplace").strip()
                unread[len(numbers)] = BadLine(number, "", text, _why(error))
                # An empty row keeps the places of the others.
                rows.append({})
            numbers.append(number)
        chunk = chunk_of_rows(rows, self._stream, numbers, unread, self._options.parse)
        if not chunk.bad:
            return replace(chunk, size=block.size)
        lines = content.split(b"\n")
        bad = tuple(
            # The line says more than its fields, which may be empty.
            replace(line, raw=_raw(lines[line.number - block.first_line]), fields="")
            for line in chunk.bad
        )
        return FileChunk(chunk.table, bad, block.size)

    def _row(self, line: bytes) -> Row:
        row = self._load(line.decode())
        if not isinstance(row, dict):
            raise ValueError("is not a JSON object")
        # Fitting each row is slow, so rows with just the stream's names skip it.
        if row.keys() == self._names and not self._always_fit:
            return row
        return self._fit(row)


def chunk_of_rows(
    rows: Sequence[Row],
    stream: Stream,
    numbers: Sequence[int],
    bad: dict[int, BadLine],
    parse: frozenset[str] = frozenset(),
) -> FileChunk:
    """Return rows of JSON values as a chunk. `bad` are those, by place, that are bad already.
    `parse` are columns whose numbers may be texts.
    """
    arrays: dict[str, pa.Array] = {}
    present = (column for column in BATCH_COLUMNS if any(column.name in row for row in rows))
    patched = _patched(rows, numbers, bad)
    declared = [c for c in stream.columns if patched is None or c.name in patched]
    for column in (*declared, *present):
        values = [row.get(column.name) for row in rows]
        for index in misfits(values, column, number_texts=column.name in parse):
            text = json.dumps(values[index], default=str)[:_SHOWN_CHARACTERS]
            bad.setdefault(
                index, BadLine(numbers[index], column.name, text, f"is not {column.type}")
            )
            values[index] = None
        arrays[column.name] = _array(values, column, numbers, bad)
    return build(stream, arrays, convert_array, numbers.__getitem__, bad)


def _patched(
    rows: Sequence[Row], numbers: Sequence[int], bad: dict[int, BadLine]
) -> set[str] | None:
    """Return the columns that patches set, None without patches. Lines that set others are bad: a
    field that is missing is kept, and not NULL."""
    names = {column.name for column in BATCH_COLUMNS}
    patches = [place for place, row in enumerate(rows) if row.get(OP.name) == PATCH]
    if not patches:
        return None
    patched = rows[patches[0]].keys() - names
    for place, row in enumerate(rows):
        fields = row.keys() - names
        is_other = fields != patched if row.get(OP.name) == PATCH else not fields >= patched
        if is_other and row.get(OP.name) != "delete":
            why = f"sets other columns than the patch in line {numbers[patches[0]]}"
            bad.setdefault(place, BadLine(numbers[place], "", "", why))
    return set(patched)


def _array(
    values: list[Any], column: Column, numbers: Sequence[int], bad: dict[int, BadLine]
) -> pa.Array:
    try:
        return array_of(values, column)
    except UnicodeEncodeError:
        for index, text in enumerate(values):
            if isinstance(text, str) and any("\ud800" <= letter <= "\udfff" for letter in text):
                bad.setdefault(index, BadLine(numbers[index], column.name, "", "is not UTF-8"))
                values[index] = None
        return array_of(values, column)


def _raw(line: bytes) -> str:
    return line[:_MAX_RAW_BYTES].decode("utf-8", "backslashreplace")


def _why(error: Exception) -> str:
    if isinstance(error, BadInput):
        return " ".join(str(error).split("\n", 1)[-1].split())
    if isinstance(error, RecursionError):
        return "is nested too deep"
    return str(error) if str(error).startswith("is ") else f"is not JSON ({error})"


def _renamed(row: Row, stream: Stream, options: Options) -> Row:
    mapping = column_map(list(row), stream, options)
    values = {name: row[file_column] for name, file_column in mapping.items()}
    absent = [column for column in stream.columns if column.name not in values]
    missing = [column.name for column in absent if not column.optional]
    if values.get(OP.name) == PATCH:
        return values
    if missing and values.get(OP.name) != "delete" and not options.lenient:
        raise ValueError(f"is missing {', '.join(missing)}")
    return {**{column.name: json_constant(column.default) for column in absent}, **values}
