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
from querystem.join.order import Estimates, usable_factors
from querystem.join.room import JoinRoom, TooManyBytes
from querystem.join.sides import Side, concatenated, true_pairs
from querystem.kernel import matches

# Bytes of a pair that is kept, twice for a while, and of a row's place in a combination.
_PAIR_BYTES, _PLACE_BYTES = 32, 8
# Where there may be so many times the pairs that there is room for, they are counted before one is
# made, which takes as long as a join does; else while they are made, a chunk at a time.
_COUNTED = 4


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

    `rows` are those of both sides, the item's last. Of all their pairs `candidates` were looked at
    and `kept` are left.
    """

    item: int
    method: JoinMethod
    rows: tuple[int, int]
    candidates: int
    kept: int


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

    The columns of item n, and `on`, are named as `querystem.query.item_column` writes them. Raise
    TooManyPairs where all steps together would look at more than `most_pairs`, before the step that
    would; TooManyBytes where the pairs that are left find no `room`.
    """
    factors = join_factors(on)
    sides = [chosen_side(number, rows, factors) for number, rows in enumerate(items)]
    factors = [one for one in factors if len(one.items) > 1]
    estimates = Estimates(sides, factors)
    first = estimates.first()
    joined, steps, budget = sides[first], list[JoinStep](), _Budget(most_pairs, room or JoinRoom())
    rest = [number for number in range(len(items)) if number != first]
    while rest:
        number = estimates.next(joined, rest)
        rest.remove(number)
        usable = usable_factors(factors, joined.numbers, number)
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
    method = choose(joined, item, number, factors)
    nbytes = _PAIR_BYTES + _PLACE_BYTES * (len(joined.items) + 1)
    budget.check(method, nbytes)
    kept, candidates = [], 0
    for pairs in method.source.pairs():
        candidates += len(pairs[0])
        kept.append(true_pairs(joined, item, pairs, method.residual))
        budget.room.take(nbytes * len(kept[-1][0]))
    budget.left -= candidates
    found = joined.with_pairs(item, concatenated(kept))
    budget.room.give_back(_PAIR_BYTES * found.length)
    rows = joined.length, item.length
    return found, JoinStep(number, method.name, rows, candidates, found.length)


@dataclass(slots=True)
class _Budget:
    """How many pairs a join may look at in all, how many it still may, and the room for those that
    are left."""

    limit: int
    room: JoinRoom
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.limit

    def check(self, method: Method, nbytes: int) -> None:
        """Raise TooManyPairs where a method has more pairs to look at than are left; TooManyBytes
        where it keeps them all, `nbytes` each, and there is no room for so many."""
        source = method.source
        if source.at_most > self.left and source.count > self.left:
            raise TooManyPairs(self.limit - self.left + source.count, self.limit)
        fitting = self.room.left // nbytes
        if method.residual != TRUE or source.at_most <= _COUNTED * fitting:
            return
        if source.count > fitting:
            raise TooManyBytes(self.room.used + nbytes * source.count, self.room.limit)
