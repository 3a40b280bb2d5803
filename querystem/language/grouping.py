"""GROUP BY and aggregates: expressions over groups instead of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from querystem.expressions import ColumnRef, Expression, Literal, Parameter
from querystem.language.aggregates import bind_aggregate, is_aggregate
from querystem.language.bind import Binder
from querystem.language.coerce import need_type
from querystem.language.errors import BindProblem, TypeProblem
from querystem.language.literals import Typed
from querystem.language.normal import sort_key
from querystem.language.outputs import Item, at_position, by_name
from querystem.language.tree import consume, node_span
from querystem.language.words import write_name
from querystem.query import Aggregate, Grouping, aggregate_name, key_name


@dataclass
class GroupBinder(Binder):
    """Binds what SELECT, HAVING and ORDER BY say of a group: its keys, and aggregates of its rows.

    `rows` binds over rows; `keys` numbers the normal forms of the keys; `mixed` has the ids of the
    nodes that hold an aggregate. Aggregates are collected as they are met, equal ones once.
    """

    rows: Binder = field(kw_only=True)
    keys: Mapping[str, Expression] = field(kw_only=True)
    mixed: Collection[int] = field(kw_only=True)
    aggregates: dict[Aggregate, int] = field(default_factory=dict)

    @property
    def grouping(self) -> Grouping:
        return Grouping(tuple(self.keys.values()), tuple(self.aggregates))

    def bind(self, node: exp.Expr) -> Typed:
        if self.keys and id(node) not in self.mixed:
            bound = self.rows.bind(node)
            number = None if is_constant(node, bound) else self._key(bound.node)
            if number is not None:
                return Typed(ColumnRef(key_name(number), bound.type), bound.span)
        bound = super().bind(node)
        if isinstance(node, exp.Column):
            raise _not_grouped(bound)
        return bound

    def _key(self, expression: Expression) -> int | None:
        form = sort_key(expression)
        return next((number for number, key in enumerate(self.keys) if key == form), None)

    def _aggregate(self, node: exp.Expr) -> Typed:
        aggregate = bind_aggregate(node, replace(self.rows, clause="an aggregate").bind)
        number = self.aggregates.setdefault(aggregate, len(self.aggregates))
        return Typed(ColumnRef(aggregate_name(number), aggregate.type), node_span(node))


def _not_grouped(column: Typed) -> BindProblem:
    assert isinstance(column.node, ColumnRef)
    name = write_name(column.node.name)
    return BindProblem(
        f"{name} is neither grouped nor inside an aggregate",
        column.span,
        hint=f"add it to GROUP BY, or write an aggregate such as last({name})",
        reason="NOT_GROUPED",
    )


@dataclass
class _RowBinder(Binder):
    """Binds each node once, however often it is asked for."""

    done: dict[int, Typed] = field(default_factory=dict)

    def bind(self, node: exp.Expr) -> Typed:
        if id(node) not in self.done:
            self.done[id(node)] = super().bind(node)
        return self.done[id(node)]


def group_binder(select: exp.Select, items: Sequence[Item], base: Binder) -> GroupBinder | None:
    """None where the query answers rows: it neither groups nor aggregates."""
    mixed = _mixed(select)
    if not mixed and not select.args.get("group") and not select.args.get("having"):
        return None
    rows = _RowBinder(base.types, base.stream, base.parameters, "GROUP BY", base.outputs, base.used)
    return GroupBinder(
        base.types,
        base.stream,
        base.parameters,
        outputs=base.outputs,
        used=base.used,
        rows=rows,
        keys=_keys(select.args.get("group"), items, rows),
        mixed=mixed,
    )


def _mixed(select: exp.Select) -> frozenset[int]:
    found: set[int] = set()
    for clause in ("expressions", "having", "order"):
        part = select.args.get(clause) or []
        for root in part if isinstance(part, list) else [part]:
            for node in filter(is_aggregate, root.walk()):
                found.update(_with_parents(node))
    return frozenset(found)


def _with_parents(node: exp.Expr) -> list[int]:
    ids = []
    above: exp.Expr | None = node
    while above is not None and not isinstance(above, exp.Select):
        ids.append(id(above))
        above = above.parent
    return ids


def _keys(group: exp.Expr | None, items: Sequence[Item], rows: Binder) -> Mapping[str, Expression]:
    if group is None:
        return {}
    consume(group, "expressions")
    keys: dict[str, Expression] = {}
    for node in group.expressions:
        expression = _key(node, items, rows)
        keys.setdefault(sort_key(expression), expression)
    return keys


def _key(node: exp.Expr, items: Sequence[Item], rows: Binder) -> Expression:
    """A column of that name comes before an output of that name."""
    output = at_position(node, items, "GROUP BY")
    if output is None and not _is_column(node, rows):
        output = by_name(node, items)
    if output is not None:
        return need_type(rows.bind(output)).node
    return need_varying(node, rows.bind(node), "GROUP BY")


def is_constant(node: exp.Expr, value: Typed) -> bool:
    """Whether `node`, bound as `value`, is written as a constant.

    Beside other values it may still take another type. What reads a column or an aggregate is none,
    also where it is bound to one, as `size > 3 AND FALSE` is: whether a text is taken must not
    depend on what can be simplified.
    """
    if not isinstance(value.node, Literal | Parameter):
        return False
    return not any(isinstance(part, exp.Column) or is_aggregate(part) for part in node.walk())


def need_varying(node: exp.Expr, value: Typed, clause: str) -> Expression:
    """Refuses a constant: it would make one group, or no order."""
    if is_constant(node, value):
        raise TypeProblem(
            f"{clause} takes a column, an expression or the number of an output, not a constant",
            value.span,
            hint="names are written without quotes",
        )
    return value.node


def _is_column(node: exp.Expr, rows: Binder) -> bool:
    return isinstance(node.unnest(), exp.Column) and node.unnest().name.lower() in rows.types
