"""A bound SELECT: what the binder makes of a text, and what a registration keeps.

The *predicate* (stream and WHERE, in normal form) is what gets matched and shared; everything
else belongs to the registration and applies when it is invoked, in this order: window and WHERE
choose rows; `grouping` turns them into one row per group; `having` keeps some; `outputs` are
computed; `distinct` removes repeats; `order_by`, `offset` and `limit` cut. `refresh` says as of
which instant all this is done.

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

from datastem.schema import Column, StreamSchema
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
from results.window import TimeWindow, Window, window_from_json, window_to_json


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    expression: Expression


class Function(enum.Enum):
    """An aggregate function. All but COUNT_ROWS leave out NULLs; over nothing COUNT is 0 and the
    others are NULL."""

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
    """GROUP BY and the aggregates; without keys all rows are one group, even no rows."""

    keys: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]

    def __hash__(self) -> int:
        """Is computed once, because groupings are keys of caches."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.keys, self.aggregates))


@dataclass(frozen=True, slots=True)
class SortKey:
    expression: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class RefreshEvery:
    """The answer changes at the multiples of `period`, counted from 1970-01-01 UTC in the query's
    NOW."""

    period: int

    def point(self, now: int) -> int:
        """The last refresh point at `now`."""
        return now - now % self.period


@dataclass(frozen=True, slots=True)
class RefreshOn:
    """The answer changes at the position of each row of `stream` that satisfies `where`."""

    stream: str
    where: Expression

    @property
    def predicate_key(self) -> str:
        return predicate_key(self.where)


Refresh = RefreshEvery | RefreshOn


def refresh_to_json(refresh: Refresh | None) -> dict[str, Any] | None:
    match refresh:
        case None:
            return None
        case RefreshEvery(period):
            return {"kind": "every", "period": period}
        case RefreshOn(stream, where):
            return {"kind": "on", "stream": stream, "where": to_json(where)}


def refresh_from_json(form: Mapping[str, Any] | None) -> Refresh | None:
    if form is None:
        return None
    match form["kind"]:
        case "every":
            return RefreshEvery(form["period"])
        case "on":
            return RefreshOn(form["stream"], from_json(form["where"]))
        case kind:
            raise ValueError(f"a refresh of an unknown kind: {kind}")


def key_name(number: int) -> str:
    """The column of a grouping's key; no stream can declare such a name."""
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
        """The columns of the chosen rows that the answer is computed from."""
        named = frozenset(name for one in self._of_rows for name in columns_of(one))
        return named | {"ts", "row_id"} if self._by_time else named

    @cached_property
    def weight(self) -> int:
        """How much is computed for each chosen row: about a plain operation each."""
        evaluated = [*self._of_rows, self.having]
        if self.grouping is not None:
            evaluated += self._of_answers
        return sum(weight_of(one) for one in evaluated)

    @property
    def _by_time(self) -> bool:
        """Whether the answer depends on which of two rows is earlier."""
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
        """Whether the answer has all the chosen rows, by (ts, row_id)."""
        cut = self.limit is not None or self.offset or self.having != TRUE
        return self.grouping is None and not (self.distinct or self.order_by or cut)

    @cached_property
    def shown(self) -> tuple[tuple[str, str], ...] | None:
        """The names of outputs and of the columns they show, where all outputs of a plain query
        are columns; else None."""
        pairs = [
            (output.name, output.expression.name)
            for output in self.outputs
            if isinstance(output.expression, ColumnRef)
        ]
        return tuple(pairs) if self.plain and len(pairs) == len(self.outputs) else None

    @cached_property
    def predicate_key(self) -> str:
        """The normal form of WHERE as text: equal for equal predicates over one stream."""
        return predicate_key(self.where)

    @property
    def period(self) -> int | None:
        """The period of REFRESH EVERY; None without it."""
        return self.refresh.period if isinstance(self.refresh, RefreshEvery) else None

    @cached_property
    def form(self) -> str:
        """The query without its predicate, as text."""
        form = replace(self, where=TRUE).to_json()
        del form["where"]
        return json.dumps(form, separators=(",", ":"))

    def with_where(self, where: Expression) -> Query:
        """This query with another predicate; cached properties of the rest stay cached."""
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
        """The grouping as text: equal for equal groupings."""
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


# ---- the update pattern (update-patterns 5.2)


class Pattern(enum.IntEnum):
    """The update pattern of an answer, from simple to involved: monotonic, weakest non-monotonic,
    weak, strict. The names are the paper's."""

    MON = 1
    WKS = 2
    WK = 3
    STR = 4


def pattern_of(query: Query, schema: StreamSchema, window: Window | None = None) -> Pattern:
    """The update pattern of a query with its own window, or with another one.

    The paper has windows at the leaves; a window that no row ever leaves is monotonic. LIMIT is
    strict, because a later row may take the place of one that was among the first.
    """
    found = _leaf(query.window if window is None else window, schema)
    if query.grouping is not None:
        found = Pattern.WK
    if query.distinct and found is not Pattern.MON:
        found = max(found, Pattern.WK)
    if query.limit is not None or query.offset:
        found = Pattern.STR
    return found


def _leaf(window: Window, schema: StreamSchema) -> Pattern:
    if schema.key or not isinstance(window, TimeWindow):
        return Pattern.STR
    leaves = window.begin is not None and window.begin.relative
    return Pattern.WKS if leaves or schema.retain is not None else Pattern.MON
