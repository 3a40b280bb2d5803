"""CSV as tables: the names are read here, the values by Arrow."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv

from datastem.accept import Limits
from datastem.errors import RowError
from datastem.schema import StreamSchema
from psoup.formats.convert import convert_text
from psoup.server.wire.arrow import Buffer
from psoup.web.bodies.columns import MAX_ROW_BYTES, VALUE_UNITS, checked, malformed, targets_of
from querystem.pace import spending

# The line with the names of a CSV.
MAX_HEADER_BYTES = 64 << 10
_BLANK_BYTES = 1 << 20


def read_csv(content: Buffer, schema: StreamSchema, limits: Limits) -> pa.Table:
    """Read a line of names and lines of values; nothing between two commas is NULL, and "" is an
    empty text. Raise RowError."""
    names, begin = _csv_names(content)
    targets = targets_of(schema)
    for name in names:
        # Before anything is parsed: a line of commas would be millions of columns.
        if name not in targets:
            message = f"the stream has no column {name[:80]!r}"
            raise RowError("EXTRA_COLUMN", message, field=name[:80])
        if names.count(name) > 1:
            raise RowError("DUPLICATE_COLUMN", f"column {name} comes twice", field=name)
    table = _csv_table(memoryview(content)[begin:], names)
    spending()(table.num_rows * len(names) * VALUE_UNITS // 4)
    arrays = {}
    for name in names:
        texts = table.column(name).combine_chunks()
        converted = convert_text(texts, targets[name])
        arrays[name] = checked(converted, _Texts(texts), 0, targets[name])
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
        raise malformed(-1, ValueError(error)) from None
    is_cut = len(content) > len(head) and reader.line_num == len(lines)
    if not names or is_cut:
        problem = "the names of the columns are too long" if is_cut else "the body is empty"
        raise malformed(-1, ValueError(f"{problem}; a CSV begins with a line of names"))
    passed = "".join(lines[: reader.line_num]).encode("utf-8", "surrogateescape")
    mark = len(head) - len(text.encode("utf-8", "surrogateescape"))
    return names, mark + len(passed)


def _csv_table(content: memoryview, names: list[str]) -> pa.Table:
    invalid: list[Any] = []

    def note(row: Any) -> str:
        invalid.append(row)
        return "error"

    if not bytes(content[:_BLANK_BYTES]).strip() and len(content) <= _BLANK_BYTES:
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
            raise malformed(-1, error) from None
        row = invalid[0]
        raise RowError(
            "WRONG_LENGTH",
            f"a line has {row.actual_columns} values for {row.expected_columns} columns: "
            f"{row.text[:80]!r}",
            row=-1 if row.number is None else row.number - 1,
            expected=f"{row.expected_columns} values",
            got=f"{row.actual_columns} values",
        ) from None
