"""Functions that choose between values, and functions of time."""

from __future__ import annotations

from datastem.types import BIGINT, DOUBLE, TEXT, TIMESTAMP, Kind
from querystem.expressions import Literal, Op, Zone
from querystem.kernel.dates import DURATION_UNITS
from querystem.language.errors import Span, TypeProblem
from querystem.language.expressions.coerce import cast, comparable, need, unify
from querystem.language.expressions.time_zones import instant, zone_name
from querystem.language.functions.signature import (
    MAX_ARGUMENTS,
    Args,
    Bind,
    FunctionGroup,
    Signature,
)
from querystem.language.normal_form.normal import call
from querystem.language.tokens.literals import Typed
from querystem.language.tokens.names import suggest, words

TRUNC_UNITS = words("microsecond millisecond second minute hour day week month quarter year")
EXTRACT_UNITS = words("year quarter month week day dow doy hour minute second")


def _of_one_type(op: Op) -> Bind:
    """Return the binding of a function whose arguments and value have one type."""

    def bind(args: Args, span: Span) -> Typed:
        values, type_ = unify(args, span)
        if len(values) == 1:
            return values[0]
        return Typed(call(op, tuple(value.node for value in values), type_), span)

    return bind


def _nullif(args: Args, span: Span) -> Typed:
    lhs, rhs = comparable(args[0], args[1], span)
    values, type_ = unify((lhs, rhs), span)
    return Typed(call(Op.NULLIF, tuple(value.node for value in values), type_), span)


def _date_trunc(args: Args, span: Span) -> Typed:
    unit, zone = _unit(args[0], TRUNC_UNITS), zone_name(args[2]) if len(args) == 3 else ""
    if not zone:
        moment = _moment(args[1], "date_trunc")
        return Typed(call(Op.DATE_TRUNC, (unit, moment.node), TIMESTAMP), span)
    moment = instant(args[1], "date_trunc in a time zone")
    return Typed(call(Op.DATE_TRUNC, (unit, moment.node, Zone(zone)), TIMESTAMP), span)


def _extract(args: Args, span: Span) -> Typed:
    if args[1].type.kind is Kind.DURATION:
        return _in_unit(args, span)
    unit = _unit(args[0], EXTRACT_UNITS)
    moment = _moment(args[1], "extract")
    type_ = DOUBLE if unit.value == "second" else BIGINT
    return Typed(call(Op.EXTRACT, (unit, moment.node), type_), span)


def _in_unit(args: Args, span: Span) -> Typed:
    """Return the length of a duration in a unit."""
    unit = _unit(args[0], frozenset(DURATION_UNITS))
    type_ = BIGINT if unit.value == "microsecond" else DOUBLE
    return Typed(call(Op.EXTRACT, (unit, args[1].node), type_), span)


def _unit(value: Typed, units: frozenset[str]) -> Literal:
    text = value.node.value if isinstance(value.node, Literal) else None
    if not isinstance(text, str):
        raise TypeProblem("the unit must be a constant", value.span, hint=", ".join(sorted(units)))
    unit = text.lower()
    if unit not in units:
        raise TypeProblem(f"{text!r} is not a unit", value.span, hint=suggest(unit, units))
    return Literal(unit, TEXT)


def _moment(value: Typed, what: str) -> Typed:
    if value.type.kind is Kind.DATE:
        return cast(value, TIMESTAMP)
    return need(value, Kind.TIMESTAMP, what)


CHOICE = FunctionGroup(
    "Choice",
    (
        Signature(
            "coalesce",
            1,
            MAX_ARGUMENTS,
            _of_one_type(Op.COALESCE),
            "coalesce(a, …)",
            "the first value that is not NULL",
            "coalesce(NULL, 2)",
            "2",
        ),
        Signature(
            "greatest",
            1,
            MAX_ARGUMENTS,
            _of_one_type(Op.GREATEST),
            "greatest(a, …)",
            "the greatest value; NULLs are left out, NaN is the greatest number",
            "greatest(3, NULL, 7)",
            "7",
        ),
        Signature(
            "least",
            1,
            MAX_ARGUMENTS,
            _of_one_type(Op.LEAST),
            "least(a, …)",
            "the least value; NULLs are left out",
            "least('b', 'a')",
            "'a'",
        ),
        Signature(
            "nullif",
            2,
            2,
            _nullif,
            "nullif(a, b)",
            "a, or NULL if a equals b",
            "nullif(3, 3)",
            "NULL",
        ),
    ),
    "The values are brought to one type, as those of CASE are.",
)

TIME = FunctionGroup(
    "Time",
    (
        Signature(
            "date_trunc",
            2,
            3,
            _date_trunc,
            "date_trunc('unit', t[, 'zone'])",
            "the begin of the unit that t is in, as a TIMESTAMP; with a time zone, the instant at "
            "which the unit begins there",
            "date_trunc('day', TIMESTAMP '2026-11-16 09:45', 'Europe/Madrid')",
            "2026-11-15 23:00:00",
        ),
        Signature(
            "extract",
            2,
            2,
            _extract,
            "extract(unit FROM t)",
            "one field of a TIMESTAMP or DATE; of a duration all of it in that unit; "
            "of t AT TIME ZONE 'zone' what the clock shows there",
            "extract(dow FROM DATE '2026-11-16')",
            "1",
        ),
    ),
    "[Expressions](language.md#expressions) has the units, [time zones](language.md#time-zones)\n"
    "what zones are.",
)
