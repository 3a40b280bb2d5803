"""The reader of data files: it verifies checksums, and names the file in errors.

The server, the engine and its workers read every data file through it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datastem.instants import FOR_EVER, SINCE_EVER
from datastem.schema import Column
from psoup.store.delta.checksums import footer_of, footer_size
from psoup.store.delta.files import DataFile
from psoup.store.errors import CorruptStore

T = TypeVar("T")

# Most footers are smaller than this, so that one read suffices.
_TAIL_BYTES = 1 << 16
_EVERYTHING = (SINCE_EVER, FOR_EVER)


def table_name(root: Path) -> str:
    """Return the name of a table in messages, given its folder."""
    within = root.parent.name
    return f"{within}/{root.name}" if within in ("stems", "joins") else root.name


NO_COLUMNS: Mapping[str, Column] = {}


def reader(root: Path, file: DataFile, optional: Mapping[str, Column] = NO_COLUMNS) -> DataReader:
    """Return the reader of a file of the table in folder `root`. A column of `optional` that the
    file lacks is read as its default."""
    return DataReader(root / file.path, file, f"{table_name(root)}/{file.path}", optional)


class DataFileGone(FileNotFoundError):
    """A data file is not there; `file` is its path in the store."""

    def __init__(self, file: str) -> None:
        super().__init__(f"{file} is gone")
        self.file = file


class DataReader:
    """The reader of one data file. It raises DataFileGone if the file does not exist, CorruptStore
    if it is damaged.

    `whole` and `check` verify the checksum of the file. The other methods verify that of the footer
    first, and that of each page they read.
    """

    def __init__(
        self, path: Path, file: DataFile, name: str, optional: Mapping[str, Column] = NO_COLUMNS
    ) -> None:
        self._path = path
        self._file = file
        self._name = name
        self._optional = optional

    def whole(self, dictionaries: Iterable[str] = ()) -> pa.Table:
        """Read all rows and columns; the columns in `dictionaries` come dictionary-encoded."""
        content = self._content()
        source, repeated = pa.BufferReader(content), list(dictionaries)
        return self._try(lambda: pq.ParquetFile(source, read_dictionary=repeated).read())

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read some columns of all rows, by default all columns."""
        return self._try(lambda: self._opened().read(columns=columns))

    def read_small(self, columns: Sequence[str]) -> pa.Table:
        """Read some columns that take few bytes, without reading ahead and without threads."""
        return self._try(
            lambda: self._opened(pre_buffer=False).read(columns=columns, use_threads=False)
        )

    def row_group(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        rows = self._try(lambda: self._opened().read_row_group(number, columns=columns))
        return rows if columns is None else self._complete(rows, columns)

    def row_groups(self, numbers: Sequence[int], columns: Sequence[str]) -> pa.Table:
        rows = self._try(lambda: self._opened().read_row_groups(numbers, columns=columns))
        return self._complete(rows, columns)

    def _complete(self, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return rows with the optional columns that were asked for and that the file lacks."""
        for name in columns:
            if name in self._optional and name not in rows.column_names:
                rows = rows.append_column(name, self._optional[name].fill(rows.num_rows))
        return rows

    def between(self, column: str, lo: int, hi: int, columns: Sequence[str]) -> pa.Table:
        """Read some columns of the rows whose value of an integer column is in `[lo, hi)`."""
        groups = row_groups(self.metadata, column, lo, hi)
        rows = self.row_groups(groups, [column, *columns])
        values = rows.column(column)
        inside = pc.and_(pc.greater_equal(values, lo), pc.less(values, hi))
        return rows.filter(inside).select(list(columns))

    def scattered_groups(self, numbers: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Read some columns of row groups that are small and far apart, without reading ahead and
        without threads."""
        return self._try(
            lambda: self._opened(pre_buffer=False).read_row_groups(
                numbers, columns=columns, use_threads=False
            )
        )

    @cached_property
    def metadata(self) -> Any:
        """The content of the footer, parsed from the very bytes that were checked."""
        footer = self._try(self._footer)
        return self._try(lambda: pq.read_metadata(pa.BufferReader(footer)))

    def check(self) -> None:
        """Raise CorruptStore unless the file's checksum is right."""
        self._content()

    def _content(self) -> bytes:
        content = self._try(self._path.read_bytes)
        if zlib.crc32(content) != self._file.checks.file:
            raise self._damaged("its checksum is wrong")
        return content

    def _opened(self, pre_buffer: bool = True) -> pq.ParquetFile:
        # The footer that was checked is passed on, so that Arrow does not read it again.
        options = {"metadata": self.metadata, "pre_buffer": pre_buffer}
        return pq.ParquetFile(self._path, page_checksum_verification=True, **options)

    def _footer(self) -> bytes:
        with self._path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != self._file.size:
                raise self._damaged(f"it has {size} bytes of {self._file.size}")
            tail = _last(file, size, _TAIL_BYTES)
            footer_bytes = footer_size(tail)
            if footer_bytes is not None and len(tail) < footer_bytes <= size:
                tail = _last(file, size, footer_bytes)
        footer = footer_of(memoryview(tail))
        if footer is None or zlib.crc32(footer) != self._file.checks.footer:
            raise self._damaged("the checksum of its footer is wrong")
        return bytes(footer)

    def _try(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except FileNotFoundError:
            raise DataFileGone(self._name) from None
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, problem: str) -> CorruptStore:
        return CorruptStore(f"{self._name} is damaged: {problem}", self._name)


def _last(file: Any, size: int, count: int) -> bytes:
    count = min(count, size)
    file.seek(size - count)
    return bytes(file.read(count))


def row_groups(metadata: Any, column: str, lo: int, hi: int) -> list[int]:
    """Return the row groups that may have a value of an integer column in `[lo, hi)`."""
    return [
        group
        for group in range(metadata.num_row_groups)
        if (bounds := group_bounds(metadata, group, column))[0] < hi and bounds[1] >= lo
    ]


def group_bounds(metadata: Any, group: int, column: str) -> tuple[int, int]:
    """Return the least and greatest value of an integer or instant column in a row group;
    everything if the file has no statistics."""
    place = metadata.schema.names.index(column)
    statistics = metadata.row_group(group).column(place).statistics
    if statistics is None or not statistics.has_min_max:
        return _EVERYTHING
    return int(statistics.min_raw), int(statistics.max_raw)


def group_range(metadata: Any, group: int, column: str) -> tuple[int, int]:
    """Return `group_bounds` as a range `[lo, hi)`."""
    low, high = group_bounds(metadata, group, column)
    return low, min(high + 1, FOR_EVER)


def single_batch(table: pa.Table) -> pa.RecordBatch:
    """Return all rows of a table in one batch, which has the table's schema if there are none."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
