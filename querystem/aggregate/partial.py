"""Partial aggregates: those of some of the rows, which merge into those of more rows.

`merge([partial(g, a), partial(g, b)])` equals `partial(g, a + b)`, in any order and any nesting:
nothing is rounded before `finish`. A state that several aggregates of a grouping need is there
once.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import canonical, codes
from querystem.aggregate.limbs import MOST_TERMS
from querystem.aggregate.runs import NumberRuns
from querystem.aggregate.states import Counts, Distinct, Ends, Extremes, Sums
from querystem.expressions import Expression
from querystem.grouping import Aggregate, Function, Grouping
from querystem.kernel import values_of


class StateKind(enum.Enum):
    """The kinds of state of a group's rows, or of the values of an argument."""

    ROWS = enum.auto()
    COUNT = enum.auto()
    SUM = enum.auto()
    SQUARES = enum.auto()
    MIN = enum.auto()
    MAX = enum.auto()
    FIRST = enum.auto()
    LAST = enum.auto()
    DISTINCT = enum.auto()
    RUNS = enum.auto()


@dataclass(frozen=True, slots=True)
class Need:
    """A state that aggregates of a grouping need, be it one aggregate or several."""

    kind: StateKind
    argument: Expression | None


# Functions of the distances from the mean.
SPREADS = frozenset({Function.STDDEV, Function.STDDEV_POP, Function.VARIANCE, Function.VAR_POP})
_PLAIN = {
    Function.COUNT_ROWS: (StateKind.ROWS,),
    Function.COUNT: (StateKind.COUNT,),
    Function.SUM: (StateKind.COUNT, StateKind.SUM),
    Function.AVG: (StateKind.COUNT, StateKind.SUM),
    **dict.fromkeys(SPREADS, (StateKind.COUNT, StateKind.SUM, StateKind.SQUARES)),
    Function.PERCENTILE: (StateKind.RUNS,),
    Function.MIN: (StateKind.MIN,),
    Function.MAX: (StateKind.MAX,),
    Function.FIRST: (StateKind.FIRST,),
    Function.LAST: (StateKind.LAST,),
}
_COUNTING = SPREADS | {Function.COUNT, Function.SUM, Function.AVG, Function.PERCENTILE}


@lru_cache(maxsize=4096)
def needs(grouping: Grouping) -> tuple[Need, ...]:
    """Return the states that a grouping needs, each once."""
    distinct = dict.fromkeys(
        need for aggregate in grouping.aggregates for need in _needs_of(aggregate)
    )
    return tuple(distinct)


@lru_cache(maxsize=4096)
def places(grouping: Grouping) -> tuple[tuple[int, ...], ...]:
    """Return the places in `needs(grouping)` of each aggregate's needs."""
    every = needs(grouping)
    return tuple(
        tuple(every.index(need) for need in _needs_of(aggregate))
        for aggregate in grouping.aggregates
    )


def _needs_of(aggregate: Aggregate) -> tuple[Need, ...]:
    """Return the needs of one aggregate; DISTINCT makes no difference to functions that pick one
    value."""
    if aggregate.distinct and aggregate.function in _COUNTING:
        return (Need(StateKind.DISTINCT, aggregate.argument),)
    return tuple(Need(kind, aggregate.argument) for kind in _PLAIN[aggregate.function])


GroupState = Counts | Sums | Extremes | Ends | Distinct | NumberRuns

# What a partial takes besides its arrays, about.
_OVERHEAD_BYTES = 1000


@dataclass(frozen=True, slots=True)
class Partial:
    """The groups of some rows: the `keys` of each, in no order, and a state for each need."""

    groups: int
    keys: tuple[pa.Array, ...]
    states: tuple[GroupState, ...]

    @property
    def nbytes(self) -> int:
        arrays = [*self.keys, *self.states]
        return _OVERHEAD_BYTES + sum(int(array.nbytes) for array in arrays)


