"""The reader of Parquet: each column is cast to the type of the stream's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from client_sdk import Column, Stream
from psoup.cli.problems import fail
from psoup.cli.readers.chunk import (
    BATCH_COLUMNS,
    FileChunk,
    Options,
    ReportPosition,
    build,
    column_map,
)
from psoup.formats.convert import Converted, convert

CHUNK_ROWS = 65_536


def read_parquet(
    path: Path, stream: Stream, options: Options, report_position: ReportPosition
) -> Iterator[FileChunk]:
    """Yield the chunks of a Parquet file; fail if a column's type can't be cast."""
    try:
        file = pa.parquet.ParquetFile(path)
    except pa.ArrowInvalid as error:
        fail(f"{path.name} can't be read as Parquet: {error}")
    with file:
        columns = column_map(file.schema_arrow.names, stream, options)
        _check_types(file.schema_arrow, stream, columns)
        total, size, first = file.metadata.num_rows, path.stat().st_size, 0
        for batch in file.iter_batches(CHUNK_ROWS, columns=list(columns.values())):
            arrays = {name: batch.column(file_column) for name, file_column in columns.items()}
            start = first
            yield build(
                stream,
                arrays,
                _convert,
                lambda index, start=start: start + index + 1,  # type: ignore[misc]
            )
            first += batch.num_rows
            # Columns are read from several places, so progress is the share of rows, in bytes of
            # the file.
            report_position(size * first // max(1, total))


def _convert(array: pa.Array, column: Column) -> Converted:
    return convert(array, column.cast, f"is not {column.type}")


def _check_types(schema: pa.Schema, stream: Stream, columns: dict[str, str]) -> None:
    for column in (*stream.columns, *BATCH_COLUMNS):
        if column.name not in columns:
            continue
        type_ = schema.field(columns[column.name]).type
        try:
            column.cast(pa.nulls(0, type_))
        except TypeError as error:
            fail(f"{error}; change the file's column, or the stream")
