"""The keyed histories of the driver, and the closures that new rows cause.

A history holds exactly the rows of its stem's files that the ledger names. It is read from them
when it is first needed after a start, and discarded with its ledger when a step fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.codec import HISTORY_COLUMNS, INSTANT
from datastem.history import Closures, History, all_closures
from datastem.keyed_rows import KeyedRows
from psoup.engine.steps.pieces import ROW_SEGMENT_BITS
from psoup.store.delta.files import DataFile
from psoup.store.delta.reading import reader
from psoup.store.layout import CLOSURES
from psoup.store.store import Store

# Rows that are inserted together: the work for a late row grows with their number.
_CHUNK_ROWS = 1 << 16


class Histories:
    """The histories of keyed streams by stream id, for the driver's thread only."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._histories: dict[int, History] = {}

    def of(self, stream_id: int, files: Iterable[DataFile]) -> History:
        """Return the history of a stream whose stem has these files."""
        if stream_id not in self._histories:
            rows = self._read(stream_id, files)
            self._histories[stream_id] = History().insert(rows, rows.last_id + 1)
        return self._histories[stream_id]

    def insert(
        self, stream_id: int, before: Iterable[DataFile], new: Iterable[DataFile]
    ) -> list[Closures]:
        """Insert the rows of `new` files into a history; return the closures that they cause."""
        history, rows = self.of(stream_id, before), self._read(stream_id, new)
        closures = []
        for part in _chunks(rows):
            # Closures are derived from the history before the part, so both go chunk by chunk.
            closures.append(history.closures(part))
            history = history.insert(part, part.last_id + 1)
        self._histories[stream_id] = history
        return closures

    def rederive(self, stream_id: int, files: Iterable[DataFile]) -> list[Closures]:
        """Return all closures of a stream, derived again from the files of its stem."""
        rows = self._read(stream_id, files)
        self._histories[stream_id] = History().insert(rows, rows.last_id + 1)
        return all_closures(rows)

    def remove(self, stream_id: int, ids: Int64s) -> None:
        """Remove rows from a history: the ascending `ids` are no longer in the files."""
        self._histories[stream_id] = self._histories[stream_id].without(ids)

    def forget(self, stream_id: int) -> None:
        """Drop a history; it is read again when it is needed."""
        self._histories.pop(stream_id, None)

    def _read(self, stream_id: int, files: Iterable[DataFile]) -> KeyedRows:
        root, columns = self._store.stem(stream_id).root, list(HISTORY_COLUMNS)
        rows = KeyedRows.joined([KeyedRows.of(reader(root, file).read(columns)) for file in files])
        # A history takes rows by ascending id, and files may come in any order.
        return rows.take(np.argsort(rows.ids))


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
