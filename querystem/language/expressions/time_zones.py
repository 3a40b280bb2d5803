"""Time zones in expressions: `t AT TIME ZONE '…'`, and the third argument of date_trunc.

What a zone's clock shows is no instant, so it stands only where a field, a day or a text is made of
it. The rules of the zone come later: `querystem.zones.with_zones` gives them to a bound query.
"""

from __future__ import annotations

from datastem.types import TIMESTAMP, Kind
from querystem.expressions import Literal, Op, Zone
from querystem.language.errors import Span, SyntaxProblem, TypeProblem
from querystem.language.expressions.coerce import need
from querystem.language.normal_form.normal import call
from querystem.language.syntax.calendar_windows import checked_zone
from querystem.language.tokens.literals import Typed

_FORM = "write the name of a zone, such as 'Europe/Madrid'"


def clock_time(value: Typed, zone: Typed, span: Span) -> Typed:
    """Return what the clock of a zone shows at an instant, as if it were UTC; raise QueryError."""
    name, moment = zone_name(zone), instant(value, "AT TIME ZONE")
    if not name:
        return Typed(moment.node, span)
    return Typed(call(Op.AT_TIME_ZONE, (moment.node, Zone(name)), TIMESTAMP), span)


def zone_name(zone: Typed) -> str:
    """Return the name of a zone, empty for UTC; raise TypeProblem, or BindProblem for what is no
    name of one."""
    name = zone.node.value if isinstance(zone.node, Literal) else None
    if not isinstance(name, str):
        raise TypeProblem("the time zone must be a constant text", zone.span, hint=_FORM)
    return checked_zone(name, zone.span)


def instant(value: Typed, what: str) -> Typed:
    """Return a value that is an instant; raise TypeProblem for any other."""
    if value.type.kind is Kind.DATE and not value.open:
        raise TypeProblem(
            f"{what} needs an instant; a DATE is the same day in every zone",
            value.span,
            hint="CAST(day AS TIMESTAMP) is its midnight in UTC",
        )
    return need(value, Kind.TIMESTAMP, what)


def misplaced_zone(span: Span) -> SyntaxProblem:
    """Return the error for AT TIME ZONE where what a clock shows has no meaning."""
    return SyntaxProblem(
        "AT TIME ZONE stands in extract(…), CAST(… AS DATE) and CAST(… AS TEXT) alone",
        span,
        hint="what a clock shows is no instant; date_trunc('day', t, 'Europe/Madrid') is one",
        reason="NOT_SUPPORTED",
    )
