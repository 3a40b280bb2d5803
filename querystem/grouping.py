"""GROUP BY and its aggregates, as the binder makes them and a registration keeps them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from datastem.types import Type, parse_type
from querystem.expressions import Expression, from_json, to_json


class Function(enum.Enum):
    """An aggregate function. All but COUNT_ROWS leave out NULLs; over nothing COUNT is 0 and the
    others are NULL."""

    COUNT_ROWS = "count(*)"
    COUNT = "count"
    SUM = "sum"  # BIGINT (NULL if it overflows), DECIMAL(38,s) or DOUBLE, exactly rounded
    AVG = "avg"  # DOUBLE, or DECIMAL(38, max(6, s))
    MIN = "min"
    MAX = "max"
    STDDEV = "stddev"  # of the sample, DOUBLE; NULL for fewer than two
    STDDEV_POP = "stddev_pop"  # of all values
    VARIANCE = "variance"  # of the sample, DOUBLE; NULL for fewer than two
    VAR_POP = "var_pop"
    PERCENTILE = "percentile"  # at a fraction, interpolated, DOUBLE
    FIRST = "first"  # by (ts, row_id), of the values that are not NULL
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate of a grouping; only a percentile has a `fraction`."""

    function: Function
    argument: Expression | None
    distinct: bool
    type: Type
    fraction: float | None = None


@dataclass(frozen=True)
class Grouping:
    """GROUP BY and the aggregates; without keys all rows are one group, even no rows."""

    keys: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The keys and the arguments of the aggregates."""
        arguments = [aggregate.argument for aggregate in self.aggregates]
        return *self.keys, *(argument for argument in arguments if argument is not None)

    def mapped(self, change: Callable[[Expression], Expression]) -> Grouping:
        """Return this grouping with its keys and the arguments of its aggregates changed."""
        aggregates = [
            aggregate
            if aggregate.argument is None
            else replace(aggregate, argument=change(aggregate.argument))
            for aggregate in self.aggregates
        ]
        return Grouping(tuple(change(key) for key in self.keys), tuple(aggregates))

    def __hash__(self) -> int:
        """Return the hash, which is computed once, because groupings are keys of caches."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.keys, self.aggregates))


def key_name(number: int) -> str:
    """Return the column of a grouping's key; no stream can declare such a name."""
    return f"$key{number}"


def aggregate_name(number: int) -> str:
    return f"$aggregate{number}"


def grouping_to_json(grouping: Grouping) -> dict[str, Any]:
    return {
        "keys": [to_json(key) for key in grouping.keys],
        "aggregates": [
            [
                aggregate.function.value,
                None if aggregate.argument is None else to_json(aggregate.argument),
                aggregate.distinct,
                str(aggregate.type),
                *([] if aggregate.fraction is None else [aggregate.fraction]),
            ]
            for aggregate in grouping.aggregates
        ],
    }


def grouping_from_json(form: Mapping[str, Any]) -> Grouping:
    return Grouping(
        tuple(from_json(key) for key in form["keys"]),
        tuple(
            Aggregate(
                Function(function),
                None if argument is None else from_json(argument),
                distinct,
                parse_type(type_),
                *fraction,
            )
            for function, argument, distinct, type_, *fraction in form["aggregates"]
        ),
    )
