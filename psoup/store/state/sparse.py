"""A column of numbers of which nearly all are 0; only the nonzero ones take memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s
from psoup.store.state.columns import NumberColumn


class SparseColumn:
    """Numbers: `_rows` are the rows with a nonzero number, ascending, and `_values` their
    numbers."""

    def __init__(self) -> None:
        self._rows, self._values = NumberColumn(), NumberColumn()
        self._size = 0

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + self._values.nbytes

    @property
    def nonzero(self) -> tuple[Int64s, Int64s]:
        """The rows with a nonzero number, and these numbers."""
        return self._rows.values, self._values.values

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, row: int) -> int:
        if not len(self._rows):
            return 0
        place = int(np.searchsorted(self._rows.values, row))
        is_stored = place < len(self._rows) and self._rows[place] == row
        return self._values[place] if is_stored else 0

    def append(self, value: int) -> None:
        if value:
            self._rows.append(self._size)
            self._values.append(value)
        self._size += 1

    def extend(self, values: Any) -> None:
        """Add the numbers of an Arrow array; NULL is 0."""
        self._add(pc.fill_null(values, 0).to_numpy())

    def take(self, rows: Int64s) -> pa.Array:
        return pa.array(self._values_at(rows))

    def keep(self, rows: Int64s) -> None:
        values = self._values_at(rows)
        self._replace(np.empty(0, np.int64), np.empty(0, np.int64))
        self._size = 0
        self._add(values)

    def _add(self, values: Int64s) -> None:
        (places,) = np.nonzero(values)
        self._rows.extend(places + self._size)
        self._values.extend(values[places])
        self._size += len(values)

    def _values_at(self, rows: Int64s) -> Int64s:
        # `places[n]` is where row n stands among the stored rows, if it is one of them.
        places = np.searchsorted(self._rows.values, rows)
        inside = places < len(self._rows)
        is_stored = inside.copy()
        is_stored[inside] = self._rows.values[places[inside]] == rows[inside]
        values = np.zeros(len(rows), np.int64)
        values[is_stored] = self._values.values[places[is_stored]]
        return values

    def _replace(self, rows: Int64s, values: Int64s) -> None:
        self._rows, self._values = NumberColumn(), NumberColumn()
        self._rows.extend(rows)
        self._values.extend(values)
