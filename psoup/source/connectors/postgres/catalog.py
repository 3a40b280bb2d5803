"""What PostgreSQL knows of a table, and whether a stream can take its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from client_sdk import Column, Stream
from psoup.source.errors import BadSettings, PlaceLost
from psoup.source.mapping import check_metadata, present_columns

_WHOLE = {"smallint", "integer", "bigint"}
_TYPES: dict[str, set[str]] = {
    "BOOLEAN": {"boolean"},
    "BIGINT": _WHOLE | {"oid"},
    "DOUBLE": _WHOLE | {"real", "double precision", "numeric"},
    "DECIMAL": _WHOLE | {"numeric"},
    "TIMESTAMP": {"timestamp with time zone", "timestamp without time zone"},
    "DATE": {"date"},
}
# The length or precision in the name of a type.
_MODIFIER = re.compile(r"\([^)]*\)")
# Columns that are filled with something about a row.
METADATA = frozenset({"$lsn", "$commit_time"})


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table: its type without length, and whether large values are kept apart."""

    type: str
    is_toasted: bool


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table: its columns, the columns of its unique keys, and its replica identity."""

    name: str
    columns: Mapping[str, TableColumn]
    unique_keys: tuple[frozenset[str], ...]
    identity: str

    @property
    def has_full_identity(self) -> bool:
        return self.identity == "f"


def read_shape(cursor: Any, table: str) -> TableShape:
    """Return the shape of a table, named as `schema.table`. Raises BadSettings."""
    cursor.execute("SELECT to_regclass(%s)::oid, current_setting('wal_level')", (quoted(table),))
    oid, wal_level = cursor.fetchone()
    if oid is None:
        raise BadSettings(f"there is no table {table}")
    if wal_level != "logical":
        raise BadSettings("the server needs wal_level = logical")
    cursor.execute(
        "SELECT attname, format_type(atttypid, NULL), attstorage <> 'p' FROM pg_attribute "
        "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped",
        (oid,),
    )
    columns = {name: TableColumn(kind, toasted) for name, kind, toasted in cursor.fetchall()}
    cursor.execute(
        "SELECT array_agg(attname::text) FROM pg_index JOIN pg_attribute ON attrelid = indrelid "
        "AND attnum = ANY(indkey) WHERE indrelid = %s AND indisunique AND indpred IS NULL "
        "AND indexprs IS NULL GROUP BY indexrelid",
        (oid,),
    )
    keys = tuple(frozenset(names) for (names,) in cursor.fetchall())
    cursor.execute("SELECT relreplident FROM pg_class WHERE oid = %s", (oid,))
    return TableShape(table, columns, keys, cursor.fetchone()[0])


def quoted(table: str) -> str:
    """Return the name of a table as SQL writes it."""
    return ".".join(map(quoted_name, table.split(".")))


def quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text_expression(name: str, kind: str) -> str:
    """Return an expression for the text of a column that the log has of it, too."""
    column = quoted_name(name)
    if kind == "boolean":
        return f"{column}::text"
    # A cast would take the blanks off char(n), and add a netmask to inet.
    return f"CASE WHEN {column} IS DISTINCT FROM NULL THEN concat({column}) END"


class TableMapping:
    """The column of a table, or `$lsn` or `$commit_time`, for each column of a stream.

    Raises BadSettings if a type does not fit, or deletes and updates would not say enough.
    """

    def __init__(
        self,
        stream: Stream,
        paths: Mapping[str, str],
        parse: frozenset[str],
        shape: TableShape,
        notice: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.stream, self._notice = stream, notice
        check_metadata(paths, frozenset(name[1:] for name in METADATA))
        paths = present_columns(stream, paths)
        self._parse = frozenset(present_columns(stream, dict.fromkeys(parse, "")))
        self.sources = {c.name: paths.get(c.name) or _source(c, shape) for c in stream.columns}
        self.columns = [c for c in stream.columns if self.sources[c.name] not in METADATA]
        self._shape = shape
        # Columns that the table did not have when its shape was read.
        self._new: set[str] = set()
        self.key_sources = [self.sources[name] for name in stream.key]
        for column in self.columns:
            self._check(column, shape)
        if not stream.key:
            raise BadSettings(f"stream {stream.name} needs a KEY: that of table {shape.name}")
        if frozenset(self.key_sources) not in shape.unique_keys:
            raise BadSettings(
                f"the KEY of {stream.name} must be a primary key or unique index of {shape.name}"
            )
        for name in stream.event_time:
            if self.sources[name] not in METADATA:
                # A delete has only its identity.
                self._need_full(shape, f"the event time {name}")
        for column in self.columns:
            source = self.sources[column.name]
            if shape.columns[source].is_toasted and source not in self.key_sources:
                self._need_full(shape, f"column {source}, whose large values updates leave out")

    def _fits(self, column: Column, kind: str) -> bool:
        in_text = column.kind == "TEXT" or column.name in self._parse
        return in_text or kind in _TYPES[column.kind]

    def _check(self, column: Column, shape: TableShape) -> None:
        source = self.sources[column.name]
        if source not in shape.columns:
            raise BadSettings(f"table {shape.name} has no column {source} for column {column.name}")
        kind = shape.columns[source].type
        if not self._fits(column, kind):
            raise BadSettings(
                f"column {source} is {kind}, and column {column.name} {column.type}; change the "
                f'stream, or set parse = ["{column.name}"]'
            )

    def _need_full(self, shape: TableShape, why: str) -> None:
        if not shape.has_full_identity:
            raise BadSettings(
                f"{why} needs: ALTER TABLE {shape.name} REPLICA IDENTITY FULL; or leave the column "
                "out of the stream"
            )

    def select(self) -> tuple[list[str], str]:
        """Return the mapped columns of the table, and a query of their texts."""
        names = list(dict.fromkeys(self.sources[column.name] for column in self.columns))
        columns = self._shape.columns
        texts = ", ".join(_text_expression(name, columns[name].type) for name in names)
        return names, f"SELECT {texts} FROM {quoted(self._shape.name)}"

    def check_types(self, types: Mapping[str, str], previous: Mapping[str, str]) -> None:
        """Check the types of a record's columns, and those of the record before. Raises PlaceLost
        if a mapped column is missing or was retyped."""
        for column in self.columns:
            source = self.sources[column.name]
            if source not in types:
                raise PlaceLost(
                    f"a change of the table has no column {source} any more; give other columns, "
                    "and read the table again with skip --to earliest"
                )
            kind, before = types[source], previous.get(source, types[source])
            if kind != before:
                raise PlaceLost(
                    f"column {source} of table {self._shape.name} was {before} and is {kind} now: "
                    "rows of the stream may have other values there. Run the source again to go "
                    "on, or read the table again with skip --to earliest"
                )
            if not self._fits(column, _MODIFIER.sub("", kind)):
                raise PlaceLost(
                    f"column {source} of table {self._shape.name} is {kind} now, and column "
                    f"{column.name} {column.type}; change the stream, and read the table again "
                    "with skip --to earliest"
                )
        for name in types.keys() - self._shape.columns.keys() - self._new:
            self._new.add(name)
            self._notice(f"{self._shape.name}: column {name} is new, and left out")


def _source(column: Column, shape: TableShape) -> str:
    """Return the column of a table that has the name of a stream's column, or a former one."""
    names = (column.name, *reversed(column.former))
    return next((name for name in names if name in shape.columns), column.name)
