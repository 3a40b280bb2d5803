"""The rows of one item of FROM, while they are combined with others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.instants import FOR_EVER, SINCE_EVER
from querystem.sources import item_column
from results.region import time_region
from results.row_order import number_order, one_number
from results.window import CountWindow, TimeWindow, Window


class LegColumns(ABC):
    """The rows of a leg, by ascending id; columns are assembled when they are needed."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def row_bytes(self) -> float:
        """The bytes of a row, on average, with all the columns that are read."""

    @abstractmethod
    def batch(self, names: Collection[str]) -> pa.RecordBatch:
        """Return all rows with some columns."""

    @abstractmethod
    def take(self, places: Int64s, names: Collection[str]) -> pa.RecordBatch:
        """Return some rows, in any order and with repeats, with some columns."""


@dataclass(frozen=True)
class LegItem:
    """An item that is a leg: only the columns that are needed are assembled."""

    rows: LegColumns
    names: frozenset[str]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, places: Int64s, names: Collection[str]) -> ItemRows:
        """Return some rows with some of the columns, as `ItemRows.take` does."""
        columns = {*names, "ts", "row_id"}
        # `LegColumns.take` has no place −1. Only rows that are present are taken; `back` then
        # spreads them, and its −1 become rows of NULLs.
        present = np.flatnonzero(places >= 0)
        if len(present) == len(places):
            return ItemRows.of_leg(self.rows.take(places, columns)).with_columns(names)
        back = np.full(len(places), -1)
        back[present] = np.arange(len(present))
        return ItemRows.of_leg(self.rows.take(places[present], columns)).take(back, names)

    def row_bytes(self, number: int, names: Collection[str]) -> float:
        """Return the bytes of a row, at most, with those of its columns that are among `names`."""
        read = sum(item_column(number, name) in names for name in self.names)
        # 16 bytes are the instant and the row id. The bytes of columns are shared out evenly,
        # because they are not assembled yet.
        return 16 + self.rows.row_bytes * read / max(1, len(self.names))

    def batch(self, number: int, reads: Collection[str]) -> pa.RecordBatch:
        """Return the columns that are read, by the names they have as those of item `number`."""
        names = [name for name in self.names if name in reads]
        rows = self.rows.batch(names) if names else None
        columns = [] if rows is None else [rows.column(name) for name in names]
        return _renamed(number, columns, names, len(self))


@dataclass(frozen=True)
class ItemRows:
    """Rows with their columns and instants; SINCE_EVER for rows without an instant.

    `parts` are the same whenever the row is computed again, and order rows of one ts: the row ids
    of the legs in it, or the id of a group or of a row that a set operation has made.
    """

    columns: Mapping[str, pa.Array]
    ts: Int64s
    parts: tuple[Int64s, ...]

    @classmethod
    def of_leg(cls, rows: pa.RecordBatch) -> ItemRows:
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        ts = rows.column("ts").view(pa.int64()).to_numpy()
        return cls(columns, ts, (rows.column("row_id").to_numpy(),))

    @classmethod
    def joined(cls, items: Sequence[ItemRows]) -> ItemRows:
        """Return the rows of several, which have equal columns, one after the other."""
        if len(items) == 1:
            return items[0]
        columns = {
            name: pa.concat_arrays([item.columns[name] for item in items])
            for name in items[0].columns
        }
        parts = zip(*(item.parts for item in items), strict=True)
        ts = np.concatenate([item.ts for item in items])
        return cls(columns, ts, tuple(np.concatenate(part) for part in parts))

    @classmethod
    def placeholder(cls) -> ItemRows:
        """Return one row without columns, in the place of an item that is looked up later, or of
        all items of a FROM that has none."""
        return cls({}, np.array([SINCE_EVER]), (np.array([-1]),))

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def names(self) -> Collection[str]:
        return self.columns.keys()

    def take(self, places: Int64s, names: Collection[str] | None = None) -> ItemRows:
        """Return some rows, with some of the columns or all.

        A place of −1 gives a row of NULLs, without an instant, and with −1 for its parts.
        """
        # All rows in order need no copy.
        if is_every(places, len(self)):
            return self if names is None else self.with_columns(names)
        missing = places < 0
        # Without a missing row the plain take is used: no mask is checked, and no array is extended
        # by a default.
        mask = missing if missing.any() else None
        chosen = pa.array(places, mask=mask)
        columns = {
            name: column.take(chosen)
            for name, column in self.columns.items()
            if names is None or name in names
        }
        parts = tuple(_take(part, places, mask, -1) for part in self.parts)
        return ItemRows(columns, _take(self.ts, places, mask, SINCE_EVER), parts)

    def with_columns(self, names: Collection[str]) -> ItemRows:
        """Return these rows with some of their columns."""
        columns = {name: column for name, column in self.columns.items() if name in names}
        return ItemRows(columns, self.ts, self.parts)

    def row_bytes(self, number: int, names: Collection[str]) -> float:
        """Return the bytes of a row as item `number`, on average, with those of its columns that
        are among `names`; its instant and what names it counted."""
        columns = [
            column for name, column in self.columns.items() if item_column(number, name) in names
        ]
        nbytes: int = sum(column.nbytes for column in columns)
        return 8 * (1 + len(self.parts)) + nbytes / max(1, len(self))

    def batch(self, number: int, reads: Collection[str]) -> pa.RecordBatch:
        """Return the columns that are read, by the names they have as those of item `number`."""
        names = [name for name in self.columns if name in reads]
        return _renamed(number, [self.columns[name] for name in names], names, len(self))

    def whole(self) -> pa.RecordBatch:
        """Return all columns, by the names they have."""
        # A batch without columns has no length, so one column of NULLs stands for it.
        names = [*self.columns] or [""]
        columns = [*self.columns.values()] or [pa.nulls(len(self))]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def within(self, window: Window, now: int) -> ItemRows:
        """Return the rows that a window over a query holds."""
        place = place_of(self.parts, len(self))
        if isinstance(window, TimeWindow):
            inside = time_region(window, now, None, FOR_EVER).holds(self.ts, place)
            return self.take(np.flatnonzero(inside))
        assert isinstance(window, CountWindow), "rows of a query inside a query have no row id"
        # Rows after NOW do not count among the newest. The last key of lexsort is the first to
        # decide: rows ascend by ts, then by place.
        past = np.flatnonzero(self.ts <= now)
        newest = past[np.lexsort((place[past], self.ts[past]))][-window.rows :]
        return self.take(newest)


