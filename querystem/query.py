"""A bound SELECT: what the binder makes of a text, and what a registration keeps.

The *predicate* (stream and WHERE, in normal form) is what gets matched and shared; everything
else belongs to the registration and applies when it is invoked, in this order: window and WHERE
choose rows; `grouping` turns them into one row per group; `having` keeps some; `outputs` are
computed; `distinct` removes repeats; `order_by`, `offset` and `limit` cut. `refresh` says as of
when all this is.

In a grouped query `having`, `outputs` and `order_by` see only the columns `key_name(n)` and
`aggregate_name(n)`; in any other they see the stream's.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from datastem.schema import Column
from datastem.types import Type, parse_type
from querystem.expressions import (
    TRUE,
    ColumnRef,
    Expression,
    columns_of,
    from_json,
    predicate_key,
    to_json,
    weight_of,
)
from querystem.refresh import Refresh, RefreshEvery, refresh_from_json, refresh_to_json
from results.window import Window, window_from_json, window_to_json


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    expression: Expression


class Function(enum.Enum):
    """NULLs are left out of all but COUNT_ROWS; over nothing COUNT is 0 and the others NULL."""

    COUNT_ROWS = "count(*)"
    COUNT = "count"
    SUM = "sum"  # BIGINT (NULL where it overflows), DECIMAL(38,s) or DOUBLE, exactly rounded
    AVG = "avg"  # DOUBLE, or DECIMAL(38, max(6, s))
    MIN = "min"
    MAX = "max"
    STDDEV = "stddev"  # of the sample, DOUBLE; NULL for fewer than two
    FIRST = "first"  # by (ts, row_id), of the values that are not NULL
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Aggregate:
    function: Function
    argument: Expression | None
    distinct: bool
    type: Type


@dataclass(frozen=True)
class Grouping:
    """Without keys all rows are one group, also where there are none."""

    keys: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]

    def __hash__(self) -> int:
        """Computed once: groupings are keys of caches."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.keys, self.aggregates))


@dataclass(frozen=True, slots=True)
class SortKey:
    expression: Expression
    descending: bool
    nulls_first: bool


def key_name(number: int) -> str:
    """The column of a grouping key; no stream can declare it."""
    return f"$key{number}"


def aggregate_name(number: int) -> str:
    return f"$aggregate{number}"


@dataclass(frozen=True)
class Query:
    stream: str
    outputs: tuple[Output, ...]
    where: Expression
    window: Window
    grouping: Grouping | None = None
    having: Expression = TRUE
    distinct: bool = False
    order_by: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    refresh: Refresh | None = None

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(output.name, output.expression.type) for output in self.outputs)

    @cached_property
    def reads(self) -> frozenset[str]:
        """The columns that are read of a row that was chosen."""
        named = frozenset(name for one in self._of_rows for name in columns_of(one))
        return named | {"ts", "row_id"} if self._by_time else named

    @cached_property
    def weight(self) -> int:
        """How many expressions are evaluated once the rows are chosen."""
        evaluated = [*self._of_rows, self.having]
        if self.grouping is not None:
            evaluated += self._of_answers
        return sum(weight_of(one) for one in evaluated)

    @property
    def _by_time(self) -> bool:
        """Whether anything of it depends on which row is earlier."""
        ends = (Function.FIRST, Function.LAST)
        grouping = self.grouping
        return grouping is None or any(one.function in ends for one in grouping.aggregates)

    @property
    def _of_rows(self) -> list[Expression]:
        if self.grouping is None:
            return self._of_answers
        arguments = [one.argument for one in self.grouping.aggregates if one.argument]
        return [*self.grouping.keys, *arguments]

    @property
    def _of_answers(self) -> list[Expression]:
        outputs = [output.expression for output in self.outputs]
        return [*outputs, *[key.expression for key in self.order_by]]

    @cached_property
    def plain(self) -> bool:
        """Whether it gives all the rows it chooses, by (ts, row_id)."""
        cut = self.limit is not None or self.offset or self.having != TRUE
        return self.grouping is None and not (self.distinct or self.order_by or cut)

    @cached_property
    def shown(self) -> tuple[tuple[str, str], ...] | None:
        """Where the outputs are columns as they are: the name of each, and the column's."""
        pairs = [
            (output.name, output.expression.name)
            for output in self.outputs
            if isinstance(output.expression, ColumnRef)
        ]
        return tuple(pairs) if self.plain and len(pairs) == len(self.outputs) else None

    @cached_property
    def predicate_key(self) -> str:
        """Equal for equal predicates over one stream: the normal form as text."""
        return predicate_key(self.where)

    @property
    def period(self) -> int | None:
        """That of REFRESH EVERY."""
        return self.refresh.period if isinstance(self.refresh, RefreshEvery) else None

    @cached_property
    def form(self) -> str:
        """Everything but the predicate, as text."""
        form = replace(self, where=TRUE).to_json()
        del form["where"]
        return json.dumps(form, separators=(",", ":"))

    def with_where(self, where: Expression) -> Query:
        """The same query over another predicate. What is known of the rest stays known."""
        other = object.__new__(Query)
        other.__dict__.update(self.__dict__)
        other.__dict__["where"] = where
        other.__dict__.pop("predicate_key", None)
        return other

    @classmethod
    def read(cls, form: str, predicate_key: str) -> Query:
        """The query whose `form` and `predicate_key` these are."""
        return cls.from_json(json.loads(form) | {"where": json.loads(predicate_key)})

    @cached_property
    def grouping_key(self) -> str:
        """Equal for equal groupings."""
        form = None if self.grouping is None else _grouping_json(self.grouping)
        return json.dumps(form, separators=(",", ":"))

    def to_json(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "outputs": [[output.name, to_json(output.expression)] for output in self.outputs],
            "where": to_json(self.where),
            "window": window_to_json(self.window),
            "grouping": None if self.grouping is None else _grouping_json(self.grouping),
            "having": to_json(self.having),
            "distinct": self.distinct,
            "order_by": [
                [to_json(key.expression), key.descending, key.nulls_first] for key in self.order_by
            ],
            "limit": self.limit,
            "offset": self.offset,
            "refresh": refresh_to_json(self.refresh),
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Query:
        return cls(
            stream=form["stream"],
            outputs=tuple(Output(name, from_json(expr)) for name, expr in form["outputs"]),
            where=from_json(form["where"]),
            window=window_from_json(form["window"]),
            grouping=None if form["grouping"] is None else _grouping(form["grouping"]),
            having=from_json(form["having"]),
            distinct=form["distinct"],
            order_by=tuple(SortKey(from_json(key[0]), key[1], key[2]) for key in form["order_by"]),
            limit=form["limit"],
            offset=form["offset"],
            refresh=refresh_from_json(form["refresh"]),
        )


def _grouping_json(grouping: Grouping) -> dict[str, Any]:
    return {
        "keys": [to_json(key) for key in grouping.keys],
        "aggregates": [
            [
                aggregate.function.value,
                None if aggregate.argument is None else to_json(aggregate.argument),
                aggregate.distinct,
                str(aggregate.type),
            ]
            for aggregate in grouping.aggregates
        ],
    }


def _grouping(form: Mapping[str, Any]) -> Grouping:
    return Grouping(
        tuple(from_json(key) for key in form["keys"]),
        tuple(
            Aggregate(
                Function(function),
                None if argument is None else from_json(argument),
                distinct,
                parse_type(type_),
            )
            for function, argument, distinct, type_ in form["aggregates"]
        ),
    )
