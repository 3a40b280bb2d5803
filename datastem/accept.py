"""The check of a batch that a publisher sent: it becomes a batch of the stream, or is refused with
a reason.

A column may arrive in any Arrow type that holds the declared one without loss:

- BOOLEAN from bool; TEXT from any string type, plain or dictionary-encoded;
- BIGINT from any integer that fits;
- DOUBLE from any float, and from integers that a double holds exactly;
- DECIMAL from any decimal or integer whose digits all fit;
- TIMESTAMP from any timestamp (without a zone it is UTC) that is whole microseconds;
- DATE from date32, and from date64 of whole days.

Everything else is refused, as are missing, extra and repeated columns. For some time a batch may
use the former name of a column, and bring a column that was dropped, which is left out. A column
that ALTER STREAM added may be missing. It is left out of the batch if every row has its default, so
that the batch is the same whether it was sent before or after the column was added. NaN and the
infinities are values; every NaN is stored as the same one; -0.0 stays as it is.

A batch may have a text column `_op`: `row`, `delete` or `patch` for each row. A batch of deletes
alone needs only the stream key's columns and the event time. Patches need those of the stream key
alone; the columns that a batch with patches lacks are completed later, by `datastem.patches`.

A batch for a stream with a key may have a BIGINT column `_expected`: the id of the row of its
stream key that an edit knows as the current one, or -1 if it knows none. NULL is no condition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int8s
from datastem.convert import normalise
from datastem.equality import batch_digest, key_digests
from datastem.errors import RowError
from datastem.instants import format_instant
from datastem.schema import (
    BATCH_COLUMNS,
    EXPECTED,
    NO_ROW,
    OP,
    OP_DELETE,
    OP_PATCH,
    OP_ROW,
    Column,
    StreamSchema,
)
from datastem.types import BIGINT, TEXT


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch may hold.

    `batch_bytes` counts the batch as it is stored, which encodings such as dictionaries may make
    much larger than what was sent.
    """

    rows: int = 1_000_000
    value_bytes: int = 1 << 20
    batch_bytes: int = 64 << 20
    # Patches, and rows with an `_expected`: each is compared with others while commits wait.
    expected_rows: int = 100_000


@dataclass(frozen=True, slots=True)
class Accepted:
    """A batch with the columns and types of `schema.payload`, without optional columns that hold
    only their default; its least and greatest ts, and two digests.

    `min_ts` and `max_ts` are None if ts is the stamp of arrival, or if there are no rows. A digest
    depends on the stream's name, the operations and the values alone: not on chunks, the order of
    columns, dictionaries, or what lies under a NULL. `digest` is that of the batch, which shows
    whether it is intact. `request_digest` is that of what was sent, which shows whether a publisher
    repeats a request; it has columns that were dropped since, and none that has only NULL unless
    the batch has patches. `expected` is the column `_expected`, None if it is missing or has only
    NULL, which is the same.

    If it `has_patches`, the batch is not one to store yet: it has only the columns that were sent,
    and the operation OP_PATCH. Its `digest` is empty then.
    """

    batch: pa.RecordBatch
    min_ts: int | None
    max_ts: int | None
    digest: bytes
    request_digest: bytes
    expected: pa.Array | None = None
    has_patches: bool = False


# Columns as they were sent, each with the name that never changes.
_Dropped: TypeAlias = list[tuple[Column, str, pa.ChunkedArray]]


