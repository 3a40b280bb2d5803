"""The inner join of several items: all combinations of their rows for which a condition is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from querystem.expressions import TRUE, Expression
from querystem.join.factors import JoinFactor, join_factors
from querystem.join.methods import JoinMethod, Method, choose
from querystem.join.order import Estimates
from querystem.join.room import JoinRoom, TooManyBytes
from querystem.join.sides import Side, concatenated, true_pairs
from querystem.kernel import matches
from querystem.pace import spending

# Bytes of a pair that is kept, for a while in two copies, and of a row's place in a combination.
_PAIR_BYTES, _PLACE_BYTES = 32, 8
# Units (`querystem.pace`) of a step, however few rows it joins.
_STEP_UNITS = 400_000
# If there may be more than this many times the pairs that there is room for, they are counted
# first, which takes as long as a join does. Else they are counted while they are made.
_COUNTING_THRESHOLD = 4


class TooManyPairs(Exception):
    """A join would look at more pairs of rows than it may."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(
            f"the join has {count:,} pairs of rows to look at, at most {limit:,} may be"
        )
        self.count = count
        self.limit = limit


@dataclass(frozen=True, slots=True)
class JoinStep:
    """One item joined to what was joined before.

    `rows` are the numbers of rows of both sides, the item's last. Of all their pairs `candidates`
    were looked at, and the condition is true of `kept_pairs`.
    """

    item: int
    method: JoinMethod
    rows: tuple[int, int]
    candidates: int
    kept_pairs: int


@dataclass(frozen=True, slots=True)
class Joined:
    """The combinations: number k has row `places[n][k]` of item n. They are in no order.

    `first` is the item that the steps began with.
    """

    places: tuple[Int64s, ...]
    first: int
    steps: tuple[JoinStep, ...]


def join(
    items: Sequence[pa.RecordBatch],
    on: Expression,
    most_pairs: int,
    room: JoinRoom | None = None,
) -> Joined:
    """Return all combinations of a row of each item for which `on` is true.

    The columns of item n, and `on`, are named as `querystem.sources.item_column` writes them. Raise
    TooManyPairs if all steps together would look at more than `most_pairs`, before the step that
    would; TooManyBytes if there is no `room` for the pairs that stay.
    """
    # Conditions about one item filter its rows first. The others join the items one by one; the
    # order is chosen again after each step, from the rows that the step has left.
    factors = join_factors(on)
    sides = [chosen_side(number, rows, factors) for number, rows in enumerate(items)]
    factors = [factor for factor in factors if len(factor.items) > 1]
    estimates = Estimates(sides, factors)
    first = estimates.first()
    joined, steps, budget = sides[first], list[JoinStep](), _Budget(most_pairs, room or JoinRoom())
    remaining = [number for number in range(len(items)) if number != first]
    while remaining:
        number = estimates.next(joined, remaining)
        remaining.remove(number)
        usable = estimates.usable(joined, number)
        joined, step = _add(joined, sides[number], number, usable, budget)
        steps.append(step)
    places = tuple(_places(joined, number) for number in range(len(items)))
    return Joined(places, first, tuple(steps))


def _places(side: Side, number: int) -> Int64s:
    places = side.places[number]
    return np.arange(side.length) if places is None else places


def chosen_side(number: int, rows: pa.RecordBatch, factors: Sequence[JoinFactor]) -> Side:
    """Return an item's rows for which all factors are true that need no other item."""
    side = Side.of_item(number, rows)
    for factor in factors:
        if factor.items == {number}:
            side = side.matching(factor.condition)
        # A condition without columns that is not true leaves no combination, whatever the items
        # hold.
        elif not factor.items and not _is_true(factor.condition):
            side = side.chosen(np.empty(0, np.int64))
    return side


def _is_true(constant: Expression) -> bool:
    one_row = pa.RecordBatch.from_arrays([pa.nulls(1)], names=[""])
    return bool(matches(constant, one_row)[0])


def _add(
    joined: Side, item: Side, number: int, factors: Sequence[JoinFactor], budget: _Budget
) -> tuple[Side, JoinStep]:
    """Join one more item to what was joined before, by the factors that this makes usable."""
    spending()(_STEP_UNITS)
    method = choose(joined, item, number, factors)
    # The bytes of a pair while it is made: the pair, and its place in each item of the result.
    nbytes = _PAIR_BYTES + _PLACE_BYTES * (len(joined.items) + 1)
    budget.check(method, nbytes)
    parts, candidates = [], 0
    for pairs in method.source.pairs():
        candidates += len(pairs[0])
        parts.append(true_pairs(joined, item, pairs, method.residual))
        # Only pairs that stay are reserved, batch by batch, so that a growing join stops early.
        budget.room.take(nbytes * len(parts[-1][0]))
    budget.remaining -= candidates
    combined = joined.with_pairs(item, concatenated(parts))
    # The pairs are freed, and the places of what was joined before; those of the combinations stay
    # reserved.
    freed = _PLACE_BYTES * len(joined.items) * joined.length if len(joined.items) > 1 else 0
    budget.room.give_back(_PAIR_BYTES * combined.length + freed)
    rows = joined.length, item.length
    return combined, JoinStep(number, method.name, rows, candidates, combined.length)


@dataclass(slots=True)
class _Budget:
    """The `limit` of pairs that a join may look at, how many `remaining` ones it still may, and the
    room for those that stay."""

    limit: int
    room: JoinRoom
    remaining: int = field(init=False)

    def __post_init__(self) -> None:
        self.remaining = self.limit

    def check(self, method: Method, nbytes: int) -> None:
        """Raise TooManyPairs if a method has more pairs to look at than the limit still allows;
        TooManyBytes if it keeps them all, `nbytes` each, and there is no room for them."""
        source = method.source
        # `count` costs about as much as the join, so it is asked only if the cheap bound exceeds
        # the limit.
        if source.at_most > self.remaining and source.count > self.remaining:
            raise TooManyPairs(self.limit - self.remaining + source.count, self.limit)
        # With a residual it is unknown how many pairs stay, so they are counted while they are
        # made.
        fitting = self.room.remaining // nbytes
        if method.residual != TRUE or source.at_most <= _COUNTING_THRESHOLD * fitting:
            return
        if source.count > fitting:
            raise TooManyBytes(self.room.used + nbytes * source.count, self.room.limit)
