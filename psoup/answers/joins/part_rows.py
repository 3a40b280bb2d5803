"""The rows of one leg that combinations consist of, found by their ids."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.blocks import Picked
from datastem.codec import columns_shown
from datastem.picking import pick_rows
from psoup.answers.planning.plan import LegPlan
from psoup.answers.rows.leg_rows import gathered
from psoup.answers.rows.windows import parts_of

# Ids that lie no further apart, on average, are looked up in a table with a place for every id
# between the least and the greatest; others are sorted.
_DENSE_GAP = 32
# Places are looked up in such a table also if ids lie further apart, unless it gets too large: only
# the entries of ids are written, so that it costs little.
_PLACE_GAP, _MAX_TABLE_ROWS = 256, 1 << 24


@dataclass(frozen=True)
class PartRows:
    """The rows of a leg that combinations have, without those that have left the store. `ids`
    ascend."""

    leg: LegPlan
    picked: Picked
    ids: Int64s

    @classmethod
    def of(cls, leg: LegPlan, ids: Int64s) -> PartRows:
        """Return the rows with these ids, which may be in any order and have repeats. Blocks that
        are not in memory are read as a whole."""
        row_ids = distinct(ids)
        picked = []
        for part in parts_of(leg.stem, row_ids, leg.stem.high):
            low, high = np.searchsorted(row_ids, [part.first, part.stop])
            picked.append((part, part.find(row_ids[low:high])))
        return cls._of_picked(leg, picked)

    @classmethod
    def pick(cls, leg: LegPlan, ids: Int64s, names: Collection[str]) -> PartRows:
        """Return the rows with these ids, which may be in any order and have repeats, and with at
        least the columns of these names."""
        columns = columns_shown(leg.schema, tuple((name, name) for name in sorted(names)))
        return cls._of_picked(leg, pick_rows(leg.stem, distinct(ids), columns.names))

    @classmethod
    def _of_picked(cls, leg: LegPlan, picked: Picked) -> PartRows:
        ids = [part.ids[places] for part, places in picked]
        return cls(leg, picked, np.concatenate([np.empty(0, np.int64), *ids]))

    def places(self, ids: Int64s) -> Int64s:
        """Return the place of each id among these rows; −1 if its row has left the store."""
        if not len(self.ids):
            return np.full(len(ids), -1)
        low, span = int(self.ids[0]), int(self.ids[-1] - self.ids[0]) + 1
        if span > min(_PLACE_GAP * len(ids), _MAX_TABLE_ROWS) and span > _DENSE_GAP * len(ids):
            # An id greater than all others gets the last place, whose id differs.
            places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        else:
            # The place of the row with id `low + i` at index i. Entries without a row are not
            # written and may have any value, so each place is checked by its id.
            place_of = np.empty(span, np.int32)
            place_of[self.ids - low] = np.arange(len(self.ids), dtype=np.int32)
            places = place_of[np.clip(ids - low, 0, span - 1)].astype(np.int64)
            places[(places < 0) | (places >= len(self.ids))] = 0
        return np.where(self.ids[places] == ids, places, -1)

    def instants(self) -> Int64s:
        """Return the ts of each row."""
        pieces = [part.ts[places] for part, places in self.picked]
        return np.concatenate([np.empty(0, np.int64), *pieces])

    def batch(self, names: Collection[str]) -> pa.RecordBatch:
        columns = tuple((name, name) for name in sorted(names))
        return gathered(self.picked, columns_shown(self.leg.schema, columns))


def distinct(ids: Int64s) -> Int64s:
    """Return the distinct ids, ascending. A table is several times faster than `np.unique`, which
    hashes."""
    if not len(ids):
        return ids
    low, high = int(ids.min()), int(ids.max())
    if high - low < _DENSE_GAP * len(ids):
        present = np.zeros(high - low + 1, np.bool_)
        present[ids - low] = True
        return np.flatnonzero(present) + low
    ordered: Int64s = np.sort(ids)
    first: Mask = np.append(True, ordered[1:] != ordered[:-1])
    return ordered[first]