def accept(sent: pa.Table, schema: StreamSchema, clock: int, limits: Limits) -> Accepted:
    """Return the batch to store for what a publisher `sent`; raise RowError if it is refused.

    `clock` is the server's clock in microseconds, from which AHEAD counts.
    """
    if sent.num_rows > limits.rows:
        raise RowError(
            "BATCH_TOO_LARGE",
            f"a batch of {sent.num_rows:,} rows; at most {limits.rows:,} are taken",
            expected=f"at most {limits.rows} rows",
            got=f"{sent.num_rows} rows",
            hint="send it in several batches",
        )
    # Repeated names are refused first: a look-up of a column by name needs distinct ones.
    _check_twice(sent.schema.names, schema)
    # Columns are checked by their labels, which errors name, and stored by their names.
    stream, schema = schema, schema.labelled
    sent, dropped = _present(sent, stream, clock)
    ops = _read_operations(sent, schema)
    # The operations are read before the names: a batch of deletes alone needs fewer columns.
    _check_names(sent.schema.names, schema, _needed(schema, ops))
    has_patches = bool((ops == OP_PATCH).any())
    columns: dict[str, pa.Array] = {}
    # Each column gets the bytes that earlier ones left. TEXT is compared with them before it is
    # expanded, so that a small dictionary cannot fill the memory.
    remaining_bytes = limits.batch_bytes
    for column in schema.columns:
        if has_patches and column.name not in sent.schema.names:
            continue
        values = columns[column.name] = _column(sent, column, limits.value_bytes, remaining_bytes)
        remaining_bytes = max(0, remaining_bytes - values.nbytes)
    if schema.key:
        columns[OP] = pa.array(ops)
    # A patch sets the columns that were sent, also to the default: none is left out.
    batch = as_sent(columns, schema) if has_patches else stored_batch(columns, schema, limits)
    _check_keys(batch, schema)
    if has_patches:
        _check_patches(batch, schema, ops, limits)
    low, high = event_times(batch, schema, clock)
    if not has_patches:
        check_validity(batch, schema)
    batch = batch.rename_columns([stream.labels.get(name, name) for name in batch.schema.names])
    more = _dropped_columns(dropped, has_patches, limits, remaining_bytes)
    if (expected := _read_expected(sent, schema, limits)) is not None:
        more[EXPECTED] = expected
    request = batch if has_patches else _without_nulls(batch, stream)
    for name, values in more.items():
        request = request.append_column(name, values)
    request_digest = batch_digest(schema.name, request)
    digest = request_digest if request is batch else batch_digest(schema.name, batch)
    if has_patches:
        digest = b""
    return Accepted(batch, low, high, digest, request_digest, expected, has_patches)


def _present(sent: pa.Table, stream: StreamSchema, clock: int) -> tuple[pa.Table, _Dropped]:
    """Return a batch with the present labels of its columns, and the columns that it has of those
    that were dropped, named as they were sent. Raise RowError for a column under two labels."""
    if not stream.has_former_labels:
        return sent, []
    accepted, names = stream.accepted_labels(clock), sent.schema.names
    live, labels = set(stream.labels.values()), stream.labels
    columns, dropped = {}, []
    first: dict[str, str] = {}
    for name in names:
        column = accepted.get(name)
        if column is None:
            columns[name] = sent.column(name)
            continue
        if (other := first.setdefault(column.name, name)) != name:
            raise _name_error(
                "DUPLICATE_COLUMN",
                f"{_shorten(other)} and {_shorten(name)} are names of one column: "
                f"{stream.renaming(other if other not in labels else name)}",
                _shorten(name),
                _column_list(stream.labelled),
            )
        if column.name in live:
            columns[column.label] = sent.column(name)
        else:
            dropped.append((replace(column, name=name), column.name, sent.column(name)))
    table = pa.Table.from_arrays(list(columns.values()), names=list(columns))
    return table, dropped


def _dropped_columns(
    dropped: _Dropped, has_patches: bool, limits: Limits, remaining_bytes: int
) -> dict[str, pa.Array]:
    """Return what a batch has of columns that were dropped since, by name, as it would be stored.
    Raise RowError for values of another type."""
    columns = {}
    for column, name, sent in dropped:
        values = normalise(sent, column, limits.value_bytes, remaining_bytes)
        remaining_bytes = max(0, remaining_bytes - values.nbytes)
        only_null = values.null_count == len(values)
        left_out = column.is_default(values) if column.is_optional else only_null
        if has_patches or not left_out:
            columns[name] = values
    return columns


def _without_nulls(batch: pa.RecordBatch, schema: StreamSchema) -> pa.RecordBatch:
    """Return a batch without columns of CREATE STREAM that have only NULL: so it is the same after
    such a column was dropped, as in a batch of deletes that never had it."""
    empty = {
        name
        for name, values in zip(batch.schema.names, batch.columns, strict=True)
        if values.null_count == batch.num_rows and name not in schema.optional
    }
    return batch.drop_columns(list(empty)) if empty and batch.num_rows else batch


