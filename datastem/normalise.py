"""One column as sent → the declared type, with zeros under NULLs; or a RowError with its row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Array
from datastem.convert import convert, first_failure, is_text, wrong_type
from datastem.errors import RowError
from datastem.schema import Column
from datastem.types import Kind


def normalise(sent: pa.ChunkedArray, column: Column, value_bytes: int, total: int) -> pa.Array:
    """`value_bytes` bounds one TEXT, `total` all of the column's TEXT together."""
    _check_valid(sent, column)
    if pa.types.is_null(sent.type):
        return pa.nulls(len(sent), column.type.arrow)
    if column.type.kind is Kind.TEXT:
        _check_lengths(sent, column, value_bytes, total)
    if pa.types.is_dictionary(sent.type):
        sent = sent.cast(sent.type.value_type)
    values = _single(sent)
    nulls = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    result = convert(values, column)
    return result if nulls is None else _masked(result, nulls)


def _single(sent: pa.ChunkedArray) -> pa.Array:
    if sent.num_chunks == 1:
        return sent.chunk(0)
    return pa.concat_arrays(sent.chunks) if sent.num_chunks else pa.array([], sent.type)


def _masked(values: pa.Array, nulls: Array) -> pa.Array:
    """The same buffers with another validity; `values` has zeros wherever it says NULL."""
    if values.offset:
        values = values.take(pa.array(np.arange(len(values))))
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(values.type, len(values), [validity, *values.buffers()[1:]])


# ---- checks


def _check_valid(sent: pa.ChunkedArray, column: Column) -> None:
    try:
        sent.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            message = f"column {column.name} is not a valid Arrow array: {error}"
            raise RowError("MALFORMED_ARROW", message, field=column.name) from error
        row = _first_invalid(sent)
        raise RowError(
            "INVALID_UTF8",
            f"column {column.name}, row {row}: text that is not valid UTF-8",
            row=row,
            field=column.name,
            expected="UTF-8",
            hint="encode text as UTF-8 before it is sent",
        ) from error


def _first_invalid(sent: pa.ChunkedArray) -> int:
    """The first row that is not valid, or -1 where only a dictionary is that no row refers to.

    A dictionary is not expanded: a few bytes of it may stand for any number of rows.
    """
    before = 0
    for chunk in sent.chunks:
        values = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
        try:
            values.validate(full=True)
        except pa.ArrowInvalid:
            place = first_failure(values, lambda part: part.validate(full=True))
            if values is chunk:
                return before + place
            found = pc.index(chunk.indices, pa.scalar(place, chunk.indices.type)).as_py()
            return -1 if found < 0 else before + int(found)
        before += len(chunk)
    return -1


def _check_lengths(sent: pa.ChunkedArray, column: Column, value_bytes: int, total: int) -> None:
    row, size = 0, 0
    for chunk in sent.chunks:
        lengths = _lengths(chunk, column)
        long = np.flatnonzero(lengths > value_bytes)
        if len(long):
            got = int(lengths[long[0]])
            raise RowError(
                "VALUE_TOO_LONG",
                f"column {column.name}, row {row + long[0]}: a text of {got:,} bytes; "
                f"at most {value_bytes:,} are taken",
                row=row + int(long[0]),
                field=column.name,
                expected=f"at most {value_bytes} bytes",
                got=f"{got} bytes",
            )
        row, size = row + len(chunk), size + int(lengths.sum())
    if size > total:
        raise RowError(
            "BATCH_TOO_LARGE",
            f"column {column.name} holds {size:,} bytes of text; at most {total:,} are taken",
            field=column.name,
            expected=f"at most {total} bytes",
            got=f"{size} bytes",
            hint="send it in several batches",
        )


def _lengths(chunk: pa.Array, column: Column) -> Array:
    """Bytes of each text, 0 for NULL, without expanding a dictionary or a view."""
    if pa.types.is_dictionary(chunk.type):
        if not len(chunk.dictionary):
            return np.zeros(len(chunk), dtype=np.int64)
        indices = chunk.indices.fill_null(0).cast(pa.int64()).to_numpy()
        lengths: Array = _lengths(chunk.dictionary, column)[indices]
        lengths[chunk.indices.is_null().to_numpy(zero_copy_only=False)] = 0
        return lengths
    if not is_text(chunk.type):
        raise wrong_type(chunk.type, column)
    if chunk.type == pa.string_view():
        views = np.frombuffer(chunk.buffers()[1] or b"", np.int32).reshape(-1, 4)
        lengths = views[chunk.offset : chunk.offset + len(chunk), 0].astype(np.int64)
        lengths[chunk.is_null().to_numpy(zero_copy_only=False)] = 0
        return lengths
    counted = pc.binary_length(chunk).cast(pa.int64()).fill_null(0)
    return np.array(counted.to_numpy(zero_copy_only=False))
