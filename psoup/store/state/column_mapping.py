"""A mapping whose values are rows of columns; an object is made when a value is read.

It behaves like a dict, except for the order: a value that replaces another goes to the end. Removed
rows are marked, and compacted away when they outnumber the live ones.

Thread safety: none; no other thread may read while one changes it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from psoup.store.state.columns import GrowingColumn, NumberColumn
from psoup.store.state.hash_index import HashIndex

K = TypeVar("K")
V = TypeVar("V")

_COMPACT_FROM_ROWS = 1024
# Values that were read are cached, because they are often read again.
_MAX_CACHED_VALUES = 4096


class ColumnMapping(MutableMapping[K, V]):
    """A mapping over columns. A subclass defines the columns, which one is the key, and the
    indexes."""

    def __init__(self, columns: Mapping[str, GrowingColumn]) -> None:
        self._columns = dict(columns)
        self._alive = NumberColumn(np.bool_)
        self._live = 0
        self._cache: dict[K, V] = {}
        self._reindex()

    # ---- for the subclass

    @abstractmethod
    def _row_of(self, key: K) -> int:
        """Return the row of a key; -1 for an unknown key."""

    @abstractmethod
    def _key_at(self, row: int) -> K: ...

    @abstractmethod
    def _value_at(self, row: int) -> V: ...

    @abstractmethod
    def _parts(self, value: V) -> tuple[Any, ...]:
        """Return a value's parts, in the order of the columns."""

    @abstractmethod
    def _hashes_at(self, row: int) -> Iterator[tuple[HashIndex, int]]:
        """Yield the indexes that a row is in, and its hash in each."""

    @abstractmethod
    def _index_all(self, begin: int, end: int) -> None:
        """Put the rows [begin, end) into the indexes."""

    @abstractmethod
    def _clear_indexes(self) -> list[HashIndex]:
        """Replace all indexes by empty ones, and return these."""

    # ---- a mapping

    def __len__(self) -> int:
        return self._live

    def __contains__(self, key: object) -> bool:
        return key in self._cache or self._row_of(key) >= 0  # type: ignore[arg-type]

    def __getitem__(self, key: K) -> V:
        value = self._cache.get(key)
        if value is None:
            row = self._row_of(key)
            if row < 0:
                raise KeyError(key)
            value = self._value_at(row)
            if len(self._cache) >= _MAX_CACHED_VALUES:
                self._cache.clear()
            self._cache[key] = value
        return value

    def __setitem__(self, key: K, value: V) -> None:
        row = self._row_of(key)
        if row >= 0:
            self._remove(row)
        for column, part in zip(self._columns.values(), self._parts(value), strict=True):
            column.append(part)
        self._alive.append(True)
        self._live += 1
        row = len(self._alive) - 1
        for index, hash_ in self._hashes_at(row):
            index.insert(hash_, row)

    def __delitem__(self, key: K) -> None:
        row = self._row_of(key)
        if row < 0:
            raise KeyError(key)
        self._remove(row)

    def __iter__(self) -> Iterator[K]:
        return (self._key_at(row) for row in self.rows().tolist())

    # ---- many at once

    @property
    def nbytes(self) -> int:
        indexes = sum(index.nbytes for index in self._indexes)
        return sum(column.nbytes for column in self._columns.values()) + indexes

    def rows(self) -> Int64s:
        """Return the numbers of the live rows, valid until the next change."""
        return np.flatnonzero(self._alive.values)

    def extend(self, table: pa.Table) -> None:
        """Add the rows of a table that has at least these columns. Their keys must be new and
        distinct."""
        begin = len(self._alive)
        for name, column in self._columns.items():
            column.extend(table.column(name))
        self._alive.extend(np.ones(table.num_rows, np.bool_))
        self._live += table.num_rows
        self._index_all(begin, len(self._alive))

    def take(self, rows: Int64s, names: Iterable[str] | None = None) -> pa.Table:
        """Return some rows as a table: all columns, or those of the names."""
        chosen = self._columns if names is None else names
        return pa.table({name: self._columns[name].take(rows) for name in chosen})

    # ---- removed rows

    def _remove(self, row: int) -> None:
        self._cache.pop(self._key_at(row), None)
        for index, hash_ in self._hashes_at(row):
            index.remove(hash_, row)
        self._alive.values[row] = False
        self._live -= 1
        dead = len(self._alive) - self._live
        # A compaction costs as much as the live rows, so it waits for as many removals.
        if dead > _COMPACT_FROM_ROWS and dead > self._live:
            self._compact()

    def _compact(self) -> None:
        rows = self.rows()
        for column in self._columns.values():
            column.keep(rows)
        self._alive = NumberColumn(np.bool_)
        self._alive.extend(np.ones(len(rows), np.bool_))
        self._reindex()
        self._index_all(0, len(rows))

    def _reindex(self) -> None:
        self._indexes = self._clear_indexes()

    def _check(self) -> None:
        rows = self.rows()
        assert len(rows) == self._live
        for row in rows.tolist():
            assert self._row_of(self._key_at(row)) == row
        for key, value in self._cache.items():
            assert value == self._value_at(self._row_of(key))
        for index in self._indexes:
            index._check()
