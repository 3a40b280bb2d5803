"""The readers of Parquet and of Arrow IPC: each column is cast to the type of the stream's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from client_sdk import Column, Stream
from psoup.formats.convert import Converted, convert
from psoup.source.errors import BadInput
from psoup.source.readers.chunk import (
    BATCH_COLUMNS,
    FileChunk,
    Options,
    ReportPosition,
    build,
    column_map,
)

CHUNK_ROWS = 65_536
_FILE_MAGIC = b"ARROW1"


def read_parquet(
    source: Any, size: int, stream: Stream, options: Options, report_position: ReportPosition
) -> Iterator[FileChunk]:
    """Yield the chunks of a Parquet file. Raises BadInput if a column's type can't be cast."""
    try:
        with pa.parquet.ParquetFile(source) as file:
            columns = _columns(file.schema_arrow, stream, options)
            total, first = file.metadata.num_rows, 0
            for batch in file.iter_batches(CHUNK_ROWS, columns=list(columns.values())):
                yield arrow_chunk(batch, columns, stream, first, options.lenient)
                first += batch.num_rows
                # Columns are read from several places, so progress is the share of rows, in bytes
                # of the file.
                report_position(size * first // max(1, total))
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(f"can't be read as Parquet: {error}") from None


def read_arrow(
    source: Any, stream: Stream, options: Options, report_position: ReportPosition
) -> Iterator[FileChunk]:
    """Yield the chunks of an Arrow IPC stream, as it arrives, or of an IPC file."""
    try:
        with _open_arrow(source) as reader:
            columns = _columns(reader.schema, stream, options)
            first = 0
            for batch in _batches(reader):
                for start in range(0, batch.num_rows, CHUNK_ROWS):
                    piece = batch.slice(start, CHUNK_ROWS)
                    yield arrow_chunk(piece, columns, stream, first, options.lenient)
                    first += piece.num_rows
                report_position(source.tell())
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError) as error:
        raise BadInput(f"can't be read as Arrow: {error}") from None


def _open_arrow(source: Any) -> Any:
    if source.seekable():
        magic = source.read(len(_FILE_MAGIC))
        source.seek(0)
        if magic == _FILE_MAGIC:
            return pa.ipc.open_file(source)
    return pa.ipc.open_stream(source)


def _batches(reader: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.RecordBatchFileReader):
        return (reader.get_batch(place) for place in range(reader.num_record_batches))
    return iter(reader)


def arrow_chunk(
    batch: pa.RecordBatch, columns: dict[str, str], stream: Stream, first: int, lenient: bool
) -> FileChunk:
    """Return a batch as a chunk, whose first row is row `first` of the input, from 0."""
    arrays = {name: batch.column(file_column) for name, file_column in columns.items()}
    return build(stream, arrays, _convert, lambda index: first + index + 1, lenient=lenient)


def _columns(schema: pa.Schema, stream: Stream, options: Options) -> dict[str, str]:
    columns = column_map(schema.names, stream, options)
    check_types(schema, stream, columns)
    return columns


def _convert(array: pa.Array, column: Column) -> Converted:
    return convert(array, column.cast, f"is not {column.type}")


def check_types(schema: pa.Schema, stream: Stream, columns: dict[str, str]) -> None:
    """Raise BadInput if the type of a column can't go into the stream's."""
    for column in (*stream.columns, *BATCH_COLUMNS):
        if column.name not in columns:
            continue
        type_ = schema.field(columns[column.name]).type
        try:
            column.cast(pa.nulls(0, type_))
        except TypeError as error:
            raise BadInput(f"{error}; change the file's column, or the stream") from None
