"""Edges: what connects two legs, and the numbers of its sides.

Links are numbered in the order of the edges. Link n between legs i < j has two sides: side 2n is
leg i seen from j, side 2n + 1 is leg j seen from i. Rows that the key of a link finds are
candidates; the condition of the edge decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from psoup.engine.composites.lookup.hashes import HashKey
from psoup.engine.composites.lookup.ranges import RangeKey
from querystem.composites import Shape
from querystem.expressions import Expression, columns_of
from querystem.join.factors import item_of
from querystem.links import LegEdge, Link

LinkKey: TypeAlias = HashKey | RangeKey


@dataclass(frozen=True)
class KeyEdge:
    """What connects two legs: their condition, and the links that find the rows for which it is
    true. The sides of the links are numbered from `first_side` on."""

    edge: LegEdge
    span: int | None = None
    first_side: int = 0

    @property
    def legs(self) -> tuple[int, int]:
        return self.edge.legs

    @property
    def condition(self) -> Expression:
        return self.edge.condition

    @cached_property
    def keys(self) -> tuple[LinkKey, ...]:
        """The keys of the links."""
        return tuple(_link_key(link, self.span) for link in self.edge.links)

    @property
    def is_hashed(self) -> bool:
        """Whether equalities alone connect the legs, none of them in an OR."""
        return len(self.keys) == 1 and isinstance(self.keys[0], HashKey)

    def columns(self, end: int) -> frozenset[str]:
        """Return the columns that the condition reads of the leg at `end`, 0 or 1."""
        names = columns_of(self.condition)
        return frozenset(name for name in names if item_of(name) == self.legs[end])


def _link_key(link: Link, span: int | None) -> LinkKey:
    if not link.is_range:
        pairs = tuple((equality.left, equality.right) for equality in link.comparisons)
        return HashKey(pairs, span)
    assert span is not None, "rows that an inequality joins are near in time"
    return RangeKey(link.comparisons, span)


def key_edges(shape: Shape) -> tuple[KeyEdge, ...]:
    """Return the edges of a composite."""
    return numbered(shape.edges, shape.span)


def numbered(edges: Sequence[LegEdge], span: int | None) -> tuple[KeyEdge, ...]:
    """Return edges with the numbers of their sides."""
    keyed, side = list[KeyEdge](), 0
    for edge in edges:
        keyed.append(KeyEdge(edge, span, side))
        side += 2 * len(edge.links)
    return tuple(keyed)


@dataclass(frozen=True)
class LinkSide:
    """One side of a link: its number, its edge, its key, and which leg of the edge it is."""

    number: int
    edge: KeyEdge
    key: LinkKey
    end: int

    @property
    def leg(self) -> int:
        return self.edge.legs[self.end]


def all_sides(edges: Sequence[KeyEdge]) -> Iterator[LinkSide]:
    """Yield the sides of all links in the order of their numbers."""
    for edge in edges:
        for place, key in enumerate(edge.keys):
            for end in (0, 1):
                yield LinkSide(edge.first_side + 2 * place + end, edge, key, end)


def sides_of(edges: Sequence[KeyEdge], leg: int) -> list[LinkSide]:
    """Return the sides of a leg."""
    return [side for side in all_sides(edges) if side.leg == leg]


def leg_columns(edges: Sequence[KeyEdge], leg: int) -> frozenset[str]:
    """Return the columns of a leg that edges read."""
    columns = [edge.columns(edge.legs.index(leg)) for edge in edges if leg in edge.legs]
    return frozenset(name for names in columns for name in names)
