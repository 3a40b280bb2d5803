"""Groups and aggregates: lists of values, summed as fractions."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from datastem.types import Kind
from querystem.expressions import Scalar
from querystem.grouping import Aggregate, Function, Grouping, aggregate_name, key_name
from tests.oracle import numbers
from tests.oracle.evaluator import evaluate_row

Row = Mapping[str, Any]

# Repeats make no difference to these.
_PICKING = (Function.MIN, Function.MAX, Function.FIRST, Function.LAST)
_DIGITS = Context(prec=2500, Emin=-999999, Emax=999999)


def identity(value: Any) -> Any:
    """Equal for values that are one in a group: NaN for NaN, and -0.0 for 0.0."""
    if isinstance(value, float):
        return ("NaN",) if math.isnan(value) else value + 0.0
    return value


def naive_groups(grouping: Grouping, rows: Sequence[Row]) -> list[Row]:
    """Return a row for each group, by its keys, NULLs last. `rows` are by (ts, row_id)."""
    groups: dict[Any, list[Row]] = {} if grouping.keys else {(): []}
    keys: dict[Any, list[Scalar]] = {}
    for row in rows:
        values = [evaluate_row(key, row) for key in grouping.keys]
        place = tuple(identity(value) for value in values)
        groups.setdefault(place, []).append(row)
        keys[place] = [value + 0.0 if isinstance(value, float) else value for value in values]
    group_rows = [
        {
            **{key_name(n): value for n, value in enumerate(keys.get(place, []))},
            **{
                aggregate_name(n): naive_aggregate(aggregate, members)
                for n, aggregate in enumerate(grouping.aggregates)
            },
        }
        for place, members in groups.items()
    ]
    names = [key_name(n) for n in range(len(grouping.keys))]
    return sorted(group_rows, key=functools.cmp_to_key(functools.partial(_by_keys, names)))


def compare(first: Any, second: Any, descending: bool, nulls_first: bool) -> int:
    if first is None or second is None:
        sign = int(first is None) - int(second is None)
        return -sign if nulls_first else sign
    sign = numbers.order(first, second)
    return -sign if descending else sign


def _by_keys(names: Sequence[str], first: Row, second: Row) -> int:
    signs = (compare(first[name], second[name], False, False) for name in names)
    return next((sign for sign in signs if sign), 0)


def naive_aggregate(aggregate: Aggregate, rows: Sequence[Row]) -> Scalar:
    if aggregate.function is Function.COUNT_ROWS or aggregate.argument is None:
        return len(rows)
    every = [evaluate_row(aggregate.argument, row) for row in rows]
    values = [value for value in every if value is not None]
    if aggregate.distinct and aggregate.function not in _PICKING:
        values = list({identity(value): value for value in values}.values())
    if aggregate.function is Function.COUNT:
        return len(values)
    if not values:
        return None
    return _of_values(aggregate, values)


def _of_values(aggregate: Aggregate, values: list[Any]) -> Scalar:
    match aggregate.function:
        case Function.FIRST:
            chosen: Scalar = values[0]
            return chosen
        case Function.LAST:
            return _last(values)
        case Function.MIN | Function.MAX:
            ordered = sorted(values, key=functools.cmp_to_key(numbers.order))
            return _last(ordered if aggregate.function is Function.MAX else ordered[::-1])
        case Function.STDDEV | Function.VARIANCE:
            return _spread(aggregate.function, values, len(values) - 1)
        case Function.STDDEV_POP | Function.VAR_POP:
            return _spread(aggregate.function, values, len(values))
        case Function.PERCENTILE:
            assert aggregate.fraction is not None
            return _percentile(values, aggregate.fraction)
    if special := [value for value in values if not _is_finite(value)]:
        return float(sum(special))
    total = sum((Fraction(value) for value in values), Fraction(0))
    if aggregate.function is Function.AVG:
        total = Fraction(total, len(values))
    if aggregate.type.kind is Kind.DOUBLE:
        return numbers.as_double(total)
    return numbers.from_fraction(total, aggregate.type)


def _last(values: list[Any]) -> Scalar:
    chosen: Scalar = values[-1]
    return chosen


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _spread(function: Function, values: list[Any], divisor: int) -> Scalar:
    if not divisor:
        return None
    if not all(_is_finite(value) for value in values):
        return math.nan
    exact = [Fraction(value) for value in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    squares = sum(((value - mean) * (value - mean) for value in exact), Fraction(0))
    variance = squares / divisor
    if function in (Function.VARIANCE, Function.VAR_POP):
        return numbers.as_double(variance)
    quotient = _DIGITS.divide(Decimal(variance.numerator), Decimal(variance.denominator))
    return float(_DIGITS.sqrt(quotient))


def _percentile(values: list[Any], fraction: float) -> float:
    """Return the value at fraction * (n - 1) of the sorted ones, interpolated in doubles."""
    ordered = sorted(values, key=functools.cmp_to_key(numbers.order))
    place = (len(ordered) - 1) * fraction
    below, above = (ordered[whole] for whole in (math.floor(place), math.ceil(place)))
    low, high = _as_double(below), _as_double(above)
    weight = place - math.floor(place)
    if not weight or numbers.order(below, above) == 0:
        return low
    return low * (1.0 - weight) + high * weight


def _as_double(value: Any) -> float:
    return value + 0.0 if isinstance(value, float) else numbers.as_double(Fraction(value))