def _renamed(
    number: int, columns: Sequence[pa.Array], names: Sequence[str], count: int
) -> pa.RecordBatch:
    """Return columns of an item by the names they have in its From; a column of NULLs if there are
    none, because a batch without columns has no length."""
    if not names:
        return pa.RecordBatch.from_arrays([pa.nulls(count)], names=[item_column(number, "")])
    renamed = [item_column(number, name) for name in names]
    return pa.RecordBatch.from_arrays(list(columns), names=renamed)


def _take(numbers: Int64s, places: Int64s, missing: Mask | None, default: int) -> Int64s:
    """Return the numbers at some places; `default` for places of −1."""
    # The place −1 is that of the appended default.
    return numbers[places] if missing is None else np.append(numbers, default)[places]


def is_every(places: Int64s, count: int) -> bool:
    """Return whether places are those of all of `count` rows, in order."""
    # The ends are compared first: most selections fail there, without an array of all places.
    if len(places) != count or not count or places[0] or places[-1] != count - 1:
        return False
    return bool((places == np.arange(count)).all())


AnyRows: TypeAlias = ItemRows | LegItem


def side_by_side(
    items: Sequence[AnyRows], places: Sequence[Int64s], names: Collection[str]
) -> ItemRows:
    """Return combinations of rows: combination k has row `places[n][k]` of item n, or no row of it
    if that is −1.

    Their columns are named as those of items; only those of `names` are taken.
    """
    sides, columns = [], dict[str, pa.Array]()
    for number, (item, chosen) in enumerate(zip(items, places, strict=True)):
        item_names = {name for name in item.names if item_column(number, name) in names}
        rows = item.take(chosen, item_names)
        sides.append(rows)
        columns |= {item_column(number, name): column for name, column in rows.columns.items()}
    # A missing row has SINCE_EVER, the least instant, so the ts of the other sides decides.
    ts = reduce(np.maximum, [side.ts for side in sides])
    return ItemRows(columns, ts, tuple(part for side in sides for part in side.parts))


def place_of(parts: Sequence[Int64s], count: int) -> Int64s:
    """Return a number for each row, in the order of its parts. Rows are sorted only if the parts do
    not fit into one number."""
    if not count:
        return np.empty(0, np.int64)
    if len(parts) == 1:
        return parts[0]
    number = one_number(parts)
    # Parts that do not fit into one number are replaced by their rank in the order of the parts.
    if number is None:
        number = np.empty(count, np.int64)
        number[number_order(parts)] = np.arange(count)
    return number
