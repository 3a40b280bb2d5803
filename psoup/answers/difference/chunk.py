"""Rows of a copy, with all that a client needs to keep them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psoup.answers.once import once
from results.checksum import Uint64s, row_checksums
from results.idruns import Int64s

# Of a row its id, interval and checksum; of a typed value what stands before it.
_ROW_BYTES = 32
_VALUE_BYTES = 4


@dataclass(frozen=True)
class Chunk:
    """Some rows of a copy, by ascending id. An instant is SINCE_EVER or FOR_EVER where there is
    none."""

    ids: Int64s
    visible_from: Int64s
    visible_until: Int64s
    sort_keys: pa.Array
    rows: pa.RecordBatch

    @once
    def checksums(self) -> Uint64s:
        return row_checksums(
            self.ids, self.visible_from, self.visible_until, self.sort_keys, self.rows
        )

    @once
    def sizes(self) -> Int64s:
        """About how many bytes each row takes in a message, in whichever encoding is larger."""
        width = _ROW_BYTES + sum(_width(column.type) for column in self.rows.columns)
        sizes = np.full(len(self.ids), width, np.int64)
        texts = [column for column in self.rows.columns if _is_text(column.type)]
        for column in (self.sort_keys, *texts):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
        return sizes

    @property
    def nbytes(self) -> int:
        return int(self.sizes.sum())

    def slice(self, start: int, length: int) -> Chunk:
        stop = start + length
        return Chunk(
            self.ids[start:stop],
            self.visible_from[start:stop],
            self.visible_until[start:stop],
            self.sort_keys.slice(start, length),
            self.rows.slice(start, length),
        )

    def take(self, places: Int64s) -> Chunk:
        chosen = pa.array(places)
        return Chunk(
            self.ids[places],
            self.visible_from[places],
            self.visible_until[places],
            self.sort_keys.take(chosen),
            self.rows.take(chosen),
        )

    def cut(self, limit: int) -> Chunk:
        """The first rows, of about `limit` bytes, at least one."""
        some = self.slice(0, max(1, limit // _ROW_BYTES))
        fitting = int(np.searchsorted(np.cumsum(some.sizes), limit, side="right"))
        return some.slice(0, max(1, fitting))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _width(type_: pa.DataType) -> int:
    return _VALUE_BYTES + (0 if _is_text(type_) else type_.bit_width // 8)
