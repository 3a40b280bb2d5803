"""Joins: which rows of several items go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from querystem.expressions import Expression
from querystem.kernel import matches


class TooManyPairs(Exception):
    """A join would look at more pairs of rows than it may."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"{count} pairs of rows, {limit} are allowed")
        self.count = count
        self.limit = limit


@dataclass(frozen=True, slots=True)
class JoinStep:
    """A step of a join."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The combinations of a join: `places[n]` are the rows of item n in each."""

    places: tuple[Int64s, ...]
    steps: Sequence[JoinStep]


def join(items: Sequence[pa.RecordBatch], on: Expression, most_pairs: int) -> Joined:
    """All combinations of rows for which a condition is true. Raises TooManyPairs."""
    count = int(np.prod([item.num_rows for item in items], dtype=object))
    if count > most_pairs:
        raise TooManyPairs(count, most_pairs)
    grids = np.meshgrid(*(np.arange(item.num_rows) for item in items), indexing="ij")
    places = [grid.ravel() for grid in grids]
    taken = [item.take(pa.array(one)) for item, one in zip(items, places, strict=True)]
    columns = [column for one in taken for column in one.columns]
    names = [name for one in taken for name in one.schema.names]
    kept = np.flatnonzero(matches(on, pa.RecordBatch.from_arrays(columns, names=names)))
    return Joined(tuple(one[kept] for one in places), ())
