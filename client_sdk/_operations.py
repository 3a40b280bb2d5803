"""What a row does, beside its columns: `_op` is "row", or "delete" where the stream has a key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from client_sdk._columns import Column
from client_sdk._models import Stream
from client_sdk._row_problems import wrong_fields

OP = "_op"
DELETE = "delete"
OP_COLUMN = Column(OP, "TEXT")

Row = Mapping[str, Any]


def deletes(keys: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows that delete these keys."""
    return [{**key, OP: DELETE} for key in keys]


def needed(stream: Stream) -> set[str]:
    """What a delete can't do without."""
    return {*stream.key, *([stream.ordered_by] if stream.ordered_by else [])}


def completed(rows: Sequence[Row], stream: Stream) -> tuple[Sequence[Row], list[Any] | None]:
    """Rows of exactly the stream's columns, and what each does; None where none says.

    A delete may leave out what it does not need. Raises RowProblem.
    """
    names = {column.name for column in stream.columns}
    if all(row.keys() == names for row in rows):
        return rows, None
    optional = dict.fromkeys(names - needed(stream)) if stream.key else {}
    whole = []
    for number, row in enumerate(rows):
        filled = {**optional, **row} if row.get(OP) == DELETE else dict(row)
        filled.pop(OP, None)
        if filled.keys() != names:
            raise wrong_fields(number, [name for name in row if name != OP], names)
        whole.append(filled)
    ops = [row.get(OP) for row in rows]
    return whole, ops if any(OP in row for row in rows) else None


def with_optional(table: pa.Table, stream: Stream) -> pa.Table:
    """The same, with NULLs for what a table of nothing but deletes may leave out."""
    if OP not in table.column_names or not stream.key or not table.num_rows:
        return table
    ops = table.column(OP)
    if pa.types.is_null(ops.type) or not pc.all(pc.equal(ops, DELETE), skip_nulls=False).as_py():
        return table
    for column in stream.columns:
        if column.name not in table.column_names and column.name not in needed(stream):
            table = table.append_column(column.name, pa.nulls(table.num_rows, column.arrow))
    return table
