"""The place of each leg among the parts that name a combination."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s
from querystem.identity import slides
from querystem.legs import Leg
from querystem.query import Item, Query, Source
from querystem.sources import From, LeftJoin, SetOperation, SetOperator

# Pairs of a part that holds a branch number, and the number of a branch.
Branches = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PartPlace:
    """The place of a leg's row ids among the parts of combinations.

    They are part number `column`. For each UNION ALL around the leg, `branches` has the number of
    the part that holds the branch number, and the number of the leg's branch. Only combinations
    with these branch numbers have a row of the leg.
    """

    column: int
    branches: Branches

    @property
    def leads(self) -> bool:
        """Whether no other leg's row id comes before this one's."""
        return self.column == len(self.branches)

    def combinations(self, parts: Sequence[Int64s]) -> Int64s:
        """Return the numbers of the combinations with these parts that have a row of the leg, or
        a place for one."""
        mask = np.ones(len(parts[self.column]), np.bool_)
        for part, branch in self.branches:
            mask &= parts[part] == branch
        return np.flatnonzero(mask)

    def excludes(self, place: PartPlace) -> bool:
        """Return whether no combination has rows of both legs, because their branches differ."""
        branches = dict(place.branches)
        return any(branches.get(part, branch) != branch for part, branch in self.branches)


def is_selection(source: Source | Item) -> bool:
    """Return whether rows of a source are combinations of rows of its legs, each for itself: no
    groups, no repeats removed, no limits, and no windows over queries."""
    match source:
        case Leg():
            return source.as_of is None
        case From(items, _, subqueries):
            return not subqueries and all(is_selection(item) for item in items)
        case SetOperation(_, queries):
            return all(is_selection(query) for query in queries)
        case Query():
            return source.over is None and slides(source) and is_selection(source.source)
        case LeftJoin():
            return False


def part_places(source: From) -> tuple[PartPlace, ...]:
    """Return the places of the legs of a source that is a selection, in the order of the legs."""
    return tuple(_places(source, 0, ()))


def _places(source: Source | Item, column: int, branches: Branches) -> Iterator[PartPlace]:
    match source:
        case Leg():
            yield PartPlace(column, branches)
        case From(items):
            for item in items:
                yield from _places(item, column, branches)
                column += _width(item)
        case SetOperation(_, queries):
            for number, query in enumerate(queries):
                # A set operation puts the branch number into part `column`; the parts of the branch
                # follow it.
                yield from _places(query, column + 1, (*branches, (column, number)))
        case Query():
            yield from _places(source.source, column, branches)


@dataclass(frozen=True, slots=True)
class NamingLeg:
    """A leg whose rows name combinations: its number among the legs of the query, and its place."""

    leg: int
    place: PartPlace


def naming_legs(query: Query) -> tuple[NamingLeg, ...] | None:
    """Return the legs whose row ids are the parts of a query's rows; None if they are named in
    another way: by values, as groups are, or by a row that AS OF looks up."""
    if query.grouping is not None or query.distinct:
        return None
    walk = _Naming()
    walk.visit(query.source, 0, ())
    return None if walk.is_other else tuple(walk.legs)


class _Naming:
    """A walk over a source, which counts its legs and finds the places of those that name rows."""

    def __init__(self) -> None:
        self.legs: list[NamingLeg] = []
        self.is_other = False
        self._next_leg = 0

    def visit(self, source: Source | Item, column: int, branches: Branches) -> int:
        """Find the legs of a source whose parts begin at `column`; return how many parts it has."""
        match source:
            case Leg():
                self.legs.append(NamingLeg(self._next_leg, PartPlace(column, branches)))
                self._next_leg += 1
                self.is_other |= source.as_of is not None
                return 1
            case From(items, _, subqueries) if items:
                width = 0
                for item in items:
                    width += self.visit(item, column + width, branches)
                self._next_leg += sum(len(subquery.query.legs) for subquery in subqueries)
                return width
            case LeftJoin(left, right):
                width = self.visit(left, column, branches)
                return width + self.visit(right, column + width, branches)
            case SetOperation(operator, queries) if operator is SetOperator.UNION_ALL:
                return 1 + max(
                    self.visit(query, column + 1, (*branches, (column, number)))
                    for number, query in enumerate(queries)
                )
            case Query() if source.timed:
                return self.visit(source.source, column, branches)
        self.is_other = True
        return 1


def _width(source: Source | Item) -> int:
    """Return how many parts the rows of a source have."""
    match source:
        case From(items):
            return sum(_width(item) for item in items)
        case SetOperation(_, queries):
            # One part for the branch number. Narrower branches are padded to the width of the
            # widest.
            return 1 + max(_width(query) for query in queries)
        case Query():
            return _width(source.source)
    return 1
