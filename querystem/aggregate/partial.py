"""Aggregates of some of the rows, and how those of more rows come from them.

`merge([partial(g, a), partial(g, b)])` says the same as `partial(g, a + b)`, in any order and
any nesting: nothing is rounded before `finish`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import canonical, codes
from querystem.aggregate.counts import Counts
from querystem.aggregate.distinct import Distinct
from querystem.aggregate.extremes import Ends, Extremes
from querystem.aggregate.limbs import MOST_TERMS
from querystem.aggregate.needs import Kept, Need, needs
from querystem.aggregate.sums import Sums
from querystem.expressions import ColumnRef, Expression
from querystem.kernel import evaluate
from querystem.query import Grouping

State = Counts | Sums | Extremes | Ends | Distinct

_OVERHEAD = 1000


@dataclass(frozen=True, slots=True)
class Partial:
    """`keys` hold each group once, in no order; `states` are as `needs(grouping)` lists them."""

    groups: int
    keys: tuple[pa.Array, ...]
    states: tuple[State, ...]

    @property
    def nbytes(self) -> int:
        held = [*self.keys, *self.states]
        return _OVERHEAD + sum(int(one.nbytes) for one in held)


def partial(grouping: Grouping, rows: pa.RecordBatch) -> Partial:
    """`rows` as the kernel sees them: the columns the grouping reads, `ts` and `row_id`."""
    slices = [
        _partial(grouping, rows.slice(start, MOST_TERMS))
        for start in range(0, max(rows.num_rows, 1), MOST_TERMS)
    ]
    return merge(slices)


def merge(partials: Sequence[Partial]) -> Partial:
    """Of one grouping, at least one. The cost grows with the groups, not with their rows."""
    if len(partials) == 1:
        return partials[0]
    count = sum(one.groups for one in partials)
    keys = [
        pa.concat_arrays(columns) for columns in zip(*(one.keys for one in partials), strict=True)
    ]
    code, firsts = codes(keys, count)
    groups = len(firsts)
    states = tuple(
        type(parts[0]).merge(parts, code, groups)
        for parts in zip(*(one.states for one in partials), strict=True)
    )
    return Partial(groups, _first_keys(keys, firsts), states)


def values_of(expression: Expression, rows: pa.RecordBatch) -> pa.Array:
    if isinstance(expression, ColumnRef):
        return rows.column(expression.name)
    return evaluate(expression, rows)


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
    """The values that are not NULL, the groups of their rows, and which rows these are."""

    values: pa.Array
    codes: Int64s
    known: Any

    def instants(self, rows: pa.RecordBatch, name: str) -> Int64s:
        numbers: Int64s = rows.column(name).view(pa.int64()).to_numpy()
        return numbers if self.known is None else numbers[self.known]


def _argument(expression: Expression, rows: pa.RecordBatch, code: Int64s) -> _Argument:
    values = values_of(expression, rows)
    if not values.null_count:
        return _Argument(values, code, None)
    known = values.is_valid().to_numpy(zero_copy_only=False)
    return _Argument(values.drop_null(), code[known], known)


def _state(
    need: Need,
    rows: pa.RecordBatch,
    code: Int64s,
    groups: int,
    arguments: dict[Expression, _Argument],
) -> State:
    if need.argument is None:
        return Counts.of(code, groups)
    if need.argument not in arguments:
        arguments[need.argument] = _argument(need.argument, rows, code)
    found, type_ = arguments[need.argument], need.argument.type
    match need.kept:
        case Kept.SUM | Kept.SQUARES:
            squared = need.kept is Kept.SQUARES
            return Sums.of(found.values, type_, squared, found.codes, groups)
        case Kept.MIN | Kept.MAX:
            greatest = need.kept is Kept.MAX
            return Extremes.of(found.values, type_, greatest, found.codes, groups)
        case Kept.FIRST | Kept.LAST:
            ts, ids = found.instants(rows, "ts"), found.instants(rows, "row_id")
            latest = need.kept is Kept.LAST
            return Ends.of(found.values, ts, ids, latest, found.codes, groups)
        case Kept.DISTINCT:
            return Distinct.of(found.values, found.codes, groups)
    return Counts.of(found.codes, groups)
