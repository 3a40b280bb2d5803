"""Rows of keyed streams as of the rows they are joined with, looked up for each combination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from querystem.combine.rows import ItemRows
from querystem.kernel import values_of
from querystem.query import AsOf


class Versions(Protocol):
    """All rows a keyed stream had, current or not."""

    def find(self, keys: Sequence[pa.Array], instants: Int64s, rows: Int64s | None) -> Int64s:
        """Return the ids of the rows that were current, −1 where none was. `keys` hold no NULL.
        With `rows`, ids of another stream's rows, as was known at the position of each."""

    def rows(self, ids: Int64s, reads: frozenset[str]) -> pa.RecordBatch:
        """Return the rows with these ascending ids that the leg's predicate matches."""


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Rows of a keyed stream, and for each combination the place of its row; −1 without one."""

    rows: ItemRows
    places: Int64s

    @property
    def pairs(self) -> tuple[Int64s, Int64s]:
        """The places of the combinations that have a row, and of their rows."""
        found = np.flatnonzero(self.places >= 0)
        return found, self.places[found]


def look_up(
    as_of: AsOf, versions: Versions, combinations: pa.RecordBatch, reads: frozenset[str]
) -> LookedUp:
    """Return the row that goes with each combination."""
    ids = _found(as_of, versions, combinations)
    rows = ItemRows.of_leg(versions.rows(_ascending(ids), reads | {"ts", "row_id"}))
    (held,) = rows.parts
    places = np.searchsorted(held, ids)
    places[places == len(held)] = -1
    missing = (ids < 0) | (np.append(held, -1)[places] != ids)
    return LookedUp(rows, np.where(missing, -1, places))


def _ascending(ids: Int64s) -> Int64s:
    """Return the ids of rows, each once. `np.unique` hashes, which takes longer than sorting."""
    found = np.sort(ids[ids >= 0])
    return found[np.diff(found, prepend=-1) > 0]


def _found(as_of: AsOf, versions: Versions, combinations: pa.RecordBatch) -> Int64s:
    """Return the ids of the rows that were current; −1 also where a key, or the row that is looked
    up for, is missing."""
    keys = [values_of(key, combinations) for key in as_of.keys]
    instant = values_of(as_of.instant, combinations)
    row = None if as_of.row is None else values_of(as_of.row, combinations)
    known = np.ones(combinations.num_rows, np.bool_)
    for one in (*keys, instant):
        known &= one.is_valid().to_numpy(zero_copy_only=False)
    places = np.flatnonzero(known)
    chosen = pa.array(places)
    rows = None if row is None else _numbers(row.take(chosen))
    found = np.full(combinations.num_rows, -1)
    found[places] = versions.find(
        [key.take(chosen) for key in keys], _numbers(instant.take(chosen)), rows
    )
    return found


def _numbers(values: pa.Array) -> Int64s:
    numbers: Int64s = values.view(pa.int64()).to_numpy()
    return numbers
