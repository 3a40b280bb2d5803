"""What is kept for the aggregates of a grouping: each thing once, however many ask for it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import lru_cache

from querystem.expressions import Expression
from querystem.query import Aggregate, Function, Grouping


class Kept(enum.Enum):
    ROWS = enum.auto()
    COUNT = enum.auto()
    SUM = enum.auto()
    SQUARES = enum.auto()
    MIN = enum.auto()
    MAX = enum.auto()
    FIRST = enum.auto()
    LAST = enum.auto()
    DISTINCT = enum.auto()


@dataclass(frozen=True, slots=True)
class Need:
    kept: Kept
    argument: Expression | None


_PLAIN = {
    Function.COUNT_ROWS: (Kept.ROWS,),
    Function.COUNT: (Kept.COUNT,),
    Function.SUM: (Kept.COUNT, Kept.SUM),
    Function.AVG: (Kept.COUNT, Kept.SUM),
    Function.STDDEV: (Kept.COUNT, Kept.SUM, Kept.SQUARES),
    Function.MIN: (Kept.MIN,),
    Function.MAX: (Kept.MAX,),
    Function.FIRST: (Kept.FIRST,),
    Function.LAST: (Kept.LAST,),
}
_COUNTING = frozenset({Function.COUNT, Function.SUM, Function.AVG, Function.STDDEV})


@lru_cache(maxsize=4096)
def needs(grouping: Grouping) -> tuple[Need, ...]:
    found = dict.fromkeys(need for one in grouping.aggregates for need in needs_of(one))
    return tuple(found)


@lru_cache(maxsize=4096)
def places(grouping: Grouping) -> tuple[tuple[int, ...], ...]:
    """For each aggregate, which of the needs are its own."""
    every = needs(grouping)
    return tuple(tuple(every.index(need) for need in needs_of(one)) for one in grouping.aggregates)


def needs_of(aggregate: Aggregate) -> tuple[Need, ...]:
    """DISTINCT makes no difference to the functions that pick one value."""
    if aggregate.distinct and aggregate.function in _COUNTING:
        return (Need(Kept.DISTINCT, aggregate.argument),)
    return tuple(Need(kept, aggregate.argument) for kept in _PLAIN[aggregate.function])
