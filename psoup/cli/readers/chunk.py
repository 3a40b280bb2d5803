"""What every reader gives, and how it names its columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from client_sdk import Column, Stream
from psoup.cli.problems import fail
from psoup.cli.readers.convert import Converted

Tell = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Options:
    """`rename` maps a file's column to the stream's; `drop` are columns to leave out."""

    rename: dict[str, str] = field(default_factory=dict)
    drop: frozenset[str] = frozenset()
    null: str = ""


@dataclass(frozen=True, slots=True)
class BadLine:
    """`number` is the line in the file, counted from 1 (for Parquet: the row)."""

    number: int
    column: str
    text: str
    why: str

    def __str__(self) -> str:
        where = f"line {self.number}" + (f", {self.column}" if self.column else "")
        return f"{where}: {self.text[:60]!r} {self.why}"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Good rows with the stream's columns, and what was left out."""

    table: pa.Table
    bad: tuple[BadLine, ...]


def column_map(header: Sequence[str], stream: Stream, options: Options) -> dict[str, str]:
    """From the stream's column to the file's, by name without regard to case."""
    found: dict[str, str] = {}
    extra = []
    names = {column.name for column in stream.columns}
    for name in header:
        wanted = options.rename.get(name, name.strip().lower())
        if name in options.drop:
            continue
        if wanted in found:
            fail(f"the file has two columns for {wanted}: {found[wanted]!r} and {name!r}")
        if wanted in names:
            found[wanted] = name
        else:
            extra.append(name)
    missing = [column.name for column in stream.columns if column.name not in found]
    if missing or extra:
        fail(_mismatch(stream, missing, extra))
    return found


def _mismatch(stream: Stream, missing: list[str], extra: list[str]) -> str:
    lines = [f"the file's columns are not those of {stream.name}"]
    if missing:
        lines.append(f"  missing: {', '.join(missing)}   (--rename THEIRS={missing[0]})")
    if extra:
        lines.append(f"  unknown: {', '.join(extra)}   (--drop {extra[0]} leaves it out)")
    return "\n".join(lines)


def build(
    stream: Stream,
    arrays: dict[str, pa.Array],
    convert: Callable[[pa.Array, Column], Converted],
    number: Callable[[int], int],
    early: Sequence[tuple[int, BadLine]] = (),
) -> Chunk:
    """The arrays as the stream's types. A row with any bad value is left out and reported once.

    `early` are rows (by index) already known to be bad; `number` gives a row's line.
    """
    bad = dict(early)
    columns = []
    for column in stream.columns:
        source = arrays[column.name]
        array, failed = convert(source, column)
        columns.append(array)
        for index, why in failed.items():
            line = BadLine(number(index), column.name, _shown(source[index]), why)
            bad.setdefault(index, line)
    if stream.ordered_by:
        _missing_times(columns, stream, number, bad)
    table = pa.Table.from_arrays(columns, schema=stream.schema)
    if bad:
        keep = pa.array([index not in bad for index in range(table.num_rows)], pa.bool_())
        table = table.filter(keep)
    return Chunk(table, tuple(sorted(bad.values(), key=lambda line: line.number)))


def _missing_times(
    columns: list[pa.Array],
    stream: Stream,
    number: Callable[[int], int],
    bad: dict[int, BadLine],
) -> None:
    name = stream.ordered_by or ""
    times = columns[stream.schema.get_field_index(name)]
    if times.null_count:
        for index in pa.compute.indices_nonzero(times.is_null()).to_pylist():
            bad.setdefault(index, BadLine(number(index), name, "", "the event time can't be NULL"))


def _shown(value: pa.Scalar) -> str:
    found = value.as_py()
    return found.decode("utf-8", "backslashreplace") if isinstance(found, bytes) else str(found)
