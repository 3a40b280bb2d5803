"""What SELECT lists, and the names and numbers that other clauses call it by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from datastem.schema import StreamSchema
from querystem.language.bind import Binder, identifier
from querystem.language.errors import BindProblem, Span, SyntaxProblem, UnknownColumn
from querystem.language.tree import consume, node_span


@dataclass(frozen=True, slots=True)
class Item:
    """One output, not bound yet."""

    name: str
    node: exp.Expr

    @property
    def renamed(self) -> bool:
        """Whether its name is not that of a column it is."""
        return self.name != _column_name(self.node)


def read_items(select: exp.Select, schema: StreamSchema, binder: Binder) -> Sequence[Item]:
    """One or more, each with a name of its own; `*` stands for the declared columns."""
    if not select.expressions:
        raise SyntaxProblem("SELECT selects nothing", node_span(select), hint="write SELECT * …")
    items: list[Item] = []
    seen: set[str] = set()
    for node in select.expressions:
        for item in _items(node, len(items) + 1, schema, binder):
            if item.name in seen:
                raise BindProblem(
                    f"two outputs are named {item.name}",
                    node_span(node),
                    hint="give one of them another name with AS",
                    reason="DUPLICATE_NAME",
                )
            seen.add(item.name)
            items.append(item)
    return items


def at_position(node: exp.Expr, items: Sequence[Item], clause: str) -> exp.Expr | None:
    """The output that a bare whole number means, as in ORDER BY 2; None for anything else."""
    node = node.unnest()
    if not isinstance(node, exp.Literal) or node.args["is_string"] or not node.this.isdigit():
        return None
    consume(node, "this", "is_string")
    number = node.this.lstrip("0") or "0"
    if len(number) > 9 or not 1 <= int(number) <= len(items):
        raise UnknownColumn(
            f"{clause} {number[:60]}: there is no such output",
            node_span(node),
            hint=f"the outputs are numbered from 1 to {len(items)}",
        )
    return items[int(number) - 1].node


def by_name(node: exp.Expr, items: Sequence[Item]) -> exp.Expr | None:
    """The output that a name alone means; None for anything else."""
    node = node.unnest()
    if not isinstance(node, exp.Column) or node.args.get("table") is not None:
        return None
    name = _column_name(node)
    return next((item.node for item in items if item.name == name), None)


def _items(node: exp.Expr, position: int, schema: StreamSchema, binder: Binder) -> Iterator[Item]:
    if isinstance(node, exp.Star) or (
        isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
    ):
        yield from _star(node, schema, binder)
    elif isinstance(node, exp.Alias):
        consume(node, "this", "alias")
        yield Item(identifier(node.args["alias"]), node.this)
    else:
        yield Item(_column_name(node.unnest()) or f"column_{position}", node)


def _star(node: exp.Expr, schema: StreamSchema, binder: Binder) -> Iterator[Item]:
    """Every column, each standing where the star does."""
    span = node_span(node)
    if isinstance(node, exp.Column):
        consume(node, "this", "table")
        binder.check_qualifier(node)
        node = node.this
    consume(node)
    for column in schema.columns:
        yield Item(column.name, _placed(column.name, span))


def _placed(name: str, span: Span) -> exp.Expr:
    column = exp.Column(this=exp.Identifier(this=name, quoted=True))
    return column.update_positions(start=span.start, end=span.end - 1)


def _column_name(node: exp.Expr) -> str:
    """As written, folded; the binder tells whether it is one. Empty for anything but a column."""
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        return ""
    name = str(node.this.this)
    return name if node.this.args.get("quoted") else name.lower()