def stored_batch(
    columns: dict[str, pa.Array], schema: StreamSchema, limits: Limits
) -> pa.RecordBatch:
    """Return the batch to store of all columns, without optional ones that hold only their default.
    Raise RowError if it is too large."""
    # The columns were only checked for the bytes of TEXT. This also counts other types, offsets and
    # validity, and optional columns that were not sent: readers will have their values.
    check_bytes(sum(values.nbytes for values in columns.values()), limits)
    default_only = {
        column.name
        for column in schema.optional.values()
        if column.is_default(columns[column.name])
    }
    return as_sent(
        {name: values for name, values in columns.items() if name not in default_only}, schema
    )


def check_bytes(nbytes: int, limits: Limits) -> None:
    """Raise RowError if a batch would take more bytes than are accepted."""
    if nbytes > limits.batch_bytes:
        raise RowError(
            "BATCH_TOO_LARGE",
            f"a batch of {nbytes:,} bytes; at most {limits.batch_bytes:,} are taken",
            expected=f"at most {limits.batch_bytes} bytes",
            got=f"{nbytes} bytes",
            hint="send it in several batches",
        )


def as_sent(columns: dict[str, pa.Array], schema: StreamSchema) -> pa.RecordBatch:
    """Return a batch of some columns, in the order of the stream's."""
    stored = schema.payload
    if len(columns) < len(stored):
        stored = pa.schema([field for field in stored if field.name in columns])
    return pa.RecordBatch.from_arrays([columns[name] for name in stored.names], schema=stored)


def check_ahead(ts: int, schema: StreamSchema, clock: int, row: int = -1) -> None:
    """Raise RowError if `ts` is further past the `clock` than the stream allows."""
    limit = clock + schema.ahead
    if ts > limit:
        raise RowError(
            "TOO_FAR_AHEAD",
            f"ts {format_instant(ts)} is more than AHEAD past the clock of the server",
            row=row,
            field=schema.ordered_by or "",
            expected=f"at most {format_instant(limit)}",
            got=format_instant(ts),
            hint="check the publisher's clock, or create the stream with a larger AHEAD",
        )


def _column(sent: pa.Table, column: Column, value_bytes: int, total: int) -> pa.Array:
    if column.name not in sent.schema.names:
        return column.fill(sent.num_rows)
    return normalise(sent.column(column.name), column, value_bytes, total)


def _needed(schema: StreamSchema, ops: Int8s) -> list[str]:
    """Return the columns that must be sent: those of CREATE STREAM for rows, the stream key and the
    event time for deletes, and the stream key for patches."""
    declared = [column.name for column in schema.columns if not column.is_optional]
    if not len(ops) or (ops == OP_ROW).any():
        return declared
    ends = (ops == OP_DELETE).any()
    needed = (*schema.key, schema.ordered_by) if ends else schema.key
    return [name for name in declared if name in needed]


def _check_twice(names: list[str], schema: StreamSchema) -> None:
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        message = f"column {_shorten(twice)} was sent twice"
        raise _name_error("DUPLICATE_COLUMN", message, _shorten(twice), _column_list(schema))


def _check_names(names: list[str], schema: StreamSchema, needed: list[str]) -> None:
    for name in needed:
        if name not in names:
            message = f"column {name} of stream {schema.name} is missing"
            raise _name_error("MISSING_COLUMN", message, name, _column_list(schema))
    declared = [column.name for column in (*BATCH_COLUMNS, *schema.columns)]
    for name in names:
        if name not in declared:
            message = f"stream {schema.name} has no column {_shorten(name)}"
            raise _name_error("EXTRA_COLUMN", message, _shorten(name), _column_list(schema))


def _column_list(schema: StreamSchema) -> str:
    return f"the columns {', '.join(column.name for column in schema.columns)}"


def _name_error(reason: str, message: str, field: str, expected: str) -> RowError:
    return RowError(
        reason, message, field=field, expected=expected, hint=f"send exactly {expected}"
    )


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "…"


