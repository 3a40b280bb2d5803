"""Rows of a body as columns of a stream, and refusals that name the row."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from datastem.errors import RowError
from datastem.instants import MIN_INSTANT
from datastem.schema import BATCH_COLUMNS, OP, Column, StreamSchema
from psoup.formats.convert import Converted
from psoup.formats.json_values import array_of, convert_array, json_constant, misfits
from querystem.pace import spending

# The interpreter parses a row in one go, which takes tens of milliseconds at most: a TEXT of the
# largest size by default, and more. Larger rows come as Arrow.
MAX_ROW_BYTES = (1 << 20) + (64 << 10)
# Rows that become columns at once: other work may run in between.
_CHUNK_ROWS = 4096
# Units (`querystem.pace`) of a value that is made of text.
VALUE_UNITS = 400
_BATCH_NAMES = frozenset(column.name for column in BATCH_COLUMNS)


@dataclass(frozen=True, slots=True)
class TargetField:
    """A column of a stream, as conversions need it."""

    name: str
    type: str
    kind: str
    arrow: pa.DataType

    @classmethod
    def of(cls, column: Column) -> TargetField:
        type_ = column.type
        return cls(column.name, str(type_), type_.kind.value, type_.arrow)


def targets_of(schema: StreamSchema) -> dict[str, TargetField]:
    """Return the columns that a batch may have, by name. The stream's check knows whether a
    former name is still accepted."""
    accepted = schema.accepted_labels(MIN_INSTANT)
    named = (replace(column, name=label) for label, column in accepted.items())
    return {column.name: TargetField.of(column) for column in (*named, *BATCH_COLUMNS)}


def table_of(rows: Iterator[Any], schema: StreamSchema) -> pa.Table:
    tables, first, targets = [], 0, targets_of(schema)
    patched: set[str] | None = None
    while chunk := list(islice(rows, _CHUNK_ROWS)):
        patched = _patched(chunk, first, patched)
        table = _columns(chunk, first, schema, targets, patched)
        tables.append(table)
        spending()(table.num_rows * max(1, table.num_columns) * VALUE_UNITS)
        first += len(chunk)
    if not tables:
        return schema.labelled.arrow.empty_table()
    table = pa.concat_tables(tables, promote_options="default")
    if patched is not None and (others := {*table.column_names} - _BATCH_NAMES - patched):
        # A value that is missing in a patch is kept, and not NULL.
        raise RowError(
            "MISSING_COLUMN",
            f"other rows of the batch set {min(others)[:80]}, and its patches do not",
            field=min(others)[:80],
            hint="send patches and whole rows in batches of their own",
        )
    return table


def _columns(
    rows: Sequence[Any],
    first: int,
    schema: StreamSchema,
    targets: Mapping[str, TargetField],
    patched: set[str] | None,
) -> pa.Table:
    names = targets.keys() - _BATCH_NAMES
    required = {column.label: _labels(column) for column in schema.columns}
    for column in schema.optional.values():
        del required[column.label]
    present: set[str] = set()
    for row, value in enumerate(rows, first):
        if not isinstance(value, dict):
            raise malformed(row, ValueError("a row is an object"))
        # Rows with exactly these columns need no closer look.
        if value.keys() != names:
            _check_names(value, row, names, required)
        present |= value.keys()
    arrays = {}
    defaults: dict[str, Any] = {}
    # Patches set what they have, and no default.
    for added in schema.optional.values() if patched is None else ():
        # Of each chunk, since another one may have it.
        names = (_labels(added) & present) or {added.label}
        defaults |= dict.fromkeys(names, json_constant(added.default))
    for name, target in targets.items():
        if name in present or name in defaults:
            default = defaults.get(name)
            arrays[name] = _array([row.get(name, default) for row in rows], first, target)
    return pa.table(arrays)


def _patched(rows: Sequence[Any], first: int, patched: set[str] | None) -> set[str] | None:
    """Return the columns that patches set: those of the first, `patched` if that came before. None
    without patches. Raise RowError if another one sets other columns: absent is not NULL."""
    for number, row in enumerate(rows, first):
        if isinstance(row, dict) and row.get(OP) == "patch":
            names = row.keys() - _BATCH_NAMES
            if patched is None:
                patched = set(names)
            elif names != patched:
                raise RowError(
                    "MISSING_COLUMN",
                    f"row {number}: a patch of other columns than the first one of the batch",
                    row=number,
                    field=min(names ^ patched)[:80],
                    expected=", ".join(sorted(patched))[:200],
                    hint="send patches of other columns in another batch",
                )
    return patched


def _labels(column: Column) -> set[str]:
    """Return the present label of a column, and its former ones."""
    return {column.label, *(old.label for old in column.former)}


def _check_names(
    row: Mapping[str, Any], number: int, names: AbstractSet[str], required: Mapping[str, set[str]]
) -> None:
    for name in row:
        if name not in names and name not in _BATCH_NAMES:
            message = f"row {number}: the stream has no column {name[:80]}"
            raise RowError("EXTRA_COLUMN", message, row=number, field=name[:80])
    # Of these the stream's check knows what is needed.
    if row.get(OP) in ("delete", "patch"):
        return
    missing = sorted(label for label, labels in required.items() if not labels & row.keys())
    if missing:
        raise RowError(
            "MISSING_COLUMN",
            f"row {number}: column {missing[0]} is missing",
            row=number,
            field=missing[0],
            hint="write null for NULL",
        )


def _array(values: list[Any], first: int, target: TargetField) -> pa.Array:
    for place in misfits(values, target, number_texts=True):
        raise wrong_value(
            first + place, target, json.dumps(values[place], default=str), "WRONG_TYPE"
        )
    try:
        array = array_of(values, target)
    except UnicodeEncodeError:
        place = next(place for place, text in enumerate(values) if _is_broken(text))
        message = f"column {target.name}, row {first + place}: text that is not valid UTF-8"
        raise RowError("INVALID_UTF8", message, row=first + place, field=target.name) from None
    if pa.types.is_floating(array.type) and pc.any(pc.is_inf(array)).as_py():
        # Texts are not floats yet: 1e999 is no DOUBLE, "Infinity" is one.
        place = next(place for place, value in enumerate(values) if not _is_finite(value))
        raise wrong_value(first + place, target, "a number past the range of DOUBLE")
    return checked(convert_array(array, target), values, first, target)


def _is_finite(value: float | None) -> bool:
    return value is None or math.isfinite(value)


def _is_broken(text: str | None) -> bool:
    return text is not None and any("\ud800" <= character <= "\udfff" for character in text)


def checked(converted: Converted, values: Any, first: int, target: TargetField) -> pa.Array:
    array, failed = converted
    if failed:
        place = min(failed)
        raise wrong_value(first + place, target, str(values[place]))
    return array


# ---- refusals


def malformed(row: int, error: Exception) -> RowError:
    problem = "nested too deep" if isinstance(error, RecursionError) else str(error)
    place = f"row {row}: " if row >= 0 else ""
    return RowError("MALFORMED_ROWS", f"{place}{problem[:200]}", row=row)


def too_long(row: int) -> RowError:
    return RowError(
        "BATCH_TOO_LARGE",
        f"row {row} has more than {MAX_ROW_BYTES:,} bytes of JSON",
        row=row,
        expected=f"at most {MAX_ROW_BYTES} bytes",
        hint="send such rows as an Arrow IPC stream",
    )


def wrong_value(row: int, target: TargetField, got: str, reason: str = "BAD_VALUE") -> RowError:
    return RowError(
        reason,
        f"column {target.name}, row {row}: {got[:100]} is not {target.type}",
        row=row,
        field=target.name,
        expected=target.type,
        got=got[:100],
    )
