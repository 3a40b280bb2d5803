"""sqlglot's nodes: where they stand, and the promise that nothing in them is ignored."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from querystem.language.errors import Span, SyntaxProblem


def node_span(node: exp.Expr) -> Span:
    """From the first character of the node to the last of its parts."""
    starts, ends, parts = [], [], [node]
    while parts:
        part = parts.pop()
        if "start" in part.meta:
            starts.append(part.meta["start"])
            ends.append(part.meta["end"])
        for value in part.args.values():
            inner = value if type(value) is list else (value,)
            parts += [one for one in inner if isinstance(one, exp.Expr)]
    if not starts:
        return node_span(node.parent) if node.parent else Span(0, 1)
    return Span(min(starts), max(ends) + 1)


def consume(node: exp.Expr, *understood: str) -> None:
    """Refuses the node where it holds anything but what the caller understands."""
    for name, value in node.args.items():
        if name not in understood and value not in (None, False, [], ""):
            raise SyntaxProblem(
                f"{what(node)} has a part that is not supported: {name.strip('_').upper()}",
                node_span(value if isinstance(value, exp.Expr) else node),
                hint=_HINTS.get(name, ""),
                reason="NOT_SUPPORTED",
            )


def what(node: exp.Expr) -> str:
    """The node's kind, for people."""
    return _NAMES.get(type(node), type(node).__name__.upper())


_NAMES: dict[type[exp.Expr], str] = {exp.AtTimeZone: "AT TIME ZONE"}
_HINTS = {"db": "a stream has one name, a column is written stream.column"}


def chain(node: exp.Expr, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """The operands of `a AND b AND c …`, however long: sqlglot nests them to the left."""
    operands = []
    while type(node) is kind:
        consume(node, "this", "expression")
        operands.append(node.args["expression"])
        node = node.this
    yield node
    yield from reversed(operands)
