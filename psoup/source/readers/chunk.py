"""Chunks of a file, which every reader yields, and how their columns are named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from client_sdk import Column, Stream
from psoup.formats.convert import Converted
from psoup.source.errors import BadInput

ReportPosition = Callable[[int], None]

# A file may have these columns beside the stream's: whether a line is a row, a delete or a patch,
# and the id of the row that it may replace.
OP = Column("_op", "TEXT")
EXPECTED = Column("_expected", "BIGINT")
BATCH_COLUMNS = (OP, EXPECTED)
PATCH = "patch"
_BATCH_NAMES = frozenset(column.name for column in BATCH_COLUMNS)


@dataclass(frozen=True, slots=True)
class Options:
    """How to read a file. `null` is the text for NULL in CSV.

    `rename` maps a file's column to the stream's; `drop` are columns of the file to leave out. If
    it is `lenient`, unknown columns are left out, and missing ones are NULL. `format` is one of
    FORMATS, or empty if the file's name says it. `delimiter` is that of CSV, empty for the usual
    one. `parse` are columns whose numbers may be texts in JSON.
    """

    rename: dict[str, str] = field(default_factory=dict)
    drop: frozenset[str] = frozenset()
    null: str = ""
    lenient: bool = False
    format: str = ""
    delimiter: str = ""
    encoding: str = "utf-8"
    parse: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that can't be a row. `number` counts lines from 1 (for Parquet and Arrow: rows).

    `record` is its place among the records of its chunk, bad ones included. `raw` is all of it, if
    it is a text. `fields` is a JSON object of its fields as texts, by columns of the stream, if it
    was read so far.
    """

    number: int
    column: str
    text: str
    why: str
    record: int = 0
    raw: str = ""
    fields: str = ""

    def __str__(self) -> str:
        where = f"line {self.number}" + (f", {self.column}" if self.column else "")
        return f"{where}: {self.text[:60]!r} {self.why}"


@dataclass(frozen=True, slots=True)
class FileChunk:
    """Good rows with the stream's columns, and the bad lines, which are left out.

    `size` is how many bytes of the input it covers, if the input is read in order.
    """

    table: pa.Table
    bad: tuple[BadLine, ...]
    size: int = 0


def column_map(header: Sequence[str], stream: Stream, options: Options) -> dict[str, str]:
    """Return the file's column of each of the stream's columns; names may differ in case, and be
    former ones. Columns that were dropped from the stream are left out.

    If the file has `_op`, it may lack columns that a patch does not need. Raises BadInput for any
    other missing column, and for unknown ones, unless the options are lenient.
    """
    file_columns: dict[str, str] = {}
    extra = []
    names, present_names = {column.name for column in stream.columns}, stream.present_names
    for name in header:
        target = options.rename.get(name, name.strip().lower())
        if name in options.drop or target in stream.dropped:
            continue
        target = present_names.get(target, target)
        if target in file_columns:
            raise BadInput(
                f"the file has two columns for {target}: {file_columns[target]!r} and {name!r}"
            )
        if target in names or target in _BATCH_NAMES:
            file_columns[target] = name
        else:
            extra.append(name)
    needed = {column.name for column in stream.columns if not column.optional}
    if OP.name in file_columns and stream.key:
        needed = {*stream.key}
    elif options.lenient:
        needed = needed_by_deletes(stream)
    missing = [c.name for c in stream.columns if c.name in needed and c.name not in file_columns]
    if missing or not file_columns or (extra and not options.lenient):
        raise BadInput(_mismatch(stream, header, missing, extra))
    return file_columns


def needed_by_deletes(stream: Stream) -> set[str]:
    """Return the columns that a line with `_op` delete must have."""
    return {*stream.key, *stream.event_time}


def _mismatch(stream: Stream, header: Sequence[str], missing: list[str], extra: list[str]) -> str:
    lines = [f"the file's columns are not those of {stream.name}"]
    if len(header) == 1:
        lines += [
            f"  it has one column, {header[0][:80]!r}: is it separated by {mark!r}? (--delimiter)"
            for mark in ";\t|,"
            if mark in header[0]
        ][:1]
    if missing:
        lines.append(f"  missing: {', '.join(missing)}   (--rename FILE_COLUMN={missing[0]})")
    if extra:
        lines.append(
            f"  unknown: {', '.join(extra)[:500]}   (--drop {extra[0][:80]} leaves it out)"
        )
    return "\n".join(lines)


