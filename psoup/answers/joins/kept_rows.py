"""The combinations of one predicate with their values, kept from one answer to the next.

Rows never change, and no combination gets the id of another. So an answer adds the combinations
that were found since the last one, and takes those that its windows hold: it costs what a selection
of as many rows costs, however many rows the legs have.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.instants import SINCE_EVER
from datastem.stem import DataStem
from psoup.answers.joins.part_rows import distinct
from psoup.answers.rows.leg_rows import LegRows
from psoup.answers.rows.windows import permitted_among
from querystem.combine import ItemRows
from querystem.sources import item_column
from results.id_sets import member

# Combinations of a predicate beyond which they are not kept.
MAX_KEPT_ROWS = 1 << 16


@dataclass(frozen=True)
class KeptRows:
    """The stored combinations of a predicate with ids in `[low, stop)` and a ts, the least of their
    rows, of at least `begin`: their ascending `ids` and, in this order, their `rows`. The columns
    include the ts of each leg.

    `stems` are those of the composite and the legs: a stem that is opened again may lack rows.
    """

    stems: tuple[DataStem, ...]
    low: int
    stop: int
    begin: int
    ids: Int64s
    rows: ItemRows | None

    @classmethod
    def nothing(cls, stems: tuple[DataStem, ...], low: int, begin: int | None) -> KeptRows:
        """Return no combinations, to be extended from the id `low` on."""
        instant = SINCE_EVER if begin is None else begin
        return cls(stems, low, low, instant, np.empty(0, np.int64), None)

    def is_usable(self, stems: tuple[DataStem, ...], low: int, begin: int | None) -> bool:
        """Return True if no combination is missing with an id from `low` on and a ts from `begin`
        on."""
        same = all(map(operator.is_, self.stems, stems))
        return same and self.low <= low and self.begin <= (SINCE_EVER if begin is None else begin)

    def trimmed(self, low: int, begin: int | None) -> KeptRows:
        """Return these combinations without those that no later answer needs, if they are the
        greater part: with an id below `low`, or a ts before `begin`."""
        instant = SINCE_EVER if begin is None else begin
        if self.rows is None:
            return self
        needed = (self.ids >= low) & (np.minimum.reduce(self._ts) >= instant)
        if 2 * np.count_nonzero(needed) >= len(needed):
            return self
        places = np.flatnonzero(needed)
        return replace(
            self, low=low, begin=instant, ids=self.ids[places], rows=self.rows.take(places)
        )

    def extended(self, stop: int, ids: Int64s, rows: ItemRows) -> KeptRows:
        """Return these combinations and all others up to the id `stop`."""
        if self.rows is None or not len(self.ids):
            return replace(self, stop=stop, ids=ids, rows=rows)
        if not len(ids):
            return replace(self, stop=stop)
        both = ItemRows.joined([self.rows, rows])
        return replace(self, stop=stop, ids=np.concatenate([self.ids, ids]), rows=both)

    def places(self, legs: Sequence[LegRows], low: int, high: int) -> Int64s:
        """Return the places of the combinations with ids in `[low, high)` whose rows the windows of
        the legs hold and their policies permit."""
        assert self.rows is not None
        mask = (self.ids >= low) & (self.ids < high)
        for rows, ts, ids in zip(legs, self._ts, self.rows.parts, strict=True):
            mask &= rows.choice.region.holds(ts, ids)
            if rows.choice.ids is not None:
                mask &= member(ids, rows.choice.ids)
        places = np.flatnonzero(mask)
        for rows, part in zip(legs, self.rows.parts, strict=True):
            if (permitted := rows.matcher.permitted) is not None:
                ids = part[places]
                permitted_ids = permitted_among(permitted, rows.leg.stem, distinct(ids))
                places = places[member(ids, permitted_ids)]
        return places

    def take(self, places: Int64s, names: Collection[str]) -> ItemRows:
        """Return the combinations at some places, with the columns of these names."""
        assert self.rows is not None
        return self.rows.take(places, names)

    @cached_property
    def _ts(self) -> list[Int64s]:
        """The ts of the rows of each leg."""
        assert self.rows is not None
        columns = [self.rows.columns[item_column(n, "ts")] for n in range(len(self.rows.parts))]
        return [column.view(pa.int64()).to_numpy() for column in columns]

    @cached_property
    def nbytes(self) -> int:
        if self.rows is None:
            return 0
        columns = sum(column.nbytes for column in self.rows.columns.values())
        arrays = (self.ids, self.rows.ts, *self.rows.parts)
        return int(columns + sum(array.nbytes for array in arrays))

    @property
    def row_bytes(self) -> float:
        return self.nbytes / max(1, len(self.ids))
