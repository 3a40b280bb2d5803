"""The schema of a stream: its columns, its stream key, its time, how long rows are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from datastem.instants import HOUR
from datastem.types import BIGINT, TEXT, TIMESTAMP, Type, parse_type

# Every row has these; a query may use them like any column.
SYSTEM_COLUMNS: Mapping[str, Type] = {"ts": TIMESTAMP, "row_id": BIGINT}

# The column that says whether a row is a row or, in a stream with a stream key, a delete.
OP = "_op"
OP_ROW = 0
OP_DELETE = 1

# The column that says which row of its stream key an edit expects to be the current one: a row id,
# or NO_ROW if it expects none. NULL is no condition.
EXPECTED = "_expected"
NO_ROW = -1


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: Type

    def __hash__(self) -> int:
        # Columns of equal names are compared; to hash their types would take longer, at each look
        # into a cache.
        return hash(self.name)


# The columns that a batch may have beside those of its stream.
BATCH_COLUMNS = (Column(OP, TEXT), Column(EXPECTED, BIGINT))


@dataclass(frozen=True)
class StreamSchema:
    """A stream as CREATE STREAM declared it. Durations are microseconds.

    `ordered_by` names the event-time column, or is None if a row's ts is the stamp of its arrival.
    `retain` is None if rows are kept for ever. `key` is the stream key, empty if there is none; a
    row replaces the earlier row of its stream key.
    """

    name: str
    columns: tuple[Column, ...]
    ordered_by: str | None = None
    retain: int | None = None
    ahead: int = HOUR
    key: tuple[str, ...] = ()

    def __hash__(self) -> int:
        """Hash the name alone: schemas are keys of caches, and this is cheap."""
        return hash(self.name)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The declared columns, in order."""
        return pa.schema([(column.name, column.type.arrow) for column in self.columns])

    @cached_property
    def payload(self) -> pa.Schema:
        """The columns of a batch in the log: the declared ones, preceded by `_op` if there is a
        stream key."""
        return pa.schema([*([(OP, pa.int8())] if self.key else []), *self.arrow])

    @cached_property
    def types(self) -> dict[str, Type]:
        """Every name a query may use: declared columns, `ts` and `row_id`."""
        return {**SYSTEM_COLUMNS, **{column.name: column.type for column in self.columns}}

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "columns": [[column.name, str(column.type)] for column in self.columns],
            "ordered_by": self.ordered_by,
            "retain": self.retain,
            "ahead": self.ahead,
            "key": list(self.key),
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> StreamSchema:
        return cls(
            name=form["name"],
            columns=tuple(Column(name, parse_type(text)) for name, text in form["columns"]),
            ordered_by=form["ordered_by"],
            retain=form["retain"],
            ahead=form["ahead"],
            key=tuple(form["key"]),
        )