def build(
    stream: Stream,
    arrays: dict[str, pa.Array],
    convert: Callable[[pa.Array, Column], Converted],
    number: Callable[[int], int],
    early: Mapping[int, BadLine] | None = None,
    lenient: bool = False,
) -> FileChunk:
    """Return the arrays as a chunk of the stream's types. A bad row is left out, and reported once.

    `early` are the rows, by index, that are bad already; `number` returns a row's line. The
    `record` of a bad line is its index. If it is `lenient`, a column that is missing is NULL. If
    there are patches, the chunk has only the columns that are there.
    """
    # By the index of the row in this chunk. The first problem of a row is the one that is reported.
    bad = dict(early or {})
    columns = []
    fields = [*stream.columns, *(column for column in BATCH_COLUMNS if column.name in arrays)]
    length = len(next(iter(arrays.values()), ()))
    if stream.key and _has_patches(arrays, convert):
        fields = [column for column in fields if column.name in arrays]
    for column in fields:
        if column.name not in arrays:
            # `_problems` refuses rows that may not lack it.
            columns.append(column.fill(length))
            continue
        source = arrays[column.name]
        array, failed = convert(source, column)
        columns.append(array)
        for index, why in failed.items():
            line = BadLine(number(index), column.name, _text_of(source[index]), why)
            bad.setdefault(index, line)
    table = pa.Table.from_arrays(columns, names=[column.name for column in fields])
    required = {column.name for column in stream.columns if not column.optional}
    lacking = set() if lenient else required - arrays.keys()
    for name, wrong, why in _problems(table, stream, lacking):
        for index in pc.indices_nonzero(wrong).to_pylist():
            text = _text_of(table.column(name)[index]) if name in _BATCH_NAMES else ""
            bad.setdefault(index, BadLine(number(index), name, text, why))
    if bad:
        keep = pa.array([index not in bad for index in range(table.num_rows)], pa.bool_())
        table = table.filter(keep)
    lines = (
        replace(line, record=index, fields=row_fields(arrays, index))
        for index, line in sorted(bad.items())
    )
    return FileChunk(table, tuple(lines))


def row_fields(arrays: Mapping[str, pa.Array | pa.ChunkedArray], index: int) -> str:
    """Return a row as a JSON object of texts that `psoup.formats.convert` reads; nothing if a field
    has no text, as bytes that are not UTF-8."""
    try:
        texts = {
            name: array.slice(index, 1).cast(pa.string())[0].as_py()
            for name, array in arrays.items()
        }
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return ""
    return json.dumps(texts, ensure_ascii=False)


def _has_patches(
    arrays: Mapping[str, pa.Array], convert: Callable[[pa.Array, Column], Converted]
) -> bool:
    if OP.name not in arrays:
        return False
    ops, _ = convert(arrays[OP.name], OP)
    return bool(pc.any(pc.equal(ops, PATCH)).as_py())


def _problems(
    table: pa.Table, stream: Stream, missing: set[str]
) -> Iterator[tuple[str, pa.ChunkedArray, str]]:
    """Yield what the stream does not allow: a column, a mask of the bad rows, and why."""
    for name in stream.event_time:
        if name in table.column_names:
            yield name, table.column(name).is_null(), "the event time can't be NULL"
    for name in stream.key:
        yield name, table.column(name).is_null(), "a column of the stream key can't be NULL"
    if EXPECTED.name in table.column_names:
        expected = table.column(EXPECTED.name)
        wrong = pc.less(expected, -1).fill_null(False) if stream.key else expected.is_valid()
        why = "is no row id, nor -1 for none" if stream.key else "is given without a KEY to edit by"
        yield EXPECTED.name, wrong, why
    if OP.name in table.column_names:
        ops = table.column(OP.name).fill_null("row")
        allowed = pa.array(["row", "delete", PATCH] if stream.key else ["row"])
        keyed, plain = "row, delete or patch", "row: the stream has no KEY to delete or patch by"
        allowed_text = keyed if stream.key else plain
        yield OP.name, pc.invert(pc.is_in(ops, value_set=allowed)), f"is not {allowed_text}"
        for name in sorted(missing):
            why = "is missing: only a delete or patch may leave it out"
            # The event time, too, is one that a patch keeps.
            wrong = pc.equal(ops, "row")
            if name in needed_by_deletes(stream):
                wrong = pc.not_equal(ops, PATCH)
            yield name, wrong, why


def _text_of(value: pa.Scalar) -> str:
    plain = value.as_py()
    # A byte that is not UTF-8 may be a stand-in for another one.
    return plain.decode("utf-8", "replace") if isinstance(plain, bytes) else str(plain)
