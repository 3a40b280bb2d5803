"""From records of nested fields to rows of a stream."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from client_sdk import Stream
from psoup.formats.json_values import exact_number, json_constant
from psoup.source.errors import BadSettings
from psoup.source.readers.chunk import OP, BadLine, FileChunk
from psoup.source.readers.jsonl_reader import chunk_of_rows

# More names of fields that are left out than this are not counted apart.
_MOST_NAMES = 100
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_PATH = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[\d+\])*")
# What a message of Kafka says beside its fields; `headers.` stands for all that begins with it.
MESSAGE_METADATA = frozenset(
    {"value", "key", "timestamp", "offset", "partition", "topic", "headers."}
)

_BOOLEANS: Mapping[str, bool] = {"true": True, "false": False, "1": True, "0": False}

Row = dict[str, Any]


class RowMapping:
    """Fills the columns of a stream: by the paths in `columns`, else by name.

    A path such as `a.b[0]` leads into a record; `$name` is about the record, such as `$timestamp`
    or `$headers.region`. A field that is missing is NULL, or the column's default. Fields that no
    column uses are left out, and counted in `left_out`. `parse` are columns whose numbers may be
    texts. A column that was renamed may have a former name, here and in records.
    """

    def __init__(
        self, stream: Stream, columns: Mapping[str, str], parse: frozenset[str] = frozenset()
    ) -> None:
        self._stream = stream
        columns = present_columns(stream, columns)
        self._parse = frozenset(present_columns(stream, dict.fromkeys(parse, "")))
        self._texts = {column.name for column in stream.columns if column.kind == "TEXT"}
        self._metadata = {name: path[1:] for name, path in columns.items() if path[:1] == "$"}
        paths = {column.name: columns.get(column.name, column.name) for column in stream.columns}
        self._paths = {
            name: _steps(path) for name, path in paths.items() if name not in self._metadata
        }
        self._defaults = {
            column.name: json_constant(column.default)
            for column in stream.columns
            if column.optional and column.name in self._paths
        }
        self._used = {steps[0] for steps in self._paths.values()}
        # Columns by the former names that fields without a path of their own may have.
        self._former = {
            former: name
            for former, name in stream.present_names.items()
            if name not in columns and former not in self._used
        }
        self.left_out: Counter[str] = Counter()

    def row(self, fields: Mapping[str, Any], metadata: Mapping[str, Any]) -> Row:
        """Return the row of a record."""
        if not self._former.keys().isdisjoint(fields):
            # The present name counts if a record has both.
            former = {self._former.get(name, name): value for name, value in fields.items()}
            fields = former | {name: fields[name] for name in fields if name not in self._former}
        row = {name: self._value(name, _follow(fields, path)) for name, path in self._paths.items()}
        for name, default in self._defaults.items():
            if row[name] is None and self._paths[name][0] not in fields:
                row[name] = default
        for name, source in self._metadata.items():
            row[name] = metadata.get(source)
        for name in fields.keys() - self._used:
            if name in self.left_out or len(self.left_out) < _MOST_NAMES:
                self.left_out[name] += 1
        return row

    def positional(self, values: Sequence[str | None], metadata: Mapping[str, Any]) -> Row:
        """Return the row of texts that stand for the columns in their order, without those that
        are filled by what is about the record. Raises ValueError.
        """
        columns = [column for column in self._stream.columns if column.name not in self._metadata]
        if len(values) != len(columns):
            names = ", ".join(column.name for column in columns)
            raise ValueError(f"has {len(values)} fields, and not {len(columns)}: {names}")
        row: Row = {
            column.name: _BOOLEANS.get(value.lower(), value)
            if column.kind == "BOOLEAN" and value is not None
            else value
            for column, value in zip(columns, values, strict=True)
        }
        return row | {name: metadata.get(source) for name, source in self._metadata.items()}

    def delete(self, fields: Mapping[str, Any], metadata: Mapping[str, Any]) -> Row:
        """Return the row that deletes the key of a record."""
        row = self.row(fields, metadata)
        needed = {*self._stream.key, *self._stream.event_time}
        return {name: value if name in needed else None for name, value in row.items()} | {
            OP.name: "delete"
        }

    @property
    def metadata_columns(self) -> frozenset[str]:
        """The columns that are filled by what is about a record."""
        return frozenset(self._metadata)

    def deletion(self, key: Mapping[str, Any], metadata: Mapping[str, Any]) -> Row:
        """Return the row that deletes a key of the stream."""
        row: Row = {column.name: None for column in self._stream.columns}
        for name in self._stream.event_time:
            if name in self._metadata:
                row[name] = metadata.get(self._metadata[name])
        return (
            row | {name: json_constant(value) for name, value in key.items()} | {OP.name: "delete"}
        )

    def named(self, column: str, value: Any) -> Row:
        """Return fields in which a column of the stream finds this value."""
        fields: Row = {}
        inner, steps = fields, self._paths.get(column, (column,))
        for step in steps[:-1]:
            inner = inner.setdefault(str(step), {})
        inner[str(steps[-1])] = value
        return fields

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, dict | list) and name in self._texts:
            return json.dumps(value, default=str, ensure_ascii=False)
        return value

    def chunk(
        self, rows: Sequence[Row], places: Sequence[int], bad: dict[int, BadLine]
    ) -> FileChunk:
        """Return rows as a chunk; `places` number them, `bad` are those that are bad already."""
        return chunk_of_rows(rows, self._stream, places, bad, self._parse)


def check_metadata(columns: Mapping[str, str], names: frozenset[str]) -> None:
    """Raise BadSettings for a `$name` of columns that a source does not have."""
    for path in columns.values():
        name = "headers." if path[1:9] == "headers." and path[9:] else path[1:]
        if path[:1] != "$" or (name in names and path != "$headers."):
            continue
        texts = ", ".join(f"${name}" for name in sorted(names)).replace("headers.", "headers.NAME")
        has = f"it has {texts}" if names else "it has nothing but its fields"
        raise BadSettings(f"columns: the source has no {path}; {has}")


def present_columns(stream: Stream, columns: Mapping[str, str]) -> dict[str, str]:
    """Return what settings say for columns, by their present names and without dropped ones. Raises
    BadSettings for an unknown column, or one under two names."""
    names = {column.name: column.name for column in stream.columns} | stream.present_names
    present: dict[str, str] = {}
    for name, value in columns.items():
        if name in stream.dropped:
            continue
        if name not in names:
            raise BadSettings(f"stream {stream.name} has no column {name}")
        if names[name] in present:
            raise BadSettings(f"{name} is a second name of {names[name]}: leave one of them out")
        present[names[name]] = value
    return present


def load_json(content: bytes) -> Any:
    """Return a JSON value with all digits of its numbers. Raises ValueError."""
    try:
        return json.loads(content.decode(), parse_float=exact_number)
    except RecursionError:
        raise ValueError("is nested too deep") from None


def _steps(path: str) -> tuple[str | int, ...]:
    if not _PATH.fullmatch(path):
        raise BadSettings(f"{path!r} is no path; write a, a.b or a.b[0]")
    return tuple(name or int(index) for name, index in _STEP.findall(path))


def _follow(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value