def event_times(
    batch: pa.RecordBatch, schema: StreamSchema, clock: int
) -> tuple[int | None, int | None]:
    """Return the least and the greatest event time of a batch; None if it has none. Raise RowError
    for NULL, and for one too far ahead of the `clock`."""
    if schema.ts_is_stamp or schema.ordered_by not in batch.schema.names:
        return None, None
    name = schema.event_time
    column = batch.column(name)
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise RowError(
            "NULL_EVENT_TIME",
            f"{name} is the event time of stream {schema.name} and may not be NULL",
            row=row,
            field=name,
            expected="a TIMESTAMP",
            got="NULL",
        )
    if not batch.num_rows:
        return None, None
    ts = column.view(pa.int64()).to_numpy()
    # The greatest ts alone decides: if it is not too far ahead, no other is.
    late = int(ts.argmax())
    check_ahead(int(ts[late]), schema, clock, late)
    return int(ts.min()), int(ts[late])


def check_validity(batch: pa.RecordBatch, schema: StreamSchema) -> None:
    """Raise RowError if a row of a batch that has all its values is never valid. Deletes may have
    any."""
    validity = schema.validity
    names = batch.schema.names
    if validity is None or validity.starts not in names or validity.ends not in names:
        return
    starts, ends = batch.column(validity.starts), batch.column(validity.ends)
    is_row = np.ones(batch.num_rows, np.bool_)
    if schema.key:
        is_row = batch.column(OP).to_numpy() != OP_DELETE
    without = is_row & starts.is_null().to_numpy(zero_copy_only=False)
    if without.any():
        raise RowError(
            "NULL_START",
            f"rows of stream {schema.name} are valid from {validity.starts}, which may not be NULL",
            row=int(without.argmax()),
            field=validity.starts,
            expected="a TIMESTAMP",
            got="NULL",
        )
    empty = is_row & pc.less_equal(ends, starts).fill_null(False).to_numpy(zero_copy_only=False)
    if empty.any():
        row = int(empty.argmax())
        start, end = (
            format_instant(times.view(pa.int64())[row].as_py()) for times in (starts, ends)
        )
        raise RowError(
            "NEVER_VALID",
            f"row {row} would be valid from {start} until {end}, which is never",
            row=row,
            field=validity.ends,
            expected=f"an instant after {start}, or NULL for ever",
            got=end,
            hint=f"{validity.ends} is the first instant at which the row is not valid any more",
        )


_OPERATIONS = {"row": OP_ROW, "delete": OP_DELETE, "patch": OP_PATCH}
_OP_BYTES = 1 << 20


def _read_operations(sent: pa.Table, schema: StreamSchema) -> Int8s:
    """Return the operation of each row, from the column `_op`; `row` for NULL, and without the
    column.

    Raise RowError for any other text, and for a delete or patch if the stream has no key.
    """
    if OP not in sent.schema.names:
        return np.full(sent.num_rows, OP_ROW, np.int8)
    # A valid text has at most 6 bytes. The other bytes are room for a bad one, which the error
    # below then quotes with its row.
    total = _OP_BYTES + 16 * sent.num_rows
    texts = normalise(sent.column(OP), Column(OP, TEXT), _OP_BYTES, total).fill_null("row")
    # The place of a text in the value set is its operation.
    codes = pc.index_in(texts, value_set=pa.array(_OPERATIONS)).fill_null(-1)
    ops: Int8s = codes.to_numpy(zero_copy_only=False).astype(np.int8)
    if len(bad := np.flatnonzero(ops < 0)):
        row, got = int(bad[0]), str(texts[int(bad[0])].as_py())[:80]
        raise RowError(
            "BAD_OPERATION",
            f"row {row}: {got!r} is not an operation",
            row=row,
            field=OP,
            expected="row, delete or patch",
            got=got,
            hint="leave _op out, or send row, delete or patch",
        )
    if not schema.key and ops.any():
        raise _without_key(schema, int(np.flatnonzero(ops)[0]), bool(ops[ops > 0][0] == OP_PATCH))
    return ops


