"""The conversion of a caller's rows to the Arrow table that a stream takes.

Rows are dicts, Arrow or pandas. All of them are checked here, before anything is sent: the first
value that does not fit is a RowProblem that names its row, counted from 0, and its column.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from client_sdk._exceptions import ErrorDetail, RowProblem
from client_sdk._wire.models import Stream
from client_sdk._wire.values import Column, schema_of, utc

# A list of dicts, a pyarrow Table or RecordBatch, or a pandas DataFrame. Rows for a keyed stream
# may have `_op` "delete", which deletes their stream key, or "patch", which sets the columns that
# they have, and `_expected`, the id of the row that they may replace.
Rows: TypeAlias = Any
Row: TypeAlias = Mapping[str, Any]


def to_table(rows: Rows, stream: Stream) -> pa.Table:
    """Return a table of exactly the stream's columns, in their order, and those of `_op` and
    `_expected` that the rows have. Optional columns that rows leave out have their default. If
    there are patches, the table has only the columns that they set.

    Raises RowProblem.
    """
    table = _convert(rows, stream)
    _check_expected(table, stream)
    times = [(name, null_time) for name in stream.event_time if name in table.column_names]
    for name, problem in (*times, *((name, null_key) for name in stream.key)):
        if table.column(name).null_count:
            raise problem(table.column(name).is_null().index(True).as_py(), name)
    return table


def _convert(rows: Rows, stream: Stream) -> pa.Table:
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return from_arrow(with_present_names(rows, stream), stream)
    if is_pandas(rows):
        return from_arrow(with_present_names(pandas_table(rows, stream), stream), stream)
    if isinstance(rows, Mapping | str | bytes):
        raise TypeError("rows: give a list of dicts, an Arrow table or a pandas DataFrame")
    return from_dicts([*_present_rows(rows, stream)], stream)


# ---- names that columns had before


def with_present_names(table: pa.Table, stream: Stream) -> pa.Table:
    """Return a table with the present names of columns that were renamed, and without those that
    were dropped. Raises RowProblem for a column under two names."""
    names = stream.present_names
    if not names and not stream.dropped:
        return table
    kept = [name for name in table.column_names if name not in stream.dropped]
    _check_renamed(-1, kept, names)
    return table.select(kept).rename_columns([names.get(name, name) for name in kept])


def _present_rows(rows: Iterable[Row], stream: Stream) -> Iterator[Row]:
    names = stream.present_names
    if not names and not stream.dropped:
        yield from rows
        return
    for number, row in enumerate(rows):
        kept = [name for name in row if name not in stream.dropped]
        _check_renamed(number, kept, names)
        yield {names.get(name, name): row[name] for name in kept}


def _check_renamed(number: int, fields: Sequence[str], names: Mapping[str, str]) -> None:
    """Raise RowProblem for two names of one column."""
    present: dict[str, str] = {}
    for name in fields:
        other = present.setdefault(names.get(name, name), name)
        if other != name:
            place = f"row {number}" if number >= 0 else "columns"
            detail = ErrorDetail(reason="WRONG_COLUMNS", row=number, field=name)
            raise RowProblem(f"{place}: {other} and {name} are names of one column", detail=detail)


# ---- what is wrong with a row


def first_failure(array: pa.Array, cast: Callable[[pa.Array], pa.Array]) -> int:
    """Return the index of the first value that `cast` refuses, by bisection. There must be one."""
    low, high = 0, len(array)
    # Invariant: `cast` takes all values before `low`, and refuses one in [low, high).
    while high - low > 1:
        middle = (low + high) // 2
        try:
            cast(array.slice(low, middle - low))
        except ValueError:
            high = middle
        else:
            low = middle
    return low


def wrong_fields(number: int, got: Iterable[str], names: set[str]) -> RowProblem:
    fields = list(got)
    missing, extra = sorted(names - set(fields)), sorted(set(map(str, fields)) - names)
    problems = [f"missing {', '.join(missing)}"] if missing else []
    problems += [f"unknown {', '.join(extra)}"] if extra else []
    place = f"row {number}" if number >= 0 else "columns"
    detail = ErrorDetail(
        reason="WRONG_COLUMNS",
        row=number,
        field=(missing + extra + [""])[0],
        expected=", ".join(sorted(names)),
        got=", ".join(map(str, fields)),
        hint="Give every column of the stream, None for NULL, and no other.",
    )
    return RowProblem(f"{place}: {'; '.join(problems) or 'a column is there twice'}", detail=detail)


def bad_value(number: int, column: Column, value: Any, error: Exception) -> RowProblem:
    text = repr(value.as_py() if isinstance(value, pa.Scalar) else value)
    text = text if len(text) <= 60 else f"{text[:57]}…"
    detail = ErrorDetail(
        reason="BAD_VALUE", row=number, field=column.name, expected=column.type, got=text
    )
    message = f"row {number}, column {column.name} {column.type}: {text} does not fit ({error})"
    return RowProblem(message, detail=detail)


def null_time(number: int, name: str) -> RowProblem:
    message = f"row {number}, column {name}: the event time can't be NULL"
    detail = ErrorDetail(reason="NULL_EVENT_TIME", row=number, field=name, got="NULL")
    return RowProblem(message, detail=detail)


def null_key(number: int, name: str) -> RowProblem:
    message = f"row {number}, column {name}: a column of the stream key can't be NULL"
    detail = ErrorDetail(reason="NULL_KEY", row=number, field=name, got="NULL")
    return RowProblem(message, detail=detail)


# ---- what a row may have beside its columns, if the stream has a key: its operation, "row",
# "delete" or "patch", and the id of the row that it expects to replace, -1 if it expects none

OP = "_op"
DELETE = "delete"
PATCH = "patch"
EXPECTED = "_expected"
NO_ROW = -1
BATCH_COLUMNS = (Column(OP, "TEXT"), Column(EXPECTED, "BIGINT"))
_BATCH_NAMES = frozenset(column.name for column in BATCH_COLUMNS)


def deletes(keys: Iterable[Row]) -> list[dict[str, Any]]:
    """Return rows that delete these stream keys."""
    return [{**key, OP: DELETE} for key in keys]


def patches(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return rows that set the columns which they have, and keep the others of their stream key."""
    return [{**row, OP: PATCH} for row in rows]


