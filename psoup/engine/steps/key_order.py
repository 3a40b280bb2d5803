"""The rows of a keyed stream on the driver, in the order of (key, ts, row_id).

They are in sorted runs that are merged as their number grows. A long run is in files without a
name in the temporary folder, which are mapped: the kernel keeps in memory what is used of it, and
gives that memory to others if they need it. So the driver's own memory does not grow with the rows.
"""

from __future__ import annotations

import logging
import mmap
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import numpy as np

from datastem.arrays import Int64s, Mask
from datastem.history import Closures, closures_among
from datastem.keyed_rows import KeyedRows

log = logging.getLogger(__name__)

# A run with fewer rows is in memory, and as many are merged at a time: 6 MB.
MEMORY_ROWS = 1 << 18
# Runs are written without the removed rows once these are more than this share of all.
_MAX_REMOVED_SHARE = 0.25


class KeyOrder:
    """The order of a stream's rows. Two verbs: `insert` rows, and find the `closures` of new ones.

    For one thread only.
    """

    def __init__(self, parts: Iterable[KeyedRows] = ()) -> None:
        """Make the order of rows in several parts, which come in any order."""
        # The ids of rows that were removed, ascending; runs may still hold some of them.
        self._removed = np.empty(0, np.int64)
        runs = [merge([part.sorted()]) for part in parts]
        self._runs = [merge(runs)] if runs else []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def insert(self, rows: KeyedRows) -> None:
        """Insert rows whose ids are greater than all ids in the order."""
        if not len(rows):
            return
        new = [rows.sorted()]
        # Each run is at least twice the size of the next, as in `SortedRuns`.
        while self._runs and len(self._runs[-1]) < 2 * sum(map(len, new)):
            new.insert(0, self._runs.pop())
        self._runs.append(merge(new, self._removed))

    def closures(self, rows: KeyedRows) -> Closures:
        """Return the ends that inserting these rows makes known. The ids ascend and are greater
        than those of the order."""
        closures = closures_among(self._runs, rows)
        if not len(self._removed):
            return closures
        # The predecessor of a late row may have been removed. The row before that one needs no
        # closure: it has ended earlier.
        remaining = ~_is_in(closures.ids, self._removed)
        return Closures(closures.ids[remaining], closures.ends[remaining], closures.by[remaining])

    def ended(self, cut: int) -> Int64s:
        """Return the ids of the rows that had ended by the instant `cut`, ascending."""
        ended, previous = [np.empty(0, np.int64)], _NO_ROWS
        for part in parts_of(self._runs, self._removed):
            rows = KeyedRows.joined([previous, part])
            # The end of the last row depends on the next part.
            ended.append(rows.ids[:-1][rows.ends()[:-1] <= cut])
            previous = rows.take(slice(-1, None))
        return np.sort(np.concatenate(ended))

    def remove(self, ids: Int64s) -> None:
        """Remove rows with these ascending ids, all of which have ended."""
        self._removed = np.union1d(self._removed, ids)
        if len(self._removed) > _MAX_REMOVED_SHARE * len(self):
            self._runs = [merge(self._runs, self._removed)]
            self._removed = np.empty(0, np.int64)


_NO_ROWS = KeyedRows.joined([])


def merge(runs: Sequence[KeyedRows], removed: Int64s = _NO_ROWS.ids) -> KeyedRows:
    """Return the rows of sorted runs as one run, in memory or mapped, without the removed ids."""
    if sum(map(len, runs)) > MEMORY_ROWS:
        try:
            return _mapped(parts_of(runs, removed))
        except OSError as error:
            log.warning("rows of a keyed stream stay in memory: %s", error)
    return _without(KeyedRows.merged(runs), removed)


def parts_of(runs: Sequence[KeyedRows], removed: Int64s) -> Iterator[KeyedRows]:
    """Yield the rows of sorted runs in their order, at most MEMORY_ROWS at a time, unless more have
    one key and ts."""
    step = max(MEMORY_ROWS // max(len(runs), 1), 1)
    # Between two neighbours of these samples each run has at most `step` rows.
    samples = KeyedRows.joined([run.take(slice(step - 1, None, step)) for run in runs]).sorted()
    is_new = np.ones(len(samples), np.bool_)
    is_new[1:] = (np.diff(samples.keys) != 0) | (np.diff(samples.ts) != 0)
    samples = samples.take(is_new)
    # By run, the place after the rows up to each sample; every part ends at a sample.
    edges = [[0, *run.find(samples)[1].tolist(), len(run)] for run in runs]
    for part in range(len(samples) + 1):
        slices = (
            run.take(slice(places[part], places[part + 1]))
            for run, places in zip(runs, edges, strict=True)
        )
        if rows := [rows for rows in slices if len(rows)]:
            yield _without(KeyedRows.merged(rows), removed)


def _mapped(parts: Iterable[KeyedRows]) -> KeyedRows:
    """Write sorted rows to the temporary folder; return them mapped. Raise OSError."""
    with (
        tempfile.TemporaryFile() as keys,
        tempfile.TemporaryFile() as ts,
        tempfile.TemporaryFile() as ids,
    ):
        for part in parts:
            for file, column in ((keys, part.keys), (ts, part.ts), (ids, part.ids)):
                file.write(np.ascontiguousarray(column).data)
        columns = (_map(keys), _map(ts), _map(ids))
    # Deletes are rows of the order, too, so operations make no difference.
    return KeyedRows(*columns, np.broadcast_to(np.int8(0), len(columns[2])))


def _map(file: IO[bytes]) -> Int64s:
    file.flush()
    if not file.tell():
        return np.empty(0, np.int64)
    # The mapping outlives the file's descriptor. Nobody else can shorten a file without a name.
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.int64)


def _without(rows: KeyedRows, removed: Int64s) -> KeyedRows:
    return rows.take(~_is_in(rows.ids, removed)) if len(removed) else rows


def _is_in(ids: Int64s, ascending: Int64s) -> Mask:
    place = np.minimum(np.searchsorted(ascending, ids), len(ascending) - 1)
    return np.asarray(ascending[place] == ids)
