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
    conditions = without_differences(
        [condition for condition in _conjuncts(on) if condition != TRUE]
    )
    return [JoinFactor(condition, items_of(condition)) for condition in conditions]


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
        [factor.condition for factor in factors if factor.items.isdisjoint(numbers)],
        [factor.condition for factor in factors if not factor.items.isdisjoint(numbers)],
    )
    return conjunction(parted[0]), conjunction(parted[1])


def conjunction(conditions: Sequence[Expression]) -> Expression:
    """Return the AND of some conditions."""
    if len(conditions) < 2:
        return conditions[0] if conditions else TRUE
    return Call(Op.AND, tuple(conditions), BOOLEAN)


def items_of(expression: Expression) -> frozenset[int]:
    """Return the numbers of the items whose columns an expression reads."""
    return frozenset(item_of(name) for name in columns_of(expression))


def item_of(column: str) -> int:
    """Return the item's number in a name that `querystem.sources.item_column` has made."""
    return int(column.partition(".")[0])


def comparison(factor: JoinFactor, joined: frozenset[int], item: int) -> Comparison | None:
    """Return the factor as a comparison of the joined items with another item; None if it is
    anything else."""
    condition = factor.condition
    if not isinstance(condition, Call) or condition.op not in MIRROR:
        return None
    compared = Comparison(condition.op, *condition.args)
    # The sides of a condition may be written in either order; `right` has to be the item alone.
    for way in (compared, compared.mirrored):
        left_items = items_of(way.left)
        if items_of(way.right) == {item} and left_items and left_items <= joined:
            return way
    return None