def required_columns(stream: Stream) -> set[str]:
    """Return the names of the columns that a delete must have."""
    return {*stream.key, *stream.event_time}


def complete_rows(rows: Sequence[Row], stream: Stream) -> tuple[Sequence[Row], tuple[Column, ...]]:
    """Return rows that have all columns of a table, and these: the stream's, and those of
    BATCH_COLUMNS that a row has.

    A delete may leave out the columns that it does not require. If there are patches, the table has
    the columns that the first of them has, and all of them must have the same. Raises RowProblem.
    """
    names = {column.name for column in stream.columns}
    # The usual case, without operations and conditions, needs no copies of the rows.
    if all(row.keys() == names for row in rows):
        return rows, stream.columns
    patch = next((row for row in rows if row.get(OP) == PATCH), None)
    defaults = {column.name: column.default for column in stream.columns if column.optional}
    if patch is not None:
        names = {name for name in patch if name not in _BATCH_NAMES}
        if not names <= {column.name for column in stream.columns} or not names >= {*stream.key}:
            raise _wrong_patch(rows.index(patch), patch, stream)
        defaults = {}
    unneeded = dict.fromkeys(names - required_columns(stream)) if stream.key else {}
    whole: list[Row] = []
    for number, row in enumerate(rows):
        filled = {**(unneeded if row.get(OP) == DELETE else {}), **defaults, **row}
        if filled.keys() - _BATCH_NAMES != names:
            raise wrong_fields(number, [name for name in row if name not in _BATCH_NAMES], names)
        whole.append(filled)
        if patch is not None and row.get(OP) not in (PATCH, DELETE):
            _check_beside_patch(number, row, stream)
    declared = (column for column in stream.columns if column.name in names)
    present = (column for column in BATCH_COLUMNS if any(column.name in row for row in rows))
    return whole, (*declared, *present)


def _check_beside_patch(number: int, row: Row, stream: Stream) -> None:
    """Raise RowProblem for a whole row of a batch whose patches do not set all columns."""
    required = {column.name for column in stream.columns if not column.optional}
    if not required <= row.keys():
        raise wrong_fields(number, [name for name in row if name not in _BATCH_NAMES], required)


