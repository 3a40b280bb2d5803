"""Factors: the conditions whose conjunction a join's `on` is, and what they say about two sides."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from datastem.types import BOOLEAN
from querystem.expressions import TRUE, Call, Expression, Op, columns_of
from querystem.join.differences import MIRROR, without_differences


@dataclass(frozen=True, slots=True)
class JoinFactor:
    """One condition, and the items whose columns it reads."""

    condition: Expression
    items: frozenset[int]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The condition `left op right`; `left` reads items of one side alone, `right` those of the
    other. `op` is one of = < <= > >=."""

    op: Op
    left: Expression
    right: Expression

    @property
    def mirrored(self) -> Comparison:
        """This condition with its sides exchanged."""
        return Comparison(MIRROR[self.op], self.right, self.left)


def join_factors(on: Expression) -> list[JoinFactor]:
    """Return the factors of a join's condition; none for TRUE."""
    conditions = without_differences([one for one in _conjuncts(on) if one != TRUE])
    return [JoinFactor(one, items_of(one)) for one in conditions]


def _conjuncts(on: Expression) -> Iterator[Expression]:
    if isinstance(on, Call) and on.op is Op.AND:
        for arg in on.args:
            yield from _conjuncts(arg)
    else:
        yield on


def without_items(on: Expression, numbers: Collection[int]) -> tuple[Expression, Expression]:
    """Return the factors of a condition that read none of some items, and those that do."""
    factors = join_factors(on)
    parted = (
        [one.condition for one in factors if one.items.isdisjoint(numbers)],
        [one.condition for one in factors if not one.items.isdisjoint(numbers)],
    )
    return conjunction(parted[0]), conjunction(parted[1])


def conjunction(conditions: Sequence[Expression]) -> Expression:
    """Return the condition that all of some are true."""
    if len(conditions) < 2:
        return conditions[0] if conditions else TRUE
    return Call(Op.AND, tuple(conditions), BOOLEAN)


def items_of(expression: Expression) -> frozenset[int]:
    """Return the numbers of the items whose columns an expression reads."""
    return frozenset(item_of(name) for name in columns_of(expression))


def item_of(column: str) -> int:
    """Return the number in a name that `querystem.query.item_column` has made."""
    return int(column.partition(".")[0])


def comparison(factor: JoinFactor, left: frozenset[int], right: int) -> Comparison | None:
    """Return the factor as a comparison of a side with an item; None if it is anything else."""
    condition = factor.condition
    if not isinstance(condition, Call) or condition.op not in MIRROR:
        return None
    one = Comparison(condition.op, *condition.args)
    for way in (one, one.mirrored):
        if items_of(way.right) == {right} and items_of(way.left) and items_of(way.left) <= left:
            return way
    return None
