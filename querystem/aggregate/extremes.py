"""The value of each group that comes first: the least, the greatest, the earliest, the latest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import canonical
from datastem.types import Type
from querystem.ordering import Ranker, ascending, by, descending, leaders


@dataclass(frozen=True, slots=True)
class Extremes:
    """By value: NULL for a group without one. -0.0 is shown as 0.0."""

    values: pa.Array
    type: Type
    greatest: bool

    @classmethod
    def of(
        cls, values: pa.Array, type_: Type, greatest: bool, codes: Int64s, groups: int
    ) -> Extremes:
        """Of values without NULLs."""
        values = canonical(values)
        rankers = ascending(values, type_)
        chosen = leaders(
            descending(rankers) if greatest else rankers, np.arange(len(values)), codes, groups
        )
        return cls(_taken(values, chosen), type_, greatest)

    @classmethod
    def merge(cls, parts: Sequence[Extremes], codes: Int64s, groups: int) -> Extremes:
        values = pa.concat_arrays([part.values for part in parts])
        values, codes = _present(values, codes)
        return cls.of(values, parts[0].type, parts[0].greatest, codes, groups)

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes)


@dataclass(frozen=True, slots=True)
class Ends:
    """By (ts, row_id), which stand beside each value; NULL for a group without one."""

    values: pa.Array
    ts: Int64s
    ids: Int64s
    latest: bool

    @classmethod
    def of(
        cls, values: pa.Array, ts: Int64s, ids: Int64s, latest: bool, codes: Int64s, groups: int
    ) -> Ends:
        """Of values without NULLs."""
        rankers: list[Ranker] = [by(ts), by(ids)]
        chosen = leaders(
            descending(rankers) if latest else rankers, np.arange(len(values)), codes, groups
        )
        if not len(values):
            return cls(_taken(values, chosen), chosen, chosen, latest)
        return cls(_taken(values, chosen), ts[chosen], ids[chosen], latest)

    @classmethod
    def merge(cls, parts: Sequence[Ends], codes: Int64s, groups: int) -> Ends:
        values = pa.concat_arrays([part.values for part in parts])
        known = values.is_valid().to_numpy(zero_copy_only=False)
        ts = np.concatenate([part.ts for part in parts])[known]
        ids = np.concatenate([part.ids for part in parts])[known]
        values, codes = _present(values, codes)
        return cls.of(values, ts, ids, parts[0].latest, codes, groups)

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes + self.ts.nbytes + self.ids.nbytes)


def _taken(values: pa.Array, chosen: Int64s) -> pa.Array:
    return values.take(pa.array(chosen, mask=chosen < 0))


def _present(values: pa.Array, codes: Int64s) -> tuple[pa.Array, Int64s]:
    if not values.null_count:
        return values, codes
    return values.drop_null(), codes[values.is_valid().to_numpy(zero_copy_only=False)]
