"""The orders of keyed rows on the driver, and the closures that new rows cause.

An order holds exactly the rows of its stem's files that the ledger names. It is read from them
when it is first needed after a start, and discarded with its ledger when a step fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.codec import HISTORY_COLUMNS, INSTANT
from datastem.history import Closures
from datastem.keyed_rows import KeyedRows
from psoup.engine.steps.key_order import KeyOrder
from psoup.engine.steps.pieces import ROW_SEGMENT_BITS
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import reader
from psoup.store.layout import CLOSURES
from psoup.store.store import Store

# Rows that are inserted together: the work for a late row grows with their number.
_CHUNK_ROWS = 1 << 16


class Histories:
    """The orders of keyed streams' rows by stream id, for the driver's thread only."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._orders: dict[int, KeyOrder] = {}

    def of(self, stream_id: int, files: Iterable[DataFile]) -> KeyOrder:
        """Return the order of a stream whose stem has these files."""
        if stream_id not in self._orders:
            root = self._root(stream_id)
            self._orders[stream_id] = KeyOrder(_read(root, file) for file in files)
        return self._orders[stream_id]

    def insert(
        self, stream_id: int, before: Iterable[DataFile], new: Iterable[DataFile]
    ) -> list[Closures]:
        """Insert the rows of `new` files into an order; return the closures that they cause."""
        order, closures = self.of(stream_id, before), []
        for part in _chunks(read_rows(self._root(stream_id), new)):
            # Closures are derived from the rows before the part, so both go chunk by chunk.
            closures.append(order.closures(part))
            order.insert(part)
        return closures

    def remove(self, stream_id: int, ids: Int64s) -> None:
        """Remove rows from an order: the ascending `ids` are no longer in the files."""
        self._orders[stream_id].remove(ids)

    def forget(self, stream_id: int) -> None:
        """Drop an order; it is read again when it is needed."""
        self._orders.pop(stream_id, None)

    def _root(self, stream_id: int) -> Path:
        return self._store.stem(stream_id).root


def read_rows(root: Path, files: Iterable[DataFile]) -> KeyedRows:
    """Return the keyed rows of a stem's files by ascending id; the files may come in any order."""
    rows = KeyedRows.joined([_read(root, file) for file in files])
    return rows.take(np.argsort(rows.ids))


def _read(root: Path, file: DataFile) -> KeyedRows:
    return KeyedRows.of(reader(root, file).read(list(HISTORY_COLUMNS)))


def closure_rows(stream_id: int, closures: Iterable[Closures], epoch: int) -> pa.Table:
    """Return rows of the closures table, sorted by (row_id, by)."""
    parts = list(closures)
    ids = np.concatenate([np.empty(0, np.int64), *(part.ids for part in parts)])
    ends = np.concatenate([np.empty(0, np.int64), *(part.ends for part in parts)])
    by = np.concatenate([np.empty(0, np.int64), *(part.by for part in parts)])
    # Parallel arrays, one entry per closure: the row that ends, its end, and the row that ends it.
    order = np.lexsort((by, ids))
    columns = [
        pa.array(np.full(len(ids), stream_id, np.int64)),
        pa.array(ids[order] >> ROW_SEGMENT_BITS),
        pa.array(ids[order]),
        pa.array(ends[order]).view(INSTANT),
        pa.array(by[order]),
        pa.array(np.full(len(ids), epoch, np.int64)),
    ]
    return pa.table(columns, schema=CLOSURES)


def _chunks(rows: KeyedRows) -> Iterator[KeyedRows]:
    for first in range(0, len(rows), _CHUNK_ROWS):
        yield rows.take(slice(first, first + _CHUNK_ROWS))
