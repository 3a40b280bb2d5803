"""The values of aggregates, from the states of groups. Nothing is rounded before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Doubles, Int64s, Mask
from datastem.types import DOUBLE, Kind, Type
from querystem.aggregate.limbs import DOUBLE_UNIT, MOST_TERMS
from querystem.aggregate.partial import SPREADS, GroupState, Partial, places
from querystem.aggregate.rounding import averages, spreads, to_doubles, to_integers
from querystem.aggregate.runs import NumberRuns
from querystem.aggregate.states import MINUS, NAN, PLUS, Counts, Distinct, Ends, Extremes, Sums
from querystem.grouping import Aggregate, Function, Grouping, aggregate_name, key_name
from querystem.kernel import integers
from querystem.kernel.arithmetic import fit
from querystem.kernel.vector import Vector, to_arrow
from querystem.ordering import ascending, sort, with_nulls

_NOTHING = "nothing"


def finish(grouping: Grouping, partial: Partial) -> pa.RecordBatch:
    """Return a row for each group, by ascending keys with NULLs last; without keys one row.

    The columns are `key_name(n)`, then `aggregate_name(n)`.
    """
    columns = {key_name(number): key for number, key in enumerate(partial.keys)}
    for number, state_places in enumerate(places(grouping)):
        states = [partial.states[place] for place in state_places]
        values = _finish(grouping.aggregates[number], states, partial.groups)
        columns[aggregate_name(number)] = values
    if not columns:
        # A batch without columns has no rows, and one group is one row.
        columns[_NOTHING] = pa.nulls(partial.groups)
    rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    if partial.groups < 2:
        return rows
    rankers = [
        ranker
        for expression, key in zip(grouping.keys, partial.keys, strict=True)
        for ranker in with_nulls(key, ascending(key, expression.type), first=False)
    ]
    return rows.take(pa.array(sort(rankers, np.arange(partial.groups))))


def _finish(aggregate: Aggregate, states: list[GroupState], groups: int) -> pa.Array:
    match states:
        case [Extremes(values) | Ends(values)]:
            return values
        case [Distinct() as distinct]:
            states = _of_distinct(aggregate, distinct)
    match states:
        case [NumberRuns() as runs]:
            assert aggregate.fraction is not None
            return _doubles(*runs.percentiles(aggregate.fraction, _source(aggregate)))
        case [Counts(numbers)]:
            return pa.array(numbers)
        case [Counts(numbers), Sums() as sums, *squares]:
            return to_arrow(_number(aggregate, numbers, sums, squares), groups)
    raise AssertionError(aggregate)


def _doubles(values: Doubles, has_value: Mask) -> pa.Array:
    return to_arrow(Vector(DOUBLE, values, has_value), len(values))


def _of_distinct(aggregate: Aggregate, distinct: Distinct) -> list[GroupState]:
    if aggregate.function is Function.PERCENTILE:
        type_ = _source(aggregate)
        return [NumberRuns.of(distinct.values, type_, distinct.codes, distinct.groups)]
    counts = Counts.of(distinct.codes, distinct.groups)
    if aggregate.function is Function.COUNT or aggregate.argument is None:
        return [counts]
    kinds = [False, True] if aggregate.function in SPREADS else [False]
    return [counts, *[_distinct_sums(aggregate.argument.type, distinct, kind) for kind in kinds]]


def _distinct_sums(type_: Type, distinct: Distinct, squared: bool) -> Sums:
    groups = distinct.groups
    # A sum is exact for at most MOST_TERMS numbers at once, so longer lists are added in slices.
    slices = [
        Sums.of(
            distinct.values.slice(start, MOST_TERMS),
            type_,
            squared,
            distinct.codes[start : start + MOST_TERMS],
            groups,
        )
        for start in range(0, max(len(distinct.codes), 1), MOST_TERMS)
    ]
    # Every slice has all groups in the same order, so the codes are those groups, once per slice.
    return Sums.merge(slices, np.tile(np.arange(groups), len(slices)), groups)


def _number(aggregate: Aggregate, counts: Int64s, sums: Sums, squares: list[Any]) -> Vector:
    source, target = _source(aggregate), aggregate.type
    unit = DOUBLE_UNIT if source.kind is Kind.DOUBLE else 0
    if aggregate.function in SPREADS:
        of_sample = aggregate.function in (Function.STDDEV, Function.VARIANCE)
        is_root = aggregate.function in (Function.STDDEV, Function.STDDEV_POP)
        values = spreads(
            sums.limbs, squares[0].limbs, counts, unit, source.scale, int(of_sample), is_root
        )
        values = _with_flags(values, sums, NAN | PLUS | MINUS)
        # One infinite value is no less spread than two.
        return Vector(target, values, counts > int(of_sample))
    if aggregate.function is Function.AVG and target.kind is Kind.DECIMAL:
        # The sum is brought to the target's scale first, and rounded once by the division.
        shifted = integers.multiply(
            to_integers(sums.limbs), integers.constant(10 ** (target.scale - source.scale))
        )
        # A count of 0 must not divide; the result of such a group is NULL.
        average = integers.divide_rounding(shifted, np.maximum(counts, 1))
        return fit(average, target.scale, target, counts > 0)
    if target.kind is Kind.DOUBLE:
        is_sum = aggregate.function is Function.SUM
        values = to_doubles(sums.limbs, unit) if is_sum else averages(sums.limbs, counts, unit)
        return Vector(target, _with_flags(values, sums, NAN), counts > 0)
    return fit(to_integers(sums.limbs), source.scale, target, counts > 0)


def _source(aggregate: Aggregate) -> Type:
    if aggregate.argument is None:
        raise TypeError(f"{aggregate.function.value} needs an argument")
    return aggregate.argument.type


def _with_flags(values: Any, sums: Sums, nan: int) -> Any:
    """Return the values of sums with their flags: infinite, or NaN for a flag in `nan` or both
    infinities."""
    flags = sums.flags
    if flags is None:
        return values
    values = np.where(flags & PLUS, np.inf, values)
    values = np.where(flags & MINUS, -np.inf, values)
    both = (flags & (PLUS | MINUS)) == PLUS | MINUS
    return np.where((flags & nan).astype(np.bool_) | both, np.nan, values)
