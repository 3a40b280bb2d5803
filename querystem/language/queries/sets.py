"""Set operations, bound: the branches get outputs of one type each, and the whole its order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from datastem.types import TIMESTAMP
from querystem.expressions import ColumnRef, Expression
from querystem.language.errors import TypeProblem
from querystem.language.expressions.coerce import cast, unify
from querystem.language.expressions.scope import ScopeItem
from querystem.language.queries.clauses import OutputItem, placed
from querystem.language.syntax.tree import node_span
from querystem.language.tokens.literals import Typed
from querystem.query import Output, Query, SortKey
from querystem.sources import From, SetOperation, SetOperator, item_column

_OPERATORS: Mapping[tuple[type[exp.Expr], bool], SetOperator] = {
    (exp.Union, False): SetOperator.UNION_ALL,
    (exp.Union, True): SetOperator.UNION,
    (exp.Intersect, False): SetOperator.INTERSECT_ALL,
    (exp.Intersect, True): SetOperator.INTERSECT,
    (exp.Except, False): SetOperator.EXCEPT_ALL,
    (exp.Except, True): SetOperator.EXCEPT,
}


@dataclass(frozen=True, slots=True)
class BoundBlock:
    """A bound query; `values` are its outputs while their types may still be settled. Conditions
    that are `correlated`, with columns of the query around it, are no part of it."""

    query: Query
    values: Sequence[Typed]
    correlated: Sequence[Expression] = ()


@dataclass(frozen=True, slots=True)
class Branch:
    """A part of a set operation, and its node."""

    node: exp.Expr
    block: BoundBlock


def operator_of(node: exp.Expr) -> SetOperator | None:
    """Return the operator of a set operation; None for any other node."""
    return _OPERATORS.get((type(node), bool(node.args.get("distinct"))))


def combined(
    operator: SetOperator, branches: Sequence[Branch], node: exp.Expr
) -> tuple[BoundBlock, ScopeItem, list[OutputItem]]:
    """Return a set operation as the one item of a query; that item, and its outputs, for ORDER
    BY."""
    operation = SetOperation(operator, _unified(branches))
    columns, span = operation.columns, node_span(node)
    query = Query(From((operation,)), ())
    types = {column.name: column.type for column in columns}
    times = {"ts": TIMESTAMP} if query.timed else {}
    item = ScopeItem("the set operation", {**times, **types}, list(types), item_column(0, ""))
    outputs = tuple(Output(name, item.column(name)) for name in types)
    values = [Typed(output.expression, span) for output in outputs]
    items = [OutputItem(name, placed(name, span)) for name in types]
    return BoundBlock(replace(query, outputs=outputs), values), item, items


def in_order_of_values(query: Query) -> Query:
    """Return the query with its rows in the order of their values, NULLs last, as far as ORDER BY
    leaves that open."""
    ordered = [key.expression for key in query.order_by]
    keys = tuple(
        SortKey(output.expression, descending=False, nulls_first=False)
        for output in query.outputs
        if output.expression not in ordered
    )
    return replace(query, order_by=(*query.order_by, *keys))


def _unified(branches: Sequence[Branch]) -> tuple[Query, ...]:
    """Return the queries of a set operation with outputs of one type each, named as the first
    one's."""
    blocks = [branch.block for branch in branches]
    names = [output.name for output in blocks[0].query.outputs]
    for branch in branches[1:]:
        if len(branch.block.values) != len(names):
            raise TypeProblem(
                f"the first SELECT has {_counted(len(names))}, this one {len(branch.block.values)}",
                node_span(branch.node),
                hint="all parts of a set operation have equally many",
            )
    columns = []
    for values in zip(*(block.values for block in blocks), strict=True):
        columns.append(unify(values, values[0].span)[0])
    rows = zip(*columns, strict=True)
    return tuple(_with_outputs(block, names, row) for block, row in zip(blocks, rows, strict=True))


def _with_outputs(block: BoundBlock, names: Sequence[str], values: Sequence[Typed]) -> Query:
    """Return a branch with the types that the whole has. DISTINCT compares the values before they
    are converted."""
    query = block.query
    pairs = list(zip(block.values, values, strict=True))
    changed = any(not old.open and old.type != new.type for old, new in pairs)
    if not changed or not query.distinct:
        nodes = [value.node for value in values]
        return replace(query, outputs=tuple(map(Output, names, nodes)))
    converted = [
        new if old.open else cast(replace(old, node=_column(output)), new.type)
        for (old, new), output in zip(pairs, query.outputs, strict=True)
    ]
    nodes = [value.node for value in converted]
    return Query(From((query,)), tuple(map(Output, names, nodes)))


def _column(output: Output) -> ColumnRef:
    return ColumnRef(item_column(0, output.name), output.expression.type)


def _counted(outputs: int) -> str:
    return "1 output" if outputs == 1 else f"{outputs} outputs"
