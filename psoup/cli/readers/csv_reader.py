"""The reader of CSV, plain or gzip: Arrow splits the lines, columns are converted whole."""

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
from psoup.cli.readers.chunk import BadLine, FileChunk, Options, ReportPosition, build, column_map
from psoup.formats.convert import convert_text

BLOCK_BYTES = 4 << 20


def read_csv(
    path: Path, stream: Stream, options: Options, report_position: ReportPosition
) -> Iterator[FileChunk]:
    """Yield the chunks of a CSV file.

    Quoted newlines are part of a value, empty lines are skipped, "" is text and not NULL.
    """
    delimiter = "\t" if ".tsv" in path.suffixes else ","
    columns = column_map(_header(path, delimiter), stream, options)
    records = _Records()
    with pa.OSFile(str(path), "rb") as raw, _Lines(path, delimiter) as lines:
        try:
            for batch in _open(raw, path, delimiter, columns, options, records):
                arrays = {name: batch.column(file_column) for name, file_column in columns.items()}
                chunk = build(stream, arrays, convert_text, records.numbers(batch.num_rows))
                yield FileChunk(chunk.table, lines.place(chunk.bad + records.take_passed()))
                report_position(raw.tell())
        except pa.ArrowInvalid as error:
            fail(f"{path.name} can't be read as CSV: {error}")
        if trailing := records.invalid_lines():
            yield FileChunk(stream.schema.empty_table(), lines.place(trailing))


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
        # One thread: invalid records must be reported in the order of the file.
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=delimiter,
            newlines_in_values=True,
            invalid_row_handler=records.invalid,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(columns.values()),
            # As bytes, and unchecked: Arrow would refuse the whole file for one bad value.
            column_types={file_column: pa.binary() for file_column in columns.values()},
            null_values=[options.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,
        ),
    )


class _Records:
    """Counts records as Arrow does: the header is 1, empty lines do not count, invalid ones do."""

    def __init__(self) -> None:
        self._next = 2
        self._invalid: list[BadLine] = []
        self._numbers: list[int] = []

    def invalid(self, row: Any) -> str:
        """Note an invalid record, for Arrow to skip."""
        why = f"has {row.actual_columns} fields, not {row.expected_columns}"
        self._invalid.append(BadLine(row.number, "", row.text, why))
        self._numbers.append(row.number)
        return "skip"

    def take_passed(self) -> tuple[BadLine, ...]:
        """Remove and return the invalid records before the next good row.

        Arrow reports invalid records earlier than the good rows before them.
        """
        earlier = [line for line in self._invalid if line.number < self._next]
        self._invalid = self._invalid[len(earlier) :]
        return tuple(earlier)

    def invalid_lines(self) -> tuple[BadLine, ...]:
        """Return the invalid records that were not taken."""
        return tuple(self._invalid)

    def numbers(self, count: int) -> Callable[[int], int]:
        """Return a function from the index of one of the next `count` good rows to its record."""
        first = self._next
        # `_numbers` ascends, so this leaves the invalid records from `first` on.
        skipped = self._numbers[bisect_left(self._numbers, first) :]

        # For each skipped record, how many good records of this call come before it, plus `first`.
        good_before = [record - place for place, record in enumerate(skipped)]

        def number(index: int) -> int:
            return first + index + bisect_right(good_before, first + index)

        self._next = number(count - 1) + 1 if count else first
        return number


def _header(path: Path, delimiter: str) -> list[str]:
    with _text(path) as lines:
        for record in csv.reader(lines, delimiter=delimiter):
            if record:
                return record
    fail(f"{path.name} is empty: a CSV file begins with the names of its columns")


class _Lines:
    """Line numbers of records, by reading the file a second time up to the last bad record."""

    def __init__(self, path: Path, delimiter: str) -> None:
        self._text = _text(path)
        self._reader = csv.reader(self._text, delimiter=delimiter)
        self._record = 0

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._text.close()

    def place(self, bad: tuple[BadLine, ...]) -> tuple[BadLine, ...]:
        """Return the bad records, numbered by the lines on which they begin.

        From call to call the numbers must ascend.
        """
        ordered = sorted(bad, key=lambda line: line.number)
        return tuple(replace(line, number=self._line_of(line.number)) for line in ordered)

    def _line_of(self, record: int) -> int:
        begins = 0
        while self._record < record:
            begins = self._reader.line_num + 1
            # An empty line is an empty list, and no record to Arrow.
            self._record += bool(next(self._reader))
        return begins


def _text(path: Path) -> TextIO:
    opened = gzip.open if path.suffix == ".gz" else open
    return opened(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")