def partial(grouping: Grouping, rows: pa.RecordBatch) -> Partial:
    """Return the partial aggregates of `rows`, which have the columns the grouping reads, `ts` and
    `row_id`."""
    # A slice has at most the rows whose sums are exact. No rows are one slice too: without keys
    # they are one group.
    slices = [
        _partial(grouping, rows.slice(start, MOST_TERMS))
        for start in range(0, max(rows.num_rows, 1), MOST_TERMS)
    ]
    return merge(slices)


def merge(partials: Sequence[Partial]) -> Partial:
    """Return the partial aggregates of all the rows of one or more partials of one grouping.

    The cost grows with the number of groups, not with that of their rows.
    """
    if len(partials) == 1:
        return partials[0]
    count = sum(part.groups for part in partials)
    keys = [
        pa.concat_arrays(columns) for columns in zip(*(part.keys for part in partials), strict=True)
    ]
    # The keys are canonical: `_partial` has made them so.
    code, firsts = codes(keys, count)
    groups = len(firsts)
    states = tuple(
        type(parts[0]).merge(parts, code, groups)
        for parts in zip(*(part.states for part in partials), strict=True)
    )
    return Partial(groups, _first_keys(keys, firsts), states)


def _partial(grouping: Grouping, rows: pa.RecordBatch) -> Partial:
    keys = [canonical(values_of(key, rows)) for key in grouping.keys]
    code, firsts = codes(keys, rows.num_rows)
    groups = len(firsts) if keys else 1
    arguments: dict[Expression, _Argument] = {}
    states = tuple(_state(need, rows, code, groups, arguments) for need in needs(grouping))
    return Partial(groups, _first_keys(keys, firsts), states)


def _first_keys(keys: Sequence[pa.Array], firsts: Int64s) -> tuple[pa.Array, ...]:
    return tuple(key.take(pa.array(firsts)) for key in keys)


@dataclass(frozen=True, slots=True)
class _Argument:
    """The values of an aggregate's argument that are not NULL, the groups of their rows, and a mask
    of the rows that have a value (None: all)."""

    values: pa.Array
    codes: Int64s
    is_valid: Any

    def instants(self, rows: pa.RecordBatch, name: str) -> Int64s:
        numbers: Int64s = rows.column(name).view(pa.int64()).to_numpy()
        return numbers if self.is_valid is None else numbers[self.is_valid]


def _argument(expression: Expression, rows: pa.RecordBatch, code: Int64s) -> _Argument:
    values = values_of(expression, rows)
    if not values.null_count:
        return _Argument(values, code, None)
    is_valid = values.is_valid().to_numpy(zero_copy_only=False)
    return _Argument(values.drop_null(), code[is_valid], is_valid)


def _state(
    need: Need,
    rows: pa.RecordBatch,
    code: Int64s,
    groups: int,
    arguments: dict[Expression, _Argument],
) -> GroupState:
    if need.argument is None:
        return Counts.of(code, groups)
    # Several needs may have one argument, which is evaluated once.
    if need.argument not in arguments:
        arguments[need.argument] = _argument(need.argument, rows, code)
    argument, type_ = arguments[need.argument], need.argument.type
    match need.kind:
        case StateKind.SUM | StateKind.SQUARES:
            squared = need.kind is StateKind.SQUARES
            return Sums.of(argument.values, type_, squared, argument.codes, groups)
        case StateKind.MIN | StateKind.MAX:
            greatest = need.kind is StateKind.MAX
            return Extremes.of(argument.values, type_, greatest, argument.codes, groups)
        case StateKind.FIRST | StateKind.LAST:
            ts, ids = argument.instants(rows, "ts"), argument.instants(rows, "row_id")
            latest = need.kind is StateKind.LAST
            return Ends.of(argument.values, ts, ids, latest, argument.codes, groups)
        case StateKind.DISTINCT:
            return Distinct.of(argument.values, argument.codes, groups)
        case StateKind.RUNS:
            return NumberRuns.of(argument.values, type_, argument.codes, groups)
    return Counts.of(argument.codes, groups)
