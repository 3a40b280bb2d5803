"""The reader of JSON lines, plain or gzip: an object a line, with the stream's columns."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from client_sdk import Stream
from psoup.cli.problems import Problem
from psoup.cli.readers.chunk import (
    BATCH_COLUMNS,
    OP,
    BadLine,
    FileChunk,
    Options,
    ReportPosition,
    build,
    column_map,
)
from psoup.formats.json_values import array_of, convert_array, json_constant, misfits

CHUNK_LINES = 25_000


def read_jsonl(
    path: Path, stream: Stream, options: Options, report_position: ReportPosition
) -> Iterator[FileChunk]:
    """Yield the chunks of a file of JSON lines.

    A row must have every column, null for NULL; a delete only those it needs. Instants and dates
    are strings.
    """
    # A float would round the digits of a DECIMAL. Without such columns floats are quicker.
    exact = any(column.kind == "DECIMAL" for column in stream.columns)
    load = partial(json.loads, parse_float=Decimal) if exact else json.loads
    with path.open("rb") as raw:
        source: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        number = 1
        while lines := list(islice(source, CHUNK_LINES)):
            yield _chunk(lines, number, load, stream, options)
            number += len(lines)
            report_position(raw.tell())


def _chunk(
    lines: list[bytes], first: int, load: Callable[[bytes], Any], stream: Stream, options: Options
) -> FileChunk:
    names = {column.name for column in stream.columns}
    rows, numbers, unread = [], [], []
    for number, line in enumerate(lines, first):
        if line.isspace():
            continue
        try:
            row = load(line)
            if not isinstance(row, dict):
                raise ValueError("is not a JSON object")
            # Mapping the columns of each row is slow, so rows with just the stream's names skip it.
            rows.append(row if row.keys() == names else _renamed(row, stream, options))
            numbers.append(number)
        except (ValueError, Problem) as error:
            text = line.decode("utf-8", "backslashreplace").strip()
            unread.append(BadLine(number, "", text, _why(error)))
    arrays, early = _columns(rows, stream, numbers)
    chunk = build(stream, arrays, convert_array, numbers.__getitem__, early)
    return FileChunk(chunk.table, tuple(sorted(chunk.bad + tuple(unread), key=lambda b: b.number)))


def _why(error: Exception) -> str:
    if isinstance(error, Problem):
        return " ".join(error.message.split("\n", 1)[-1].split())
    return str(error) if str(error).startswith("is ") else f"is not JSON ({error})"


def _renamed(row: dict[str, Any], stream: Stream, options: Options) -> dict[str, Any]:
    mapping = column_map(list(row), stream, options)
    values = {name: row[file_column] for name, file_column in mapping.items()}
    absent = [column for column in stream.columns if column.name not in values]
    missing = [column.name for column in absent if not column.optional]
    if missing and values.get(OP.name) != "delete":
        raise ValueError(f"is missing {', '.join(missing)}")
    return {**{column.name: json_constant(column.default) for column in absent}, **values}


def _columns(
    rows: list[dict[str, Any]], stream: Stream, numbers: list[int]
) -> tuple[dict[str, pa.Array], list[tuple[int, BadLine]]]:
    arrays: dict[str, pa.Array] = {}
    early: list[tuple[int, BadLine]] = []
    present = (column for column in BATCH_COLUMNS if any(column.name in row for row in rows))
    for column in (*stream.columns, *present):
        values = [row.get(column.name) for row in rows]
        for index in misfits(values, column):
            text = json.dumps(values[index], default=str)
            line = BadLine(numbers[index], column.name, text, f"is not {column.type}")
            early.append((index, line))
            values[index] = None
        arrays[column.name] = array_of(values, column)
    return arrays, early
