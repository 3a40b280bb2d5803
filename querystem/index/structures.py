"""The structures in which a query SteM has its predicates: which one a predicate is found by.

A structure is picked when predicates are built, from all of the stream. Grids and look-ups by
patterns or alternatives leave a batch to bitmaps if these are cheaper for its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from querystem.expressions import Expression
from querystem.index.like.anchors import AnchorPlace


@dataclass(frozen=True, slots=True)
class Runs:
    """The predicates of one key: sorted by their bound of `sorted_by`, if they have one. What else
    they ask for is checked row by row, if `is_checked`."""

    sorted_by: Expression | None
    is_checked: bool


@dataclass(frozen=True, slots=True)
class HashTable:
    """A look-up of the values of operands that predicates fix."""

    count: int
    operands: tuple[Expression, ...]
    runs: Runs


@dataclass(frozen=True, slots=True)
class PatternTable:
    """A look-up of the pieces of patterns; `place` is where the piece of this one stands."""

    count: int
    operands: tuple[Expression, ...]
    place: AnchorPlace
    runs: Runs


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Several look-ups, of which one finds each row."""

    count: int
    parts: Sequence[HashTable | PatternTable]

    @property
    def operands(self) -> tuple[Expression, ...]:
        return tuple(dict.fromkeys(operand for part in self.parts for operand in part.operands))


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid of cells over two operands."""

    count: int
    operands: tuple[Expression, ...]
    cells: tuple[int, int]


@dataclass(frozen=True, slots=True)
class EveryBox:
    """Boxes that are too wide for a grid: a row of a small batch is compared with all of them."""

    count: int
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Bitmaps:
    """A bitmap for each distinct factor, from which those of predicates are made."""

    count: int
    operands: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class ByItself:
    """A predicate of so few that each is evaluated by itself."""

    count: int
    operands: tuple[Expression, ...] = ()


LookUp = HashTable | PatternTable
Structure = HashTable | PatternTable | AnyOf | Grid | EveryBox | Bitmaps | ByItself
