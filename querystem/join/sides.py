"""A side of a join: an item, or what has been joined of several items so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from datastem.arrays import Array, Int64s, Mask
from querystem.expressions import TRUE, Expression, columns_of
from querystem.join.factors import item_of
from querystem.kernel import matches, values_of

# Pairs of rows: numbers of rows of the left side, and of the right side's row beside each.
Pairs: TypeAlias = tuple[Int64s, Int64s]

# Pairs that are looked at between two reports of progress.
PAIRS_AT_ONCE = 1 << 20
_ROWS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class Side:
    """Combinations of a row of each of some items.

    Combination k has row `places[n][k]` of item n. An item's places are None if they are all its
    rows in order.
    """

    items: Mapping[int, pa.RecordBatch]
    places: Mapping[int, Int64s | None]
    length: int

    @classmethod
    def of_item(cls, number: int, rows: pa.RecordBatch) -> Side:
        return cls({number: rows}, {number: None}, rows.num_rows)

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(self.items)

    def values(self, expression: Expression) -> pa.Array:
        """Return the value of an expression over the items' columns, for each combination."""
        return values_of(expression, self.rows(columns_of(expression)))

    def few_values(self, expression: Expression) -> tuple[pa.Array, Int64s | None]:
        """Return the values of an expression, and the place among them of each combination's value.

        Values that many combinations share, because they are of one item's rows, are there once per
        row. The places are None if every combination has its own value, in order.
        """
        read = {item_of(name) for name in columns_of(expression)}
        number = next(iter(read))
        # With more combinations than rows, an expression over one item is evaluated per row, not
        # per combination.
        if len(read) > 1 or self.items[number].num_rows >= self.length:
            return self.values(expression), None
        return values_of(expression, self.items[number]), self.places[number]

    def rows(self, columns: Iterable[str], chosen: Int64s | None = None) -> pa.RecordBatch:
        """Return some columns of the chosen combinations, or of all."""
        names = sorted(set(columns))
        arrays = [self._column(name, chosen) for name in names]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _column(self, name: str, chosen: Int64s | None) -> pa.Array:
        number = item_of(name)
        column = self.items[number].column(name)
        places = _at(self.places[number], chosen)
        return column if places is None else column.take(pa.array(places))

    def chosen(self, rows: Int64s) -> Side:
        """Return the combinations at these places."""
        places = {number: _at(places, rows) for number, places in self.places.items()}
        return Side(self.items, places, len(rows))

    def matching(self, condition: Expression) -> Side:
        """Return the combinations for which a condition is true."""
        true = matches(condition, self.rows(columns_of(condition)))
        return self.chosen(np.flatnonzero(true))

    def with_pairs(self, side: Side, pairs: Pairs) -> Side:
        """Return the combinations of this side and another, given the pairs of their rows."""
        first, second = self.chosen(pairs[0]), side.chosen(pairs[1])
        items = {**first.items, **second.items}
        return Side(items, {**first.places, **second.places}, len(pairs[0]))


def _at(places: Int64s | None, chosen: Int64s | None) -> Int64s | None:
    if places is None or chosen is None:
        # None means all rows in order, so the other array is the composition of the two.
        return places if chosen is None else chosen
    return places[chosen]


def at_places(numbers: Array, places: Int64s | None) -> Array:
    """Return the numbers of each combination, from those that `Side.few_values` goes by."""
    return numbers if places is None else numbers[places]


def true_pairs(first: Side, second: Side, pairs: Pairs, condition: Expression) -> Pairs:
    """Return the pairs for which a condition is true."""
    if condition == TRUE:
        return pairs
    return _chosen_pairs(first, second, pairs, condition, True)


def other_pairs(first: Side, second: Side, pairs: Pairs, condition: Expression) -> Pairs:
    """Return the pairs for which a condition is not true: it is false or NULL."""
    return _chosen_pairs(first, second, pairs, condition, False)


def _chosen_pairs(
    first: Side, second: Side, pairs: Pairs, condition: Expression, truth: bool
) -> Pairs:
    # Columns of pairs are assembled block by block, which bounds the memory they take.
    chosen = []
    for block in _blocks(pairs):
        mask = _truth_of(first, second, block, condition) == truth
        chosen.append((block[0][mask], block[1][mask]))
    return concatenated(chosen)


def _truth_of(first: Side, second: Side, pairs: Pairs, condition: Expression) -> Mask:
    names = set(columns_of(condition))
    first_names = {name for name in names if item_of(name) in first.items}
    rows = first.rows(first_names, pairs[0]), second.rows(names - first_names, pairs[1])
    together = pa.RecordBatch.from_arrays(
        [column for part in rows for column in part.columns],
        names=[name for part in rows for name in part.schema.names],
    )
    return matches(condition, together)


def _blocks(pairs: Pairs) -> Iterator[Pairs]:
    for begin in range(0, len(pairs[0]), _ROWS_AT_ONCE):
        end = begin + _ROWS_AT_ONCE
        yield pairs[0][begin:end], pairs[1][begin:end]


def concatenated(parts: list[Pairs]) -> Pairs:
    """Return the pairs of all parts."""
    none = np.empty(0, np.int64)
    if not parts:
        return none, none
    firsts, seconds = zip(*parts, strict=True)
    return np.concatenate(firsts), np.concatenate(seconds)
