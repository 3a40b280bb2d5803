"""The legs of registrations: which streams a query reads, and the predicate over each.

Nearly all registrations read one stream: their first leg is two numbers in the registration's
columns. `LegsColumn` holds the legs after the first, and takes no memory for other registrations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from psoup.store.layout import MORE_LEGS
from psoup.store.state.columns import NumberColumn, chunks_of


@dataclass(frozen=True, slots=True)
class RegisteredLeg:
    """A leg of a registered query: the stream it reads and the predicate that its rows match."""

    stream_id: int
    predicate_id: int


@dataclass(frozen=True, slots=True)
class RegisteredComposite:
    """The composite of a registered query, and the predicate that combinations of it match."""

    composite_id: int
    predicate_id: int


class LegsColumn:
    """The legs after the first, of each row: `_rows` names the row of each leg, ascending."""

    def __init__(self) -> None:
        self._rows, self._streams, self._predicates = NumberColumn(), NumberColumn(), NumberColumn()
        self._size = 0

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + self._streams.nbytes + self._predicates.nbytes

    @property
    def streams(self) -> tuple[Int64s, Int64s]:
        """The row of each leg after a first, and the leg's stream."""
        return self._rows.values, self._streams.values

    @property
    def predicates(self) -> tuple[Int64s, Int64s]:
        """The row of each leg after a first, and the leg's predicate."""
        return self._rows.values, self._predicates.values

    def __getitem__(self, row: int) -> tuple[RegisteredLeg, ...]:
        if not len(self._rows):
            return ()
        begin, end = np.searchsorted(self._rows.values, [row, row + 1]).tolist()
        return tuple(
            RegisteredLeg(self._streams[place], self._predicates[place])
            for place in range(begin, end)
        )

    def append(self, value: Iterable[RegisteredLeg]) -> None:
        for leg in value:
            self._rows.append(self._size)
            self._streams.append(leg.stream_id)
            self._predicates.append(leg.predicate_id)
        self._size += 1

    def extend(self, values: Any) -> None:
        """Add a row for each list of MORE_LEGS; NULL is a list without any."""
        for chunk in chunks_of(values):
            legs = chunk.flatten()
            parents = chunk.value_parent_indices().to_numpy(zero_copy_only=False)
            self._rows.extend(parents + self._size)
            self._streams.extend(legs.field("stream_id"))
            self._predicates.extend(legs.field("predicate_id"))
            self._size += len(chunk)

    def take(self, rows: Int64s) -> pa.Array:
        places, counts = self._places(rows)
        ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        columns = [self._streams.take(places), self._predicates.take(places)]
        legs = pa.StructArray.from_arrays(columns, fields=list(MORE_LEGS.value_type))
        return pa.ListArray.from_arrays(pa.array(ends), legs, type=MORE_LEGS)

    def keep(self, rows: Int64s) -> None:
        places, counts = self._places(rows)
        self._streams.keep(places)
        self._predicates.keep(places)
        self._rows = NumberColumn()
        self._rows.extend(np.repeat(np.arange(len(rows)), counts))
        self._size = len(rows)

    def _places(self, rows: Int64s) -> tuple[Int64s, Int64s]:
        """Return the places of the legs of some rows, row by row, and the number of legs of each
        row."""
        begins = np.searchsorted(self._rows.values, rows)
        counts = np.searchsorted(self._rows.values, rows, "right") - begins
        # Within a row the places are consecutive: its first, plus how far the leg is from there.
        before = np.repeat(np.cumsum(counts) - counts, counts)
        places: Int64s = np.repeat(begins, counts) + np.arange(len(before)) - before
        return places, counts


def no_more_legs(count: int) -> pa.Array:
    """Return the column of registrations that have one leg each."""
    return pa.nulls(count, MORE_LEGS)
