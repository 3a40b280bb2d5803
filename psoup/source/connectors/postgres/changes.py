"""Changes of wal2json as rows of a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from psoup.formats.convert import convert_text
from psoup.source.connectors.postgres.catalog import TableMapping
from psoup.source.readers.chunk import OP, FileChunk, build

Fields = Mapping[str, str | None]
# A row or a delete, as texts of its columns.
Change = dict[str, str | None]


def decode(payload: str) -> dict[str, Any]:
    """Return a message of wal2json; numbers stay texts, with all their digits."""
    message: dict[str, Any] = json.loads(payload, parse_float=str, parse_int=str)
    return message


def fields_of(columns: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """Return the texts of columns, as `column::text` writes them."""
    return {column["name"]: _text(column) for column in columns}


def _text(column: Mapping[str, Any]) -> str | None:
    value = column["value"]
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"\\x{value}" if column["type"] == "bytea" else str(value)


class ChangeMaker:
    """Makes rows and deletes of messages, in their order."""

    def __init__(self, mapping: TableMapping) -> None:
        self._mapping = mapping
        # Types of the columns of the record before, and whether it was of an earlier transaction.
        self._types: dict[str, str] = {}
        self._is_first = True

    def begin(self) -> None:
        """Note that a transaction begins."""
        self._is_first = True

    def _check_types(self, columns: Sequence[Mapping[str, Any]]) -> None:
        types = {column["name"]: column["type"] for column in columns}
        if types != self._types:
            # A change within a transaction has no mark before it to go on at.
            self._mapping.check_types(types, self._types if self._is_first else {})
        self._types, self._is_first = types, False

    def changes(self, message: Mapping[str, Any], lsn: str, commit_time: str) -> list[Change]:
        """Return the changes of an insert, update or delete. Raises PlaceLost."""
        old = fields_of(message.get("identity", ()))
        if message["action"] == "D":
            return [self._delete(old, lsn, commit_time)]
        # What an update left as it was may be missing among the new values.
        new = old | fields_of(message["columns"])
        self._check_types((*message.get("identity", ()), *message["columns"]))
        row = self.row(new, lsn, commit_time)
        keys = self._mapping.key_sources
        if message["action"] == "U" and any(
            name in old and old[name] != new[name] for name in keys
        ):
            return [self._delete(old, lsn, commit_time), row]
        return [row]

    def row(self, fields: Fields, lsn: str, commit_time: str) -> Change:
        """Return the row of a table's row."""
        about = {"$lsn": lsn, "$commit_time": commit_time}
        return {
            name: about[source] if source in about else fields[source]
            for name, source in self._mapping.sources.items()
        } | {OP.name: "row"}

    def _delete(self, fields: Fields, lsn: str, commit_time: str) -> Change:
        stream = self._mapping.stream
        needed = {*stream.key, *stream.event_time}
        empty = dict.fromkeys(self._mapping.sources.values()) | dict(fields)
        row = self.row(empty, lsn, commit_time)
        return {name: value if name in needed else None for name, value in row.items()} | {
            OP.name: "delete"
        }

    def deletes(self, keys: Sequence[Mapping[str, Any]], commit_time: str) -> list[Change]:
        """Return deletes of keys of the stream, as texts, at a time."""
        stream = self._mapping.stream
        empty: Change = dict.fromkeys(column.name for column in stream.columns)
        empty.update(dict.fromkeys(stream.event_time, commit_time))
        return [{**empty, **key, OP.name: "delete"} for key in keys]

    def chunk(self, changes: Sequence[Change]) -> FileChunk:
        """Return changes as a chunk of the stream's types; those that do not fit are bad."""
        names = [*self._mapping.sources, OP.name]
        arrays = {
            name: pa.array([change[name] for change in changes], pa.string()) for name in names
        }
        stream = self._mapping.stream
        return build(stream, arrays, convert_text, lambda index: index + 1, lenient=True)
