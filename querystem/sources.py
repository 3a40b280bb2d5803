"""What stands between the legs of a query and its clauses: FROM, LEFT JOIN, set operations and
queries inside expressions; and how they name columns."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from datastem.schema import Column
from datastem.types import BOOLEAN, Type
from querystem.expressions import TRUE, Expression, Op
from querystem.grouping import Grouping

if TYPE_CHECKING:
    from querystem.query import Item, Query


@dataclass(frozen=True)
class From:
    """All combinations of a row of each item for which `on` is true, and then `where`.

    A combination has the greatest ts of its rows. It is named by the row ids of the legs in it, in
    their order, which is also its place among combinations of one ts. Without items there is one
    combination, which has no ts. Queries inside expressions give it further columns, named by
    `subquery_column`, which `where` may use. Conditions that depend on NOW stand in `where`, so
    that `on` is the same at every NOW.
    """

    items: tuple[Item, ...]
    on: Expression = TRUE
    subqueries: tuple[SubQuery, ...] = ()
    where: Expression = TRUE


@dataclass(frozen=True)
class LeftJoin:
    """All combinations of `left` with a row of `right` for which `on` is true. A combination of
    `left` without such a row is there once, with NULLs in the place of `right`.

    `on` and the clauses above name `left` as item 0, whose columns have names already, and `right`
    as item 1.
    """

    left: From
    right: Item
    on: Expression


class SetOperator(enum.Enum):
    """A set operation. UNION_ALL takes two queries or more, the others two."""

    UNION_ALL = "union all"
    UNION = "union"
    INTERSECT_ALL = "intersect all"
    INTERSECT = "intersect"
    EXCEPT_ALL = "except all"
    EXCEPT = "except"


@dataclass(frozen=True)
class SetOperation:
    """The rows of several queries together. The queries have equally many outputs, each of one
    type; the first query names them. `view` is the name of the view that it is, if any."""

    operator: SetOperator
    queries: tuple[Query, ...]
    view: str = ""

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.queries[0].columns


class SubQueryKind(enum.Enum):
    """The value that a query inside an expression has."""

    SCALAR = "scalar"  # the first output of its row; without one NULL, or what no rows aggregate to
    EXISTS = "exists"  # whether it has a row
    ANY = "any"  # whether `operand op` its first output is true for any row; three-valued


@dataclass(frozen=True)
class SubQuery:
    """A query inside an expression: a value for each combination of the From it stands in.

    Only rows for which `on` is true count. `on` names the From as item 0, whose columns have names
    already, and the query as item 1. `operand` and `op` are those of ANY. With a `grouping`, which
    has no keys, a scalar query is its aggregates over the rows that go with a combination: `value`
    is an expression over them, and their arguments name columns as `on` does.
    """

    kind: SubQueryKind
    query: Query
    on: Expression = TRUE
    operand: Expression | None = None
    op: Op | None = None
    grouping: Grouping | None = None
    value: Expression | None = None

    def mapped(self, change: Callable[[Expression], Expression]) -> SubQuery:
        """Return this with the expressions beside the query, and its clauses, changed."""
        return replace(
            self,
            query=self.query.mapped(change),
            on=change(self.on),
            operand=None if self.operand is None else change(self.operand),
            grouping=None if self.grouping is None else self.grouping.mapped(change),
            value=None if self.value is None else change(self.value),
        )

    @property
    def expressions(self) -> Iterator[Expression]:
        """The expressions beside the query."""
        yield self.on
        yield from filter(None, (self.operand, self.value))
        if self.grouping is not None:
            yield from self.grouping.expressions

    @property
    def type(self) -> Type:
        if self.value is not None:
            return self.value.type
        first = self.query.outputs[0].expression.type
        return first if self.kind is SubQueryKind.SCALAR else BOOLEAN


def item_column(number: int, name: str) -> str:
    """Return the name of a column of an item of FROM; no stream can declare such a name."""
    return f"{number}.{name}"


def part_name(number: int) -> str:
    """Return the column with the row ids of a leg in combinations; no stream can declare such a
    name."""
    return f"{_PART}{number}"


def part_names(names: Sequence[str]) -> list[str]:
    """Return the columns with row ids of legs among some columns, in their order."""
    return [name for name in names if name.startswith(_PART)]


_PART = "$part"


def subquery_column(number: int) -> str:
    """Return the name of the value of a query inside an expression."""
    return f"$query{number}"
