"""The rows of stream keys at one moment, and which of them a reader may see."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.codec import columns_read
from datastem.keyed_rows import KeyedRows
from datastem.picking import pick_rows
from datastem.schema import StreamSchema
from datastem.stem_view import StemView
from psoup.answers.planning.policies import RowPolicy
from psoup.answers.replicas.keyed_history import KeyedView
from psoup.answers.rows.leg_rows import gathered
from psoup.store.state.quarantine import MACHINE_ERRORS
from querystem.expressions import columns_of
from querystem.kernel import matches

# Rows that are read at once, before it is known how many bytes they have.
_CHUNK_ROWS = 1024


@dataclass(frozen=True, slots=True)
class KeyRows:
    """A keyed stream at one moment, for a reader whom `policy` permits to see some rows. Rows that
    had ended by `oldest` are not retained."""

    schema: StreamSchema
    stem: StemView
    keyed: KeyedView
    oldest: int | None
    policy: RowPolicy

    def last(self, keys: Int64s) -> KeyedRows:
        """Return the last row of each key, be it a delete; with the id −1 if there is none. Reads
        files."""
        return self.keyed.last(keys, self.oldest)

    def hidden(self, ids: Int64s) -> Int64s:
        """Return those of the ids that no row has which the reader may see. Reads files."""
        if self.policy is None:
            return ids[:0]
        ids = np.unique(ids)
        conditions = [condition.present for condition in self.policy]
        reads = {name for condition in conditions for name in columns_of(condition)}
        rows = self._rows(ids, reads)
        visible = rows.filter(pa.array(self._permitted(rows))).column("row_id").to_numpy()
        return np.setdiff1d(ids, visible, assume_unique=True)

    def row(self, row_id: int) -> pa.RecordBatch | None:
        """Return the row with an id, with `ts` and `row_id`; None if the reader may not see it, or
        there is none. Reads files."""
        rows = self._rows(np.array([row_id]), self.schema.types)
        if not rows.num_rows or not self._permitted(rows)[0]:
            return None
        return rows

    def values(self, ids: Int64s, names: Collection[str], max_bytes: int) -> pa.RecordBatch | None:
        """Return columns of the rows with these ascending ids, and `row_id`; None if they take more
        bytes than that. The reader must be permitted to see them. Reads files."""
        chunks, nbytes = [self._rows(ids[:0], names)], 0
        for first in range(0, len(ids), _CHUNK_ROWS):
            rows = self._rows(ids[first : first + _CHUNK_ROWS], names)
            nbytes += rows.nbytes
            if nbytes > max_bytes:
                return None
            chunks.append(rows)
        return pa.concat_batches(chunks)

    def _rows(self, ids: Int64s, names: Collection[str]) -> pa.RecordBatch:
        columns = columns_read(self.schema, frozenset(names))
        return gathered(pick_rows(self.stem, ids, columns.names), columns)

    def _permitted(self, rows: pa.RecordBatch) -> Mask:
        """Return a mask of the rows that the policy permits."""
        if self.policy is None:
            return np.ones(rows.num_rows, np.bool_)
        permitted = np.zeros(rows.num_rows, np.bool_)
        for condition in self.policy:
            try:
                permitted |= matches(condition.present, rows)
            except MACHINE_ERRORS:
                raise
            except Exception:
                # A policy that can't be evaluated permits nothing.
                continue
        return permitted
