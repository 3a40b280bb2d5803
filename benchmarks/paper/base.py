"""The three strategies share this: the rows, in the product's data SteM, and taking them out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from benchmarks.paper.workload import Array, Workload
from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS, SplitRows
from datastem.codec import decode, encode
from datastem.memory import Memory
from datastem.stem import DataStem
from querystem.language import bind_window
from results.region import row_region
from results.window import RowWindow

# How the rows come in; the SteM merges them as it does in a server.
INSERT_ROWS = 8_192
# Later than any row.
NEVER = 1 << 62


class Base:
    """All rows of a workload, inserted; ids count from 0."""

    def __init__(self, workload: Workload) -> None:
        self.schema = workload.schema
        self.rows = stem_rows(workload)
        self.high = self.rows.num_rows
        self._columns = [column.name for column in self.schema.columns]
        stem = DataStem(Memory(1 << 40), _no_files)
        for batch in batches(self.rows, INSERT_ROWS):
            stem.insert(
                SplitRows.of(batch), stem.high, int(batch.column("_row_id")[-1].as_py()) + 1
            )
        self._view = stem.view()
        self._parts = {
            number: self._view.parts(number, self.high)
            for number in range(((self.high - 1) >> BLOCK_BITS) + 1)
        }

    def window(self, size: int) -> RowWindow:
        """The newest `size` rows, as a registration has it."""
        window = bind_window(f"BEGIN ROW LAST - {size - 1} END ROW LAST", self.schema)
        assert isinstance(window, RowWindow)
        return window

    def bounds(self, window: RowWindow) -> tuple[int, int]:
        """`[lo, hi)` of the row ids in the window now."""
        region = row_region(window, NEVER, None, self.high)
        return region.lo, region.hi

    def take(self, ids: Int64s) -> pa.RecordBatch:
        """The rows of an answer, copied out; `ids` ascend."""
        parts = []
        if len(ids):
            for number in range(int(ids[0]) >> BLOCK_BITS, (int(ids[-1]) >> BLOCK_BITS) + 1):
                for part in self._parts[number]:
                    places = part.find(ids)
                    if len(places):
                        parts.append(part.rows.select(self._columns).take(pa.array(places)))
        return pa.concat_batches(parts) if parts else self.rows.select(self._columns).slice(0, 0)


def stem_rows(workload: Workload) -> pa.RecordBatch:
    return decode(workload.schema, encode(workload.rows), 0, 0, 0)


def batches(rows: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)


def columns_of(rows: pa.RecordBatch) -> dict[str, Array]:
    """The declared columns, contiguous."""
    return {
        name: np.ascontiguousarray(rows.column(name).to_numpy(zero_copy_only=False))
        for name in rows.schema.names
        if not name.startswith("_") and name != "ts" and name != "row_id"
    }


def _no_files(*_: object, **__: object) -> pa.RecordBatch:
    raise AssertionError("every row is in memory")
