"""The place of each leg among the parts that name a combination."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from querystem.identity import slides
from querystem.query import From, Item, LeftJoin, Leg, Query, SetOperation, Source


@dataclass(frozen=True, slots=True)
class PartPlace:
    """The place of a leg's row ids among the parts of combinations.

    They are part number `column`. For each UNION ALL around the leg, `branches` has the number of
    the part that holds the branch number, and the number of the leg's branch. Only combinations
    with these branch numbers have a row of the leg.
    """

    column: int
    branches: tuple[tuple[int, int], ...]

    @property
    def leads(self) -> bool:
        """Whether no other leg's row id comes before this one's."""
        return self.column == len(self.branches)

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


def _places(
    source: Source | Item, column: int, branches: tuple[tuple[int, int], ...]
) -> Iterator[PartPlace]:
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
