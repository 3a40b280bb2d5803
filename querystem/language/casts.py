"""CAST as written: which conversions exist."""

from __future__ import annotations

from datastem.types import Kind, Type
from querystem.expressions import Literal
from querystem.language.coerce import cast, settle
from querystem.language.errors import Span, TypeProblem
from querystem.language.literals import Typed

_NUMBERS = frozenset({Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL})
_TO: dict[Kind, frozenset[Kind]] = {
    Kind.BOOLEAN: frozenset({Kind.BOOLEAN, Kind.BIGINT, Kind.TEXT}),
    Kind.BIGINT: _NUMBERS | {Kind.TEXT},
    Kind.DOUBLE: _NUMBERS | {Kind.TEXT},
    Kind.DECIMAL: _NUMBERS | {Kind.TEXT},
    Kind.TEXT: frozenset(Kind),
    Kind.TIMESTAMP: frozenset({Kind.TIMESTAMP, Kind.DATE, Kind.TEXT}),
    Kind.DATE: frozenset({Kind.TIMESTAMP, Kind.DATE, Kind.TEXT}),
}


def can_cast(from_: Kind, to: Kind) -> bool:
    return to in _TO[from_]


def explicit_cast(value: Typed, to: Type, span: Span) -> Typed:
    """What can't be converted for one row is NULL there; a constant time that can't is refused."""
    if value.open:
        return Typed(Literal(None, to), span)
    if not can_cast(value.type.kind, to.kind):
        raise TypeProblem(f"{value.type} can't be converted to {to}", span)
    done = cast(settle(value, to), to)
    return Typed(done.node, span)
