"""Expressions and queries with other columns, in normal form again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from datastem.types import BOOLEAN, TIMESTAMP
from querystem.expressions import Call, ColumnRef, Expression, Op, columns_of
from querystem.language.normal_form.normal import call
from querystem.legs import Leg
from querystem.query import Item, Source
from querystem.sources import LeftJoin, item_column, subquery_column


def substituted(expression: Expression, columns: Mapping[str, Expression]) -> Expression:
    """Return the expression with another in the place of each of these columns."""
    if isinstance(expression, ColumnRef):
        return columns.get(expression.name, expression)
    if not isinstance(expression, Call):
        return expression
    args = tuple([substituted(arg, columns) for arg in expression.args])
    return expression if args == expression.args else call(expression.op, args, expression.type)


@dataclass(frozen=True, slots=True)
class Extent:
    """How large an expression is: its nodes, and how many of them stand inside each other."""

    nodes: int = 1
    depth: int = 1


def extent_of(expression: Expression, columns: Mapping[str, Extent]) -> Extent:
    """Return the extent of what `substituted` returns, given the extents of the columns'
    expressions."""
    if isinstance(expression, ColumnRef):
        return columns.get(expression.name, Extent())
    if not isinstance(expression, Call):
        return Extent()
    parts = [extent_of(arg, columns) for arg in expression.args]
    nodes = sum(part.nodes for part in parts)
    return Extent(1 + nodes, 1 + max((part.depth for part in parts), default=0))


def renamed(expression: Expression, number: int) -> Expression:
    """Return the expression over an item of FROM with the item's own names of columns."""
    prefix = item_column(number, "")
    match expression:
        case ColumnRef(name, type_):
            return ColumnRef(name.removeprefix(prefix), type_)
        case Call(op, args, type_):
            return call(op, tuple([renamed(arg, number) for arg in args]), type_)
    return expression


def as_item(expression: Expression, number: int) -> Expression:
    """Return the expression with its columns named as those of an item of FROM."""
    match expression:
        case ColumnRef(name, type_):
            return ColumnRef(item_column(number, name), type_)
        case Call(op, args, type_):
            return call(op, tuple([as_item(arg, number) for arg in args]), type_)
    return expression


def has_subquery(expression: Expression) -> bool:
    """Return whether an expression has the value of a query inside it."""
    return any(name.startswith(_QUERY_VALUE) for name in columns_of(expression))


_QUERY_VALUE = subquery_column(0)[:-1]


def moved(expression: Expression, prefixes: Mapping[str, str]) -> Expression:
    """Return the expression over items of FROM with other names for some of them; `prefixes` has
    the new beginning of their columns by the number of the item."""
    match expression:
        case ColumnRef(name, type_):
            return ColumnRef(moved_name(name, prefixes), type_)
        case Call(op, args, type_):
            return call(op, tuple([moved(arg, prefixes) for arg in args]), type_)
    return expression


def moved_name(name: str, prefixes: Mapping[str, str]) -> str:
    """Return the name of a column, or the beginning of such names, as `moved` changes it."""
    number, point, column = name.partition(".")
    return f"{prefixes[number]}{column}" if point and number in prefixes else name


def conjuncts(condition: Expression) -> tuple[Expression, ...]:
    """Return the conditions that AND joins, at the top."""
    if isinstance(condition, Call) and condition.op is Op.AND:
        return condition.args
    return (condition,)


def all_of(conditions: Sequence[Expression]) -> Expression:
    return call(Op.AND, tuple(conditions), BOOLEAN)


def time_of(source: Source) -> Expression:
    """Return the ts of the rows of a source, all parts of which have one, over its columns."""
    if isinstance(source, Leg):
        return ColumnRef("ts", TIMESTAMP)
    return greatest_time(source.items)


def greatest_time(items: Sequence[Item], first: int = 0) -> Expression:
    """Return the greatest ts of some items of FROM, which have numbers from `first` on."""
    times = [
        time
        for number, item in enumerate(items, first)
        for time in _times(item, item_column(number, ""))
    ]
    args: list[Expression] = []
    # CASE returns the first ts that no later one exceeds; the last one remains for ELSE.
    for at, time in enumerate(times[:-1]):
        later = [call(Op.GE, (time, later_time), BOOLEAN) for later_time in times[at + 1 :]]
        args += [all_of(later), time]
    return call(Op.CASE, (*args, times[-1]), TIMESTAMP) if args else times[-1]


def _times(item: Item, prefix: str) -> list[Expression]:
    """Return the ts of each part of an item's rows; a missing part has that of another."""
    if not isinstance(item, LeftJoin):
        return [ColumnRef(f"{prefix}ts", TIMESTAMP)]
    left_times = [
        time
        for number, left_item in enumerate(item.left.items)
        for time in _times(left_item, f"{prefix}{item_column(0, item_column(number, ''))}")
    ]
    right_times = _times(item.right, prefix + item_column(1, ""))
    return [
        *left_times,
        *[call(Op.COALESCE, (time, left_times[0]), TIMESTAMP) for time in right_times],
    ]


def with_condition(source: Source, condition: Expression) -> Source:
    """Return the source with one more condition on its rows."""
    if isinstance(source, Leg):
        return replace(source, where=all_of((source.where, condition)))
    if has_subquery(condition):
        return replace(source, where=all_of((source.where, condition)))
    return replace(source, on=all_of((source.on, condition)))
