"""Changes of a stream's columns by ALTER STREAM: one more, one under another label, one fewer.

The name of a column in files, in the log and in bound queries never changes, and is never given to
another column. So no file is written again, and whatever was bound goes on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

from datastem.instants import MAX_INSTANT, format_instant
from datastem.schema import Column, FormerLabel, StreamSchema
from psoup.errors import BadRequest, ColumnExists
from querystem.language import AddColumn, DropColumn, RenameColumn


def added(
    schema: StreamSchema, change: AddColumn, position: int, now: int, most: int
) -> StreamSchema:
    """Return the schema with one more column; the ALTER STREAM stands at a packed position, and the
    stream may have `most` columns. Raise ColumnExists, BadRequest."""
    _check_free(schema, change.column.name, now)
    _check_room(schema, most)
    column = replace(change.column, since=position)
    name = _free_name(column.name, schema)
    if name != column.name:
        column = replace(column, name=name, renamed=column.name)
    return replace(schema, columns=(*schema.columns, column))


def renamed(
    schema: StreamSchema, change: RenameColumn, position: int, now: int, most: int
) -> StreamSchema:
    """Return the schema with another label of a column. Raise ColumnExists,
    BadRequest."""
    column = column_of(schema, change.column)
    if change.to == change.column:
        raise ColumnExists(
            f"the column is named {change.to} already", field=change.to, got=change.to
        )
    _check_free(schema, change.to, now, column)
    _check_room(schema, most)
    former = _ended(column, position, now + change.accept)
    renamed_column = "" if change.to == column.name else change.to
    return _with(schema, replace(column, renamed=renamed_column, former=former))


def without(
    schema: StreamSchema, column: Column, change: DropColumn, position: int, now: int
) -> StreamSchema:
    """Return the schema without a column. Raise BadRequest if rows can't be without it."""
    validity = schema.validity
    valid = () if validity is None else (validity.starts, validity.ends)
    roles = {schema.ordered_by: "is the event time of"}
    roles |= dict.fromkeys(valid, "is in VALID of")
    roles |= dict.fromkeys(schema.key, "is in the KEY of")
    if (role := roles.get(column.name)) is not None:
        raise BadRequest(
            f"{change.column} {role} {schema.name}: no row can be without it",
            reason="NOT_SUPPORTED",
            field=change.column,
            hint="create another stream, and publish the rows to it",
        )
    if len(schema.columns) == 1:
        raise BadRequest(
            f"{change.column} is the only column of {schema.name}",
            reason="NOT_SUPPORTED",
            field=change.column,
            hint="drop the stream",
        )
    columns = tuple(other for other in schema.columns if other is not column)
    dropped = replace(column, former=_ended(column, position, now + change.accept))
    return replace(schema, columns=columns, dropped=(*schema.dropped, dropped))


def column_of(schema: StreamSchema, label: str) -> Column:
    """Return the column that has a label. Raise BadRequest."""
    for column in schema.columns:
        if column.label == label:
            return column
    listed = ", ".join(schema.labels)
    hint = schema.renaming(label) or f"its columns are {listed[:200]}"
    raise BadRequest(
        f"{schema.name} has no column {label[:100]}",
        reason="UNKNOWN_COLUMN",
        field=label[:100],
        got=label[:100],
        hint=hint,
    )


def column_notes(before: StreamSchema, after: StreamSchema) -> Iterable[str]:
    """Yield until when batches may use the labels that an alteration has ended."""
    for column in (*after.columns, *after.dropped):
        for old in column.former:
            if old.ended <= before.altered_at:
                continue
            until = format_instant(old.accepted_until)
            if column in after.dropped:
                yield f"batches may bring {old.label} until {until}; it is left out"
            else:
                yield f"batches may use {old.label} for {column.label} until {until}"


def _ended(column: Column, position: int, until: int) -> tuple[FormerLabel, ...]:
    """Return the former labels of a column whose present one ends."""
    return (*column.former, FormerLabel(column.label, position, min(until, MAX_INSTANT)))


def _with(schema: StreamSchema, changed: Column) -> StreamSchema:
    columns = (changed if column.name == changed.name else column for column in schema.columns)
    return replace(schema, columns=tuple(columns))


def _check_free(schema: StreamSchema, label: str, now: int, changed: Column | None = None) -> None:
    """Raise ColumnExists if a column has a label, or batches may still use it for another than the
    one that is `changed`."""
    if label in schema.labels:
        raise ColumnExists(
            f"{schema.name} has a column {label} already",
            field=label,
            got=label,
            hint="choose another name",
        )
    column = schema.accepted_labels(now).get(label)
    if column is None or (changed is not None and column.name == changed.name):
        return
    until = [old.accepted_until for old in column.former if old.label == label][-1]
    raise ColumnExists(
        f"{schema.renaming(label)}, and batches may use the name until {format_instant(until)}",
        field=label,
        got=label,
        hint="choose another name, or wait until then",
    )


def _check_room(schema: StreamSchema, most: int) -> None:
    """Raise BadRequest for one column or label too many. Those that ended count too: batches of the
    log, files and texts of views still have them."""
    columns = (*schema.columns, *schema.dropped)
    count = len(columns) + sum(len(column.former) for column in schema.columns)
    if count >= most:
        ended = count - len(schema.columns)
        more = f" and {ended} dropped columns and former names" if ended else ""
        raise BadRequest(
            f"{schema.name} has {len(schema.columns)} columns{more}, and the limit is {most}",
            reason="TOO_MANY_COLUMNS",
        )


def _free_name(label: str, schema: StreamSchema) -> str:
    """Return a name that no column has or has had: the label, with a number if that was one."""
    taken = {column.name for column in (*schema.columns, *schema.dropped)}
    numbered = (f"{label}_{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([label], numbered) if name not in taken)