def _wrong_patch(number: int, patch: Row, stream: Stream) -> RowProblem:
    fields = [name for name in patch if name not in _BATCH_NAMES]
    detail = ErrorDetail(
        reason="WRONG_COLUMNS",
        row=number,
        expected=f"{', '.join(stream.key)} and others of the stream",
        got=", ".join(map(str, fields)),
        hint="A patch has the columns of the stream key, and those that it sets.",
    )
    return RowProblem(
        f"row {number}: a patch without its key, or of unknown columns", detail=detail
    )


def has_patches(table: pa.Table) -> bool:
    """Return whether a row of a table is a patch."""
    if OP not in table.column_names or pa.types.is_null(table.column(OP).type):
        return False
    return bool(pc.any(pc.equal(table.column(OP), PATCH)).as_py())


def has_conditions(table: pa.Table) -> bool:
    """Return whether a row of a stream's table expects another one."""
    if EXPECTED not in table.column_names:
        return False
    expected = table.column(EXPECTED)
    return bool(expected.null_count < len(expected))


def _check_expected(table: pa.Table, stream: Stream) -> None:
    """Raise RowProblem for a condition that no stream, or not this one, can have."""
    if not has_conditions(table):
        return
    expected = table.column(EXPECTED)
    if not stream.key:
        number = expected.is_valid().index(True).as_py()
        message = f"row {number} has an {EXPECTED}, and stream {stream.name} has no key"
        detail = ErrorDetail(reason="EXPECTED_WITHOUT_KEY", row=number, field=EXPECTED)
        raise RowProblem(message, detail=detail)
    number = pc.less(expected, NO_ROW).index(True).as_py()
    if number >= 0:
        problem = ValueError("a row id is 0 or more, or -1 for none")
        raise bad_value(number, BATCH_COLUMNS[1], expected[number], problem)


def with_optional(table: pa.Table, stream: Stream) -> pa.Table:
    """Return the table with defaults for the optional columns that it leaves out, and with NULLs
    for those that a table of deletes may leave out."""
    if stream.key and has_patches(table):
        return table
    for column in stream.columns:
        if column.optional and column.name not in table.column_names:
            table = table.append_column(column.name, column.fill(table.num_rows))
    if OP not in table.column_names or not stream.key or not table.num_rows:
        return table
    ops = table.column(OP)
    if pa.types.is_null(ops.type) or not pc.all(pc.equal(ops, DELETE), skip_nulls=False).as_py():
        return table
    for column in stream.columns:
        if column.name not in table.column_names and column.name not in required_columns(stream):
            table = table.append_column(column.name, pa.nulls(table.num_rows, column.arrow))
    return table


# ---- dicts

_NONE = type(None)
# Types whose values pyarrow itself converts exactly or refuses.
_EXACT_TYPES: dict[str, frozenset[type]] = {
    "BOOLEAN": frozenset({bool, _NONE}),
    "BIGINT": frozenset({int, _NONE}),
    "DOUBLE": frozenset({float, int, _NONE}),
    "DECIMAL": frozenset({decimal.Decimal, int, _NONE}),
    "TEXT": frozenset({str, _NONE}),
    "TIMESTAMP": frozenset({datetime.datetime, _NONE}),
    "DATE": frozenset({datetime.date, _NONE}),
}
_BASES: dict[str, tuple[type, ...]] = {
    kind: tuple(types - {_NONE}) for kind, types in _EXACT_TYPES.items()
}
_PYTHON_TYPES = {
    "BOOLEAN": "bool",
    "BIGINT": "int",
    "DOUBLE": "float or int",
    "DECIMAL": "decimal.Decimal or int",
    "TEXT": "str",
    "TIMESTAMP": "datetime.datetime",
    "DATE": "datetime.date",
}
_CONVERSION_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError)


def from_dicts(rows: Sequence[Mapping[str, Any]], stream: Stream) -> pa.Table:
    """Return a table of dicts, with those of BATCH_COLUMNS that a row has."""
    rows, columns = complete_rows(rows, stream)
    arrays = [column_of([row.get(column.name) for row in rows], column) for column in columns]
    return pa.Table.from_arrays(arrays, schema=schema_of(columns))


