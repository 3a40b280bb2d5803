"""The order in which items are joined: the smallest estimated result first.

The choice is made again before each step, from the numbers of rows and of distinct values that an
equality compares. Items without a condition that connects them to what is joined come last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pyarrow.compute as pc

from datastem.equality import canonical
from querystem.expressions import Expression, Op
from querystem.join.factors import Comparison, JoinFactor, comparison, items_of
from querystem.join.sides import Side

# The estimated share of pairs for which a condition other than an equality is true.
_INEQUALITY_SHARE = 1 / 3
# Distinct values are counted in at most this many rows.
_SAMPLE_ROWS = 1 << 16


class Estimates:
    """Estimates of the results of joins between items, each counted when it is first needed."""

    def __init__(self, items: Sequence[Side], factors: Sequence[JoinFactor]) -> None:
        self._items = items
        self._distinct: dict[Expression, int] = {}
        # The factors that read each item: with many items, most read others.
        self._factors: list[list[JoinFactor]] = [[] for _ in items]
        for factor in factors:
            for number in factor.items:
                self._factors[number].append(factor)

    def first(self) -> int:
        """Return the item to begin with: one of the two whose join is smallest."""
        # With two items the result is the same, whichever comes first.
        if len(self._items) < 3:
            return 0
        connected = {
            pair
            for factors in self._factors
            for factor in factors
            if len(factor.items) == 2
            for pair in permutations(sorted(factor.items))
        }
        pairs = sorted(connected) or permutations(range(len(self._items)), 2)
        return min(pairs, key=lambda pair: self._rank(self._items[pair[0]], pair[1]))[0]

    def next(self, joined: Side, remaining: Sequence[int]) -> int:
        """Return the item, of the remaining ones, that is joined next."""
        if len(remaining) == 1:
            return remaining[0]
        return min(remaining, key=lambda number: self._rank(joined, number))

    def usable(self, joined: Side, number: int) -> list[JoinFactor]:
        """Return the factors that can be evaluated once an item has been joined, and not before."""
        after = joined.numbers | {number}
        return [factor for factor in self._factors[number] if factor.items <= after]

    def _rank(self, joined: Side, number: int) -> tuple[bool, float]:
        """Return a sort key: connected items first, then small results before large ones."""
        usable = self.usable(joined, number)
        share = 1.0
        for factor in usable:
            share *= self._share(factor, joined, number)
        return not usable, joined.length * self._items[number].length * share

    def _share(self, factor: JoinFactor, joined: Side, number: int) -> float:
        compared = comparison(factor, joined.numbers, number)
        if compared is None or compared.op is not Op.EQ:
            return _INEQUALITY_SHARE
        # The usual estimate: the values of the side with fewer distinct ones all occur on the
        # other.
        return 1 / max(1, *self._values_of(compared, joined))

    def _values_of(self, equality: Comparison, joined: Side) -> tuple[int, int]:
        """Return how many distinct values the sides of an equality have, at most."""
        # Combinations have no more distinct values than there are combinations.
        left_count = min(self._count(equality.left), joined.length)
        return left_count, self._count(equality.right)

    def _count(self, expression: Expression) -> int:
        """Return the number of distinct values of an expression over one item; over several items
        all values are taken as distinct."""
        count = self._distinct.get(expression)
        if count is None:
            sides = [self._items[number] for number in items_of(expression)]
            is_one_item = len(sides) == 1
            count = (
                _distinct(sides[0], expression)
                if is_one_item
                else max(side.length for side in sides)
            )
            self._distinct[expression] = count
        return count


def _distinct(side: Side, expression: Expression) -> int:
    """Return the number of distinct values; for a large side an estimate from every n-th row.

    A value that the sample has once stands for sqrt(n) values, the geometric mean of the least and
    the most that there may be.
    """
    step = -(-side.length // _SAMPLE_ROWS) or 1
    if step > 1:
        side = side.chosen(np.arange(0, side.length, step))
    counts = pc.value_counts(canonical(side.values(expression)).drop_null()).field("counts")
    once = pc.sum(pc.equal(counts, 1)).as_py() or 0
    return round(len(counts) - once + once * math.sqrt(step))
