"""The parser of CSV: Arrow splits the records of a block, columns are converted whole."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from client_sdk import Stream
from psoup.formats.convert import convert_text
from psoup.source.errors import BadInput
from psoup.source.readers.chunk import BadLine, FileChunk, Options, build, column_map
from psoup.source.readers.encoding import BOM, as_utf8
from psoup.source.readers.records import MAX_RECORD_BYTES, RecordBlock, Splitter

MAX_HEADER_BYTES = 1 << 20
_MAX_RAW_BYTES = 1 << 20
# The default of the module is less than a TEXT may have.
csv.field_size_limit(MAX_RECORD_BYTES)
# U+10FFFF, which is no character; and a half of a surrogate pair.
_SENTINEL = b"\xf4\x8f\xbf\xbf"
_BROKEN = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


class CsvParser:
    """A parser of CSV that arrives in pieces.

    The first record has the names of the columns. Quoted line breaks are part of a value, empty
    lines are skipped, "" is text and not NULL. `header` has the names if the input begins after
    them.
    """

    def __init__(self, stream: Stream, options: Options, header: list[str] | None = None) -> None:
        self._stream = stream
        self._options = options
        self.header: list[str] = []
        self._columns: dict[str, str] = {}
        self._head = bytearray()
        self._head_size = 0
        self._delimiter = options.delimiter or ","
        self._splitter = Splitter(self._delimiter)
        if header is not None:
            self._begin(header)

    def feed(self, data: bytes) -> Iterator[FileChunk]:
        if self.header:
            yield from self._chunks(self._splitter.feed(data))
            return
        self._head += data
        if self._take_header(final=False):
            yield from self._chunks(self._splitter.feed(bytes(self._head)))
            self._head.clear()

    def finish(self) -> Iterator[FileChunk]:
        if not self.header:
            if not self._take_header(final=True):
                raise BadInput("is empty: a CSV file begins with the names of its columns")
            yield from self._chunks(self._splitter.feed(bytes(self._head)))
        yield from self._chunks(self._splitter.finish())
        if self._head_size:  # a header without a row
            yield FileChunk(self._stream.schema.empty_table(), (), self._head_size)

    def _take_header(self, final: bool) -> bool:
        """Return whether the names are complete, and then leave what follows them in `_head`."""
        text = as_utf8(bytes(self._head), self._options.encoding, final)
        lines = io.StringIO(text.decode("utf-8", "surrogateescape"), newline="\n").readlines()
        if lines and not final and not lines[-1].endswith("\n"):
            lines.pop()
        reader = csv.reader((line.removeprefix(BOM) for line in lines), delimiter=self._delimiter)
        try:
            names = next((record for record in reader if record), [])
        except csv.Error as error:
            raise BadInput(f"can't be read as CSV: {error}") from None
        # A quoted name may go on in the next line, which is not there yet.
        is_cut = not final and reader.line_num == len(lines) and _is_open(lines)
        if not names or is_cut:
            if len(self._head) > MAX_HEADER_BYTES:
                raise BadInput(f"has no line of names in the first {MAX_HEADER_BYTES:,} bytes")
            return False
        end = 0
        for _ in range(reader.line_num):
            end = self._head.find(b"\n", end) + 1 or len(self._head)
        self._splitter = Splitter(self._delimiter, first_line=1 + reader.line_num)
        self._begin(names)
        self._head_size = end
        del self._head[:end]
        return True

    def _begin(self, header: list[str]) -> None:
        self._columns = column_map(header, self._stream, self._options)
        self.header = header

    def _chunks(self, blocks: Iterator[RecordBlock]) -> Iterator[FileChunk]:
        for block in blocks:
            chunk = self._chunk(block)
            yield replace(chunk, size=block.size + self._head_size)
            self._head_size = 0

    def _chunk(self, block: RecordBlock) -> FileChunk:
        if block.bad is not None:
            return FileChunk(self._stream.schema.empty_table(), (block.bad,))
        content = as_utf8(block.content, self._options.encoding, final=True)
        if not content.strip():
            return FileChunk(self._stream.schema.empty_table(), ())
        invalid: dict[int, BadLine] = {}

        def note(row: Any) -> str:
            why = f"has {row.actual_columns} fields, not {row.expected_columns}"
            invalid[row.number - 1] = BadLine(0, "", row.text[:200], why)
            return "skip"

        is_utf8, safe = _with_sentinels(content)
        table = self._parse(safe, note)
        arrays = {
            name: table.column(column).combine_chunks() for name, column in self._columns.items()
        }
        if not is_utf8:
            arrays = {
                name: pc.replace_substring(array, _SENTINEL, b"\xff")
                for name, array in arrays.items()
            }
        chunk = build(
            self._stream, arrays, convert_text, lambda index: 0, lenient=self._options.lenient
        )
        # Arrow counts the records that it leaves out; `build` counts those that it got.
        records = _places(table.num_rows, sorted(invalid)) if chunk.bad and invalid else None
        bad = {
            records[line.record] if records else line.record: line for line in chunk.bad
        } | invalid
        if not bad:
            return chunk
        begins = self._lines(content, max(bad) + 1)
        lines = content.split(b"\n")
        return FileChunk(
            chunk.table,
            tuple(
                replace(
                    line,
                    record=record,
                    number=block.first_line + begins[record],
                    raw=_raw(lines[begins[record] : begins[record + 1]]),
                )
                for record, line in sorted(bad.items())
            ),
        )

    def _parse(self, content: bytes, note: Any) -> pa.Table:
        names = list(self._columns.values())
        try:
            return pyarrow.csv.read_csv(
                pa.py_buffer(content),
                # One thread: invalid records must be reported in their order.
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False, block_size=len(content) + 1, column_names=self.header
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=note
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=names,
                    # As bytes, and unchecked: Arrow would refuse all of it for one bad value.
                    column_types=dict.fromkeys(names, pa.binary()),
                    null_values=[self._options.null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    check_utf8=False,
                ),
            )
        except pa.ArrowInvalid as error:
            raise BadInput(f"can't be read as CSV: {error}") from None

    def _lines(self, content: bytes, last: int) -> list[int]:
        """Return the lines of the block, from 0 on, on which its records up to `last` begin."""
        text = io.StringIO(content.decode("utf-8", "surrogateescape"), newline="\n")
        reader = csv.reader(text, delimiter=self._delimiter)
        begins, lines = 0, list[int]()
        # Arrow takes a lone \\r for the end of a record, and csv refuses it.
        with contextlib.suppress(csv.Error):
            for record in reader:
                # An empty line is an empty list, and no record to Arrow.
                if record:
                    lines.append(begins)
                begins = reader.line_num
                if len(lines) > last:
                    break
        return lines + [begins] * (last + 1 - len(lines))


def _raw(lines: list[bytes]) -> str:
    return b"\n".join(lines)[:_MAX_RAW_BYTES].decode("utf-8", "backslashreplace")


def _places(count: int, invalid: list[int]) -> list[int]:
    """Return the places of `count` good records among all of which those in `invalid` are bad."""
    missing = set(invalid)
    places = (place for place in range(count + len(invalid)) if place not in missing)
    return list(places)


def _with_sentinels(content: bytes) -> tuple[bool, bytes]:
    """Return whether the content is UTF-8; and the content with sentinels for all other bytes.

    Arrow can't report a record that has the wrong number of fields and is not UTF-8.
    """
    try:
        content.decode()
    except UnicodeDecodeError:
        halves = content.decode("utf-8", "surrogateescape").encode("utf-8", "surrogatepass")
        return False, _BROKEN.sub(_SENTINEL, halves)
    return True, content


def _is_open(lines: list[str]) -> bool:
    return "".join(lines).count('"') % 2 == 1
