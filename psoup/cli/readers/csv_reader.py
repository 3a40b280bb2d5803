"""CSV, plain or gzip: Arrow splits the lines, the columns are converted whole."""

from __future__ import annotations

import csv
import gzip
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.csv

from client_sdk import Stream
from psoup.cli.problems import fail
from psoup.cli.readers.chunk import BadLine, FileChunk, Options, Tell, build, column_map
from psoup.cli.readers.convert import convert_text

BLOCK_BYTES = 4 << 20


def read_csv(path: Path, stream: Stream, options: Options, tell: Tell) -> Iterator[FileChunk]:
    """Quoted newlines are part of a value; an empty line is nothing; "" is text, not NULL."""
    delimiter = "\t" if ".tsv" in path.suffixes else ","
    columns = column_map(_header(path, delimiter), stream, options)
    records = _Records()
    with pa.OSFile(str(path), "rb") as raw, _Lines(path, delimiter) as lines:
        try:
            for batch in _open(raw, path, delimiter, columns, options, records):
                arrays = {name: batch.column(theirs) for name, theirs in columns.items()}
                chunk = build(stream, arrays, convert_text, records.numbers(batch.num_rows))
                yield FileChunk(chunk.table, lines.place(chunk.bad + records.passed()))
                tell(raw.tell())
        except pa.ArrowInvalid as error:
            fail(f"{path.name} can't be read as CSV: {error}")
        if rest := records.rest():
            yield FileChunk(stream.schema.empty_table(), lines.place(rest))


def _open(
    raw: Any,
    path: Path,
    delimiter: str,
    columns: dict[str, str],
    options: Options,
    records: _Records,
) -> Any:
    source = pa.CompressedInputStream(raw, "gzip") if path.suffix == ".gz" else raw
    return pyarrow.csv.open_csv(
        source,
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=delimiter,
            newlines_in_values=True,
            invalid_row_handler=records.invalid,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(columns.values()),
            column_types={theirs: pa.binary() for theirs in columns.values()},
            null_values=[options.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,
        ),
    )


class _Records:
    """Counts records as Arrow does: the header is 1, empty lines are none, invalid ones count."""

    def __init__(self) -> None:
        self._next = 2
        self._invalid: list[BadLine] = []
        self._numbers: list[int] = []

    def invalid(self, row: Any) -> str:
        why = f"has {row.actual_columns} fields, not {row.expected_columns}"
        self._invalid.append(BadLine(row.number, "", row.text, why))
        self._numbers.append(row.number)
        return "skip"

    def passed(self) -> tuple[BadLine, ...]:
        """Invalid records before the next good row; Arrow reports them ahead of their time."""
        here = [line for line in self._invalid if line.number < self._next]
        self._invalid = self._invalid[len(here) :]
        return tuple(here)

    def rest(self) -> tuple[BadLine, ...]:
        return tuple(self._invalid)

    def numbers(self, count: int) -> Callable[[int], int]:
        """For the next `count` good rows: from index to record number."""
        first = self._next
        skipped = self._numbers[bisect_left(self._numbers, first) :]

        earlier = [record - place for place, record in enumerate(skipped)]

        def number(index: int) -> int:
            return first + index + bisect_right(earlier, first + index)

        self._next = number(count - 1) + 1 if count else first
        return number


def _header(path: Path, delimiter: str) -> list[str]:
    with _text(path) as lines:
        for record in csv.reader(lines, delimiter=delimiter):
            if record:
                return record
    fail(f"{path.name} is empty: a CSV file begins with the names of its columns")


class _Lines:
    """From record numbers to line numbers, by a second look at the file up to the last bad one."""

    def __init__(self, path: Path, delimiter: str) -> None:
        self._text = _text(path)
        self._reader = csv.reader(self._text, delimiter=delimiter)
        self._record = 0

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._text.close()

    def place(self, bad: tuple[BadLine, ...]) -> tuple[BadLine, ...]:
        """Gives the bad records with the lines they begin on, in place of their own numbers.

        From call to call the numbers must ascend.
        """
        ordered = sorted(bad, key=lambda line: line.number)
        return tuple(replace(line, number=self._line_of(line.number)) for line in ordered)

    def _line_of(self, record: int) -> int:
        begins = 0
        while self._record < record:
            begins = self._reader.line_num + 1
            self._record += bool(next(self._reader))
        return begins


def _text(path: Path) -> TextIO:
    opened = gzip.open if path.suffix == ".gz" else open
    return opened(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")