def column_of(values: list[Any], column: Column) -> pa.Array:
    # The fast path converts the whole column. If it fails, the values are converted one by one, to
    # find the row that the error names.
    if set(map(type, values)) <= _EXACT_TYPES[column.kind]:
        try:
            return pa.array(values, column.arrow)
        except _CONVERSION_ERRORS:
            pass
    return pa.array(
        [_value(value, column, number) for number, value in enumerate(values)], column.arrow
    )


def _value(value: Any, column: Column, number: int) -> Any:
    """Return the value in a form that pyarrow takes for certain. Raises RowProblem."""
    if value is None:
        return None
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    try:
        if not isinstance(value, _BASES[column.kind]) or _is_lookalike(value, column.kind):
            python_type = _PYTHON_TYPES[column.kind]
            raise TypeError(f"{type(value).__name__} is not {column.type}; use {python_type}")
        if isinstance(value, datetime.datetime):
            value = utc(value)
        pa.array([value], column.arrow)
    except _CONVERSION_ERRORS as error:
        raise bad_value(number, column, value, error) from None
    return value


def _is_lookalike(value: Any, kind: str) -> bool:
    """Return whether a bool stands for an int, or a datetime for a date; Python takes both."""
    if isinstance(value, bool):
        return kind != "BOOLEAN"
    return kind == "DATE" and isinstance(value, datetime.datetime)


# ---- Arrow and pandas


def from_arrow(table: pa.Table, stream: Stream) -> pa.Table:
    """Return the table in the stream's types, with those of BATCH_COLUMNS that it has."""
    table = with_optional(table, stream)
    present = (column for column in BATCH_COLUMNS if column.name in table.column_names)
    columns = (*_declared(table, stream), *present)
    names = {column.name for column in columns}
    if len(table.column_names) != len(names) or set(table.column_names) != names:
        raise wrong_fields(-1, table.column_names, names)
    arrays = [_cast(_one_chunk(table.column(column.name)), column) for column in columns]
    return pa.Table.from_arrays(arrays, schema=schema_of(columns))


def _declared(table: pa.Table, stream: Stream) -> tuple[Column, ...]:
    """Return the columns that a table must have: with patches, those that it has. The server says
    which are missing for its other rows."""
    if not stream.key or not has_patches(table):
        return stream.columns
    present = {*table.column_names, *stream.key}
    return tuple(column for column in stream.columns if column.name in present)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _cast(array: pa.Array, column: Column) -> pa.Array:
    try:
        return column.cast(array)
    except TypeError as error:
        detail = ErrorDetail(
            reason="WRONG_TYPE", field=column.name, expected=column.type, got=str(array.type)
        )
        raise RowProblem(str(error), detail=detail) from None
    except ValueError as error:
        number = first_failure(array, column.cast)
        raise bad_value(number, column, array[number], error) from None


def is_pandas(rows: Any) -> bool:
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")


def pandas_table(frame: Any, stream: Stream) -> pa.Table:
    """Return a table of a DataFrame. NaN, NaT and None are NULL, and whole floats may be BIGINT."""
    kinds = {column.name: column for column in (*stream.columns, *BATCH_COLUMNS)}
    arrays = []
    for name in frame.columns:
        column = kinds.get(name)
        arrays.append(_pandas_column(frame[name], column))
    return pa.Table.from_arrays(arrays, names=[str(name) for name in frame.columns])


def _pandas_column(series: Any, column: Column | None) -> pa.Array:
    if column is None:
        return pa.nulls(len(series))  # an extra column: refused by name, whatever it holds
    if series.dtype == object:
        return column_of([None if _is_missing(value) else value for value in series], column)
    array = pa.array(series, from_pandas=True)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    # pandas makes floats of integers if some are missing.
    if column.kind == "BIGINT" and pa.types.is_floating(array.type):
        try:
            return array.cast(pa.int64(), safe=True)
        except pa.ArrowInvalid as error:
            number = first_failure(array, lambda part: part.cast(pa.int64(), safe=True))
            raise bad_value(number, column, array[number], error) from None
    return array


def _is_missing(value: Any) -> bool:
    """Return whether the value is None, NaN, NaT or pandas.NA, which is not even equal to
    itself.
    """
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and value != value
