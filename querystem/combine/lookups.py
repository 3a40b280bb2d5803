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
from querystem.legs import AsOf


class Versions(Protocol):
    """All rows a keyed stream had, current or not."""

    def find(self, keys: Sequence[pa.Array], instants: Int64s, rows: Int64s | None) -> Int64s:
        """Return the ids of the rows that were current, −1 if none was. `keys` hold no NULL. With
        `rows`, ids of another stream's rows, what was known at the position of each counts."""

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
        combinations = np.flatnonzero(self.places >= 0)
        return combinations, self.places[combinations]


def look_up(
    as_of: AsOf, versions: Versions, combinations: pa.RecordBatch, reads: frozenset[str]
) -> LookedUp:
    """Return the row that goes with each combination."""
    # ids[k] is the row id for combination k. The fetched rows have each id once, ascending, without
    # those that the leg's predicate rejects.
    ids = _current_ids(as_of, versions, combinations)
    rows = ItemRows.of_leg(versions.rows(_ascending(ids), reads | {"ts", "row_id"}))
    (row_ids,) = rows.parts
    # An id that is absent gets the place of another row, or the place past the end. The ids at the
    # places are therefore compared; index −1 reads the appended −1, which equals no id.
    places = np.searchsorted(row_ids, ids)
    places[places == len(row_ids)] = -1
    missing = (ids < 0) | (np.append(row_ids, -1)[places] != ids)
    return LookedUp(rows, np.where(missing, -1, places))


def _ascending(ids: Int64s) -> Int64s:
    """Return the ids of rows, each once. `np.unique` hashes, which takes longer than sorting."""
    ordered = np.sort(ids[ids >= 0])
    return ordered[np.diff(ordered, prepend=-1) > 0]


def _current_ids(as_of: AsOf, versions: Versions, combinations: pa.RecordBatch) -> Int64s:
    """Return the ids of the rows that were current; −1 also if a key, or the row that is looked up
    for, is missing."""
    keys = [values_of(key, combinations) for key in as_of.keys]
    instant = values_of(as_of.instant, combinations)
    row = None if as_of.row is None else values_of(as_of.row, combinations)
    # `find` takes no NULL, so only complete combinations are looked up, and `places` brings the ids
    # back to them.
    complete = np.ones(combinations.num_rows, np.bool_)
    for column in (*keys, instant):
        complete &= column.is_valid().to_numpy(zero_copy_only=False)
    places = np.flatnonzero(complete)
    chosen = pa.array(places)
    rows = None if row is None else _numbers(row.take(chosen))
    ids = np.full(combinations.num_rows, -1)
    ids[places] = versions.find(
        [key.take(chosen) for key in keys], _numbers(instant.take(chosen)), rows
    )
    return ids


def _numbers(values: pa.Array) -> Int64s:
    numbers: Int64s = values.view(pa.int64()).to_numpy()
    return numbers
