"""The order in which items are joined: the smallest estimated result first.

The choice is made anew before each step, from the number of rows that there are and the number of
distinct values that an equality compares. Items without a condition that connects them to what is
joined wait until nothing else is left.
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

# The share of pairs that a condition other than an equality is taken to leave.
_OTHER_SHARE = 1 / 3
# Up to so many rows distinct values are counted.
_SAMPLE = 1 << 16


class Estimates:
    """Estimates of the results of joins between items, each counted when it is first needed."""

    def __init__(self, items: Sequence[Side], factors: Sequence[JoinFactor]) -> None:
        self._items = items
        self._factors = factors
        self._distinct: dict[Expression, int] = {}

    def first(self) -> int:
        """Return the item to begin with: one of the two whose join is smallest."""
        if len(self._items) < 3:
            return 0
        pairs = permutations(range(len(self._items)), 2)
        return min(pairs, key=lambda pair: self._rank(self._items[pair[0]], pair[1]))[0]

    def next(self, joined: Side, rest: Sequence[int]) -> int:
        """Whichever item of the rest is joined next."""
        if len(rest) == 1:
            return rest[0]
        return min(rest, key=lambda number: self._rank(joined, number))

    def _rank(self, joined: Side, number: int) -> tuple[bool, float]:
        """Connected items come before others, and small results before large ones."""
        usable = usable_factors(self._factors, joined.numbers, number)
        share = 1.0
        for factor in usable:
            share *= self._share(factor, joined, number)
        return not usable, joined.length * self._items[number].length * share

    def _share(self, factor: JoinFactor, joined: Side, number: int) -> float:
        found = comparison(factor, joined.numbers, number)
        if found is None or found.op is not Op.EQ:
            return _OTHER_SHARE
        return 1 / max(1, *self._values_of(found, joined))

    def _values_of(self, equality: Comparison, joined: Side) -> tuple[int, int]:
        """Return how many distinct values the sides of an equality have, at most."""
        left = min(self._count(equality.left), joined.length)
        return left, self._count(equality.right)

    def _count(self, expression: Expression) -> int:
        """Return the number of distinct values of an expression over one item; over several items
        all values are taken as distinct."""
        count = self._distinct.get(expression)
        if count is None:
            sides = [self._items[number] for number in items_of(expression)]
            one = len(sides) == 1
            count = _distinct(sides[0], expression) if one else max(side.length for side in sides)
            self._distinct[expression] = count
        return count


def _distinct(side: Side, expression: Expression) -> int:
    """Return the number of distinct values; of a large side an estimate from rows at equal
    distances.

    Values that the sample has once stand for the square root of all that one row of it stands for,
    the geometric mean of the least and the most there may be.
    """
    step = -(-side.length // _SAMPLE) or 1
    if step > 1:
        side = side.chosen(np.arange(0, side.length, step))
    counts = pc.value_counts(canonical(side.values(expression)).drop_null()).field("counts")
    once = pc.sum(pc.equal(counts, 1)).as_py() or 0
    return round(len(counts) - once + once * math.sqrt(step))


def usable_factors(
    factors: Sequence[JoinFactor], joined: frozenset[int], number: int
) -> list[JoinFactor]:
    """Return the factors that can be evaluated once an item has been joined, and not before."""
    after = joined | {number}
    return [one for one in factors if number in one.items and one.items <= after]
