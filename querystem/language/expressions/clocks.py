"""NOW in expressions: the words that mean it, and what is refused about it."""

from __future__ import annotations

from datastem.types import Kind
from querystem.expressions import uses_now
from querystem.language.errors import NotYet, Span, SyntaxProblem
from querystem.language.tokens.literals import Typed
from querystem.language.tokens.names import words

_CLOCKS = words("now current_timestamp current_date current_time localtimestamp")
# Words that would be a local day or time, which need a time zone.
_LOCAL = words("current_date current_time localtimestamp")


def is_clock(name: str) -> bool:
    return name.lower() in _CLOCKS


def check_clock(word: str, clause: str, allowed: bool, span: Span) -> None:
    """Raise SyntaxProblem for a word that means NOW, unless it is `allowed` and means an
    instant."""
    if word.lower() in _LOCAL:
        raise SyntaxProblem(
            f"{word[:60]} is not supported",
            span,
            hint="write NOW, an instant, or CAST(NOW AS DATE), its day in UTC",
            reason="NOT_SUPPORTED",
        )
    if not allowed:
        raise SyntaxProblem(
            f"NOW does not stand in {clause}",
            span,
            hint="what is decided once for each row can't depend on the instant of an answer",
            reason="NOT_SUPPORTED",
        )


def check_days(lhs: Typed, rhs: Typed, span: Span) -> None:
    """Refuse a DATE beside NOW: which day it is depends on a time zone."""
    for value, beside in ((lhs, rhs), (rhs, lhs)):
        kinds = value.type.kind, beside.type.kind
        if kinds == (Kind.DATE, Kind.TIMESTAMP) and uses_now(beside.node):
            raise NotYet(
                "a DATE beside NOW, without a time zone",
                span,
                hint="CAST(day AS TIMESTAMP) is its midnight in UTC",
            )