def _without_key(schema: StreamSchema, row: int, is_patch: bool) -> RowError:
    got, verb = ("patch", "patch rows of") if is_patch else ("delete", "delete from")
    return RowError(
        f"{got.upper()}_WITHOUT_KEY",
        f"row {row} is a {got}, and stream {schema.name} has no key",
        row=row,
        field=OP,
        expected="row",
        got=got,
        hint=f"rows leave this stream by RETAIN; create one with KEY (column) to {verb}",
    )


def _check_patches(batch: pa.RecordBatch, schema: StreamSchema, ops: Int8s, limits: Limits) -> None:
    """Raise RowError for too many patches, and for one of a key that an earlier row of the batch
    sets or deletes: which row it would patch is not in the store yet."""
    is_patch = ops == OP_PATCH
    if (patches := int(is_patch.sum())) > limits.expected_rows:
        raise RowError(
            "BATCH_TOO_LARGE",
            f"{patches:,} patches; at most {limits.expected_rows:,} are taken",
            field=OP,
            expected=f"at most {limits.expected_rows} patches",
            got=f"{patches} patches",
            hint="send it in several batches",
        )
    if is_patch.all():
        return
    keys = key_digests([batch.column(name) for name in schema.key])
    _, index = np.unique(keys, return_inverse=True)
    places = np.arange(len(keys))
    # By key: the place of the first row that is no patch.
    first = np.full(len(keys), len(keys))
    np.minimum.at(first, index[~is_patch], places[~is_patch])
    late = np.flatnonzero(is_patch & (first[index] < places))
    if len(late):
        row = int(late[0])
        raise RowError(
            "BAD_OPERATION",
            f"row {row} patches a key that row {int(first[index[row]])} of the batch sets",
            row=row,
            field=OP,
            expected="patches before other rows of their keys",
            got="patch",
            hint="send it in a later batch",
        )


def _read_expected(sent: pa.Table, schema: StreamSchema, limits: Limits) -> pa.Array | None:
    """Return the column `_expected`; None if no row has a condition.

    Raise RowError for what is no row id, for a stream without a key, and for too many conditions.
    """
    if EXPECTED not in sent.schema.names:
        return None
    expected = normalise(sent.column(EXPECTED), Column(EXPECTED, BIGINT), 0, 0)
    conditions = len(expected) - expected.null_count
    if not conditions:
        return None
    if not schema.key:
        row = int(np.flatnonzero(expected.is_valid().to_numpy(zero_copy_only=False))[0])
        raise RowError(
            "EXPECTED_WITHOUT_KEY",
            f"row {row} has an {EXPECTED}, and stream {schema.name} has no key",
            row=row,
            field=EXPECTED,
            expected="NULL",
            got=str(expected[row].as_py()),
            hint="no row of this stream replaces another; create one with KEY (column) to edit",
        )
    below = np.flatnonzero(expected.fill_null(NO_ROW).to_numpy() < NO_ROW)
    if len(below):
        row = int(below[0])
        raise RowError(
            "OUT_OF_RANGE",
            f"row {row}: {expected[row].as_py()} is no row id",
            row=row,
            field=EXPECTED,
            expected="a row id, -1 for none, or NULL for no condition",
            got=str(expected[row].as_py()),
        )
    if conditions > limits.expected_rows:
        raise RowError(
            "BATCH_TOO_LARGE",
            f"{conditions:,} rows with {EXPECTED}; at most {limits.expected_rows:,} are taken",
            field=EXPECTED,
            expected=f"at most {limits.expected_rows} rows with {EXPECTED}",
            got=f"{conditions} rows",
            hint="send it in several batches",
        )
    return expected


def _check_keys(batch: pa.RecordBatch, schema: StreamSchema) -> None:
    """Raise RowError if a column of the stream key is NULL."""
    for name in schema.key:
        column = batch.column(name)
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise RowError(
                "NULL_KEY",
                f"row {row}: {name} is in the key of stream {schema.name} and may not be NULL",
                row=row,
                field=name,
                expected=str(schema.types[name]),
                got="NULL",
                hint="a row replaces the earlier one with the same key, so every row needs one",
            )
