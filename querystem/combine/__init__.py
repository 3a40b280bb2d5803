"""Combinations: the rows of a query's legs become the rows of its source.

A leg's rows are given: those that its window has chosen and its predicate matches. Items of FROM
are joined, set operations done, queries inside queries answered.

    reads        which columns of each leg that takes
    combining    the walk over the tree
    parts        which legs' row ids are in a combination
    rows         the rows of one item, on their way
    sets         UNION, INTERSECT, EXCEPT
    lookups      rows of keyed streams as of other rows
    subqueries   EXISTS, ANY and scalar queries inside expressions
"""

from querystem.combine.combining import Combining, JoiningPart, JoinRun, LegInput
from querystem.combine.reads import from_reads, leg_reads, side_reads
from querystem.combine.rows import ItemRows, LegColumns, LegItem, is_every

__all__ = [
    "Combining",
    "ItemRows",
    "JoinRun",
    "JoiningPart",
    "LegColumns",
    "LegInput",
    "LegItem",
    "from_reads",
    "is_every",
    "leg_reads",
    "side_reads",
]
