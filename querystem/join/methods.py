"""The method of a join step: how candidate pairs of rows are found."""

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

# With more equal pairs than this for each row of both sides, an equality is not used without the
# range that stands beside it.
_MAX_PAIRS_PER_ROW = 8
_PAIR_UNITS = 10


class JoinMethod(enum.Enum):
    """How pairs are found."""

    EQUALITY = "equality"  # by equal keys
    RANGE = "range"  # by an inequality or by bounds from below and above, within equal keys if any
    PAIRS = "pairs"  # all of them


class PairSource(Protocol):
    """Pairs of rows of two sides. There are `count`; `at_most` is no less, and faster to find."""

    @property
    def at_most(self) -> int: ...

    @property
    def count(self) -> int: ...

    def pairs(self) -> Iterator[Pairs]: ...


@dataclass(frozen=True, slots=True)
class Method:
    """The pairs of a step come from `source`; `residual` has to be evaluated for each."""

    name: JoinMethod
    source: PairSource
    residual: Expression


def choose(joined: Side, item: Side, number: int, factors: Sequence[JoinFactor]) -> Method:
    """Return the method by which item `number`, the right side, is joined to the left one.

    Equal keys come first. If they leave many pairs and there is a range, both are used; this takes
    an exact count.
    """
    # comparisons[c] is condition c as `joined op item`, or None if it has another form. Conditions
    # that the chosen method does not cover become the residual.
    comparisons = {
        factor.condition: comparison(factor, joined.numbers, number) for factor in factors
    }
    compared = [condition for condition in comparisons.values() if condition is not None]
    equalities = [condition for condition in compared if condition.op is Op.EQ]
    inequalities = [condition for condition in compared if condition.op is not Op.EQ]
    equal = HashJoin(joined, item, equalities) if equalities else None
    if equal is not None and not (inequalities and _has_many(equal)):
        return Method(JoinMethod.EQUALITY, equal, _residual(comparisons, equalities))
    if inequalities:
        source, used = _range(joined, item, inequalities, equal)
        return Method(JoinMethod.RANGE, source, _residual(comparisons, [*equalities, *used]))
    return Method(JoinMethod.PAIRS, AllPairs(joined, item), _residual(comparisons, []))


def _has_many(equal: HashJoin) -> bool:
    many = _MAX_PAIRS_PER_ROW * (equal.left.length + equal.right.length)
    # The exact count is made only if the bound is great: it takes about as long as the join.
    return equal.at_most > many and equal.count > many


def _residual(
    comparisons: dict[Expression, Comparison | None], used: Sequence[Comparison]
) -> Expression:
    """Return the conjunction of all conditions but the used ones."""
    return conjunction(
        [
            condition
            for condition, compared in comparisons.items()
            if compared is None or compared not in used
        ]
    )


def _range(
    joined: Side, item: Side, inequalities: Sequence[Comparison], equal: HashJoin | None
) -> tuple[PairSource, Sequence[Comparison]]:
    """Return the range join with the fewest pairs, and the inequalities it takes care of."""
    # Equal keys are sorted with the values: a range is then searched within the rows of one key.
    codes = None if equal is None else equal.codes
    turned = None if codes is None else (codes[1], codes[0])
    # Either side may be the sorted one. `by_left` bounds values of the joined side by the item,
    # `by_right` the reverse.
    by_left = bounds_of(inequalities)
    by_right = bounds_of([condition.mirrored for condition in inequalities])
    bands = [bounds for bounds in by_right if bounds.is_band]
    # Without a band an inequality is one range, whichever side is sorted.
    candidates: list[tuple[PairSource, Sequence[Comparison]]] = [
        (RangeJoin(joined, item, bounds, codes), bounds.conditions)
        for bounds in by_left
        if bounds.is_band or not bands
    ]
    for band in bands:
        source = Exchanged(RangeJoin(item, joined, band, turned))
        candidates.append((source, [condition.mirrored for condition in band.conditions]))
    if len(candidates) == 1:
        return candidates[0]
    return min(candidates, key=lambda candidate: candidate[0].count)


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
        return ((second, first) for first, second in self.source.pairs())


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
        right_rows = np.arange(self.right.length)
        step = max(1, PAIRS_AT_ONCE // len(right_rows))
        for begin in range(0, self.left.length, step):
            left_rows = np.arange(begin, min(begin + step, self.left.length))
            spending()(_PAIR_UNITS * len(left_rows) * len(right_rows))
            yield np.repeat(left_rows, len(right_rows)), np.tile(right_rows, len(left_rows))
