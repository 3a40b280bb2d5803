"""The method of a step: how the pairs of rows are found that are looked at."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from querystem.expressions import Expression, Op
from querystem.join.equality import HashJoin
from querystem.join.factors import Comparison, JoinFactor, comparison, conjunction
from querystem.join.ranges import RangeJoin, bounds_of
from querystem.join.sides import PAIRS_AT_ONCE, Pairs, Side
from querystem.pace import spending

# Past so many pairs for each row of both sides, an equality is not used without the range that
# stands beside it.
_MANY_PAIRS = 8
_PAIR_UNITS = 10


class JoinMethod(enum.Enum):
    """How pairs are found."""

    EQUALITY = "equality"  # by equal keys
    RANGE = "range"  # by an inequality or by bounds from below and above, within equal keys if any
    PAIRS = "pairs"  # all of them


class PairSource(Protocol):
    """Pairs of rows of two sides. There are `count`; `at_most` is no less, and sooner told."""

    @property
    def at_most(self) -> int: ...

    @property
    def count(self) -> int: ...

    def pairs(self) -> Iterator[Pairs]: ...


@dataclass(frozen=True, slots=True)
class Method:
    """A step's pairs come from `source`; `residual` is left to evaluate for each."""

    name: JoinMethod
    source: PairSource
    residual: Expression


def choose(left: Side, right: Side, number: int, factors: Sequence[JoinFactor]) -> Method:
    """Return the method by which item `number`, the right side, is joined to the left one.

    Equal keys come first. Where they leave many pairs and there is a range, both are used; this
    takes an exact count.
    """
    found = {one.condition: comparison(one, left.numbers, number) for one in factors}
    compared = [one for one in found.values() if one is not None]
    equalities = [one for one in compared if one.op is Op.EQ]
    inequalities = [one for one in compared if one.op is not Op.EQ]
    equal = HashJoin(left, right, equalities) if equalities else None
    if equal is not None and not (inequalities and _has_many(equal)):
        return Method(JoinMethod.EQUALITY, equal, _residual(found, equalities))
    if inequalities:
        source, used = _range(left, right, inequalities, equal)
        return Method(JoinMethod.RANGE, source, _residual(found, [*equalities, *used]))
    return Method(JoinMethod.PAIRS, AllPairs(left, right), _residual(found, []))


def _has_many(equal: HashJoin) -> bool:
    many = _MANY_PAIRS * (equal.left.length + equal.right.length)
    return equal.at_most > many and equal.count > many


def _residual(found: dict[Expression, Comparison | None], used: Sequence[Comparison]) -> Expression:
    """Return the conjunction of all conditions but the used ones."""
    return conjunction(
        [condition for condition, one in found.items() if one is None or one not in used]
    )


def _range(
    left: Side, right: Side, inequalities: Sequence[Comparison], equal: HashJoin | None
) -> tuple[PairSource, Sequence[Comparison]]:
    """Return the range join with the fewest pairs, and the inequalities it takes care of."""
    codes = None if equal is None else equal.codes
    turned = None if codes is None else (codes[1], codes[0])
    by_left = bounds_of(inequalities)
    by_right = bounds_of([one.mirrored for one in inequalities])
    bands = [one for one in by_right if one.is_band]
    # Without a band an inequality is one range, by the order of whichever side.
    found: list[tuple[PairSource, Sequence[Comparison]]] = [
        (RangeJoin(left, right, one, codes), one.conditions)
        for one in by_left
        if one.is_band or not bands
    ]
    for one in bands:
        source = Exchanged(RangeJoin(right, left, one, turned))
        found.append((source, [condition.mirrored for condition in one.conditions]))
    return found[0] if len(found) == 1 else min(found, key=lambda one: one[0].count)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The pairs of a source, the right row of each before the left one."""

    source: PairSource

    @property
    def at_most(self) -> int:
        return self.source.at_most

    @property
    def count(self) -> int:
        return self.source.count

    def pairs(self) -> Iterator[Pairs]:
        return ((right, left) for left, right in self.source.pairs())


@dataclass(frozen=True, slots=True)
class AllPairs:
    """All pairs of rows of two sides."""

    left: Side
    right: Side

    @property
    def at_most(self) -> int:
        return self.count

    @property
    def count(self) -> int:
        return self.left.length * self.right.length

    def pairs(self) -> Iterator[Pairs]:
        """Yield the pairs of some rows of the left side at a time."""
        if not self.count:
            return
        every = np.arange(self.right.length)
        step = max(1, PAIRS_AT_ONCE // len(every))
        for begin in range(0, self.left.length, step):
            some = np.arange(begin, min(begin + step, self.left.length))
            spending()(_PAIR_UNITS * len(some) * len(every))
            yield np.repeat(some, len(every)), np.tile(every, len(some))
