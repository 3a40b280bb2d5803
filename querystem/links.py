"""Links: how a condition of a join finds the rows of one leg by those of another.

A comparison of two legs is a link: equal values are looked up by their hash, greater and lesser
ones in an order. An OR finds the rows of all its parts. A link finds candidates, the condition then
decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from datastem.types import BOOLEAN, Kind, Type
from querystem.expressions import Call, Expression, Op
from querystem.join.differences import MIRROR, without_differences
from querystem.join.factors import Comparison, conjunction, items_of
from querystem.language.normal_form.rewrite import conjuncts

# Decimals of more digits do not fit the 64 bits of an ordered key.
_MAX_KEY_DIGITS = 18
_MOMENTS = frozenset({Kind.TIMESTAMP, Kind.DATE, Kind.DURATION})


@dataclass(frozen=True)
class Link:
    """Comparisons of one leg, on the left, with another, on the right, all of which are true of the
    rows that the link finds: all are equalities, or none is."""

    comparisons: tuple[Comparison, ...]

    @property
    def is_range(self) -> bool:
        return self.comparisons[0].op is not Op.EQ

    @cached_property
    def condition(self) -> Expression:
        return conjunction(
            [
                Call(comparison.op, (comparison.left, comparison.right), BOOLEAN)
                for comparison in self.comparisons
            ]
        )


@dataclass(frozen=True)
class LegEdge:
    """What connects two legs, the lesser first: their condition, and the links one of which finds
    each pair of rows for which it is true."""

    legs: tuple[int, int]
    links: tuple[Link, ...]
    condition: Expression

    @property
    def is_range(self) -> bool:
        return any(link.is_range for link in self.links)


def edge_of(legs: tuple[int, int], factors: Sequence[Expression]) -> LegEdge:
    """Return the edge that these factors, which compare the two legs, make together."""
    plain = [factor for factor in factors if len(links_of(factor)) == 1]
    hashed = [factor for factor in plain if not _has_range(factor)]
    unions = [factor for factor in factors if factor not in plain]
    # The least likely to find many rows first. Conditions that all must hold find fewer together.
    if hashed:
        chosen = conjunction(hashed)
    elif unions and not all(map(_has_range, unions)):
        chosen = next(factor for factor in unions if not _has_range(factor))
    else:
        chosen = conjunction(plain) if plain else unions[0]
    return LegEdge(legs, links_of(chosen), conjunction(factors))


def _has_range(condition: Expression) -> bool:
    return any(link.is_range for link in links_of(condition))


def links_of(condition: Expression) -> tuple[Link, ...]:
    """Return links that find every pair of rows for which a condition of two legs is true; empty if
    there are none, or if the condition is about one leg or about more than two."""
    legs = items_of(condition)
    if len(legs) != 2:
        return ()
    match condition:
        case Call(Op.OR, parts, _):
            links = [link for part in parts if (link := _link(part))]
            return tuple(links) if len(links) == len(parts) else ()
    link = _link(condition)
    return () if link is None else (link,)


def _link(condition: Expression) -> Link | None:
    """Return the link of a condition without OR: its equalities, or else its inequalities."""
    separated = without_differences(conjuncts(condition))
    comparisons = [comparison for part in separated if (comparison := _comparison(part))]
    equalities = [comparison for comparison in comparisons if comparison.op is Op.EQ]
    ordered = [comparison for comparison in comparisons if _has_order(comparison)]
    chosen = equalities or ordered
    return Link(tuple(chosen)) if chosen else None


def _comparison(condition: Expression) -> Comparison | None:
    """Return a condition as a comparison of two legs, the lesser on the left; None if it is
    anything else."""
    if not isinstance(condition, Call) or condition.op not in MIRROR:
        return None
    sides = [items_of(side) for side in condition.args]
    if any(len(side) != 1 for side in sides) or sides[0] == sides[1]:
        return None
    compared = Comparison(condition.op, *condition.args)
    return compared if min(sides[0]) < min(sides[1]) else compared.mirrored


def _has_order(comparison: Comparison) -> bool:
    """Return True if both values have ordered keys of 64 bits."""
    types = comparison.left.type, comparison.right.type
    if all(type_.is_numeric for type_ in types):
        return all(_fits(type_) for type_ in types)
    return types[0].kind in _MOMENTS and types[0].kind is types[1].kind


def _fits(type_: Type) -> bool:
    return type_.kind is not Kind.DECIMAL or type_.precision <= _MAX_KEY_DIGITS
