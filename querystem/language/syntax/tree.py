"""The nodes of sqlglot's tree: the places they stand at, and a check that no part is ignored."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from querystem.language.errors import Span, SyntaxProblem

_EXTENT = "psoup_extent"


def node_span(node: exp.Expr) -> Span:
    """Return the span from the first character of the node to the last of its parts."""
    extent = _extent(node)
    if extent is None:
        return node_span(node.parent) if node.parent else Span(0, 1)
    return Span(extent[0], extent[1] + 1)


def _extent(node: exp.Expr) -> tuple[int, int] | None:
    """Return the first and the last character of a node with its parts. The extents of the parts
    are cached, because the binder asks for them next."""
    parts, unread = [], [node]
    while unread:
        part = unread.pop()
        if _EXTENT not in part.meta:
            parts.append(part)
            unread += _parts(part)
    for part in reversed(parts):
        extents = [inner.meta[_EXTENT] for inner in _parts(part) if inner.meta[_EXTENT]]
        if "start" in part.meta:
            extents.append((part.meta["start"], part.meta["end"]))
        ends = tuple(zip(*extents, strict=True))
        part.meta[_EXTENT] = (min(ends[0]), max(ends[1])) if ends else None
    extent: tuple[int, int] | None = node.meta[_EXTENT]
    return extent


def _parts(node: exp.Expr) -> list[exp.Expr]:
    parts: list[exp.Expr] = []
    for value in node.args.values():
        if isinstance(value, exp.Expr):
            parts.append(value)
        elif type(value) is list:
            parts += [part for part in value if isinstance(part, exp.Expr)]
    return parts


def consume(node: exp.Expr, *understood: str) -> None:
    """Refuse a node that holds anything but the parts the caller understands."""
    for name, value in node.args.items():
        if name not in understood and value not in (None, False, [], ""):
            raise SyntaxProblem(
                f"{what(node)} has a part that is not supported: {name.strip('_').upper()}",
                node_span(value if isinstance(value, exp.Expr) else node),
                hint=_HINTS.get(name, ""),
                reason="NOT_SUPPORTED",
            )


def is_query(node: exp.Expr) -> bool:
    """Return whether a node is a query inside an expression."""
    return isinstance(node, exp.Query)


def outside_queries(root: exp.Expr) -> list[exp.Expr]:
    """Return all nodes of an expression, but only the roots of queries inside it."""
    nodes, unread = [], [root]
    while unread:
        node = unread.pop()
        nodes.append(node)
        if not is_query(node):
            unread += _parts(node)
    return nodes


def what(node: exp.Expr) -> str:
    """Return the name of the node's kind, for messages."""
    return _NAMES.get(type(node), type(node).__name__.upper())


_NAMES: dict[type[exp.Expr], str] = {exp.AtTimeZone: "AT TIME ZONE"}
_HINTS = {"db": "a stream has one name, a column is written stream.column"}


def chain(node: exp.Expr, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """Yield the operands of `a AND b AND c …`, of any number: sqlglot nests them to the left."""
    operands = []
    while type(node) is kind:
        consume(node, "this", "expression")
        operands.append(node.args["expression"])
        node = node.this
    yield node
    yield from reversed(operands)
