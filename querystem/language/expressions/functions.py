"""The functions and the aggregates of the language, with their types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from datastem.types import BIGINT, DOUBLE, MAX_PRECISION, TEXT, TIMESTAMP, Kind, Type, decimal_type
from querystem.expressions import Expression, Literal, Op
from querystem.grouping import Aggregate, Function
from querystem.kernel.dates import DURATION_UNITS
from querystem.language.errors import BindProblem, Span, SyntaxProblem, TypeProblem, UnknownFunction
from querystem.language.expressions.clocks import is_clock, refuse_clock
from querystem.language.expressions.coerce import (
    cast,
    closed,
    comparable,
    need,
    need_number,
    need_signed,
    unify,
)
from querystem.language.normal_form.normal import call
from querystem.language.syntax.tree import consume, node_span
from querystem.language.tokens.literals import Typed
from querystem.language.tokens.names import suggest, words

TRUNC_UNITS = words("microsecond millisecond second minute hour day week month quarter year")
EXTRACT_UNITS = words("year quarter month week day dow doy hour minute second")

Args = Sequence[Typed]


@dataclass(frozen=True, slots=True)
class _Signature:
    least: int
    most: int
    bind: Callable[[Args, Span], Typed]


def check_function(name: str, span: Span) -> None:
    """Raise UnknownFunction if no function has this name, which is in lower case."""
    if name not in FUNCTIONS:
        raise _unknown(name, span)


def bind_function(name: str, args: Args, span: Span) -> Typed:
    """Return the call of a function whose name, in lower case, `check_function` accepts; raise
    SyntaxProblem, TypeProblem."""
    function = FUNCTIONS[name]
    if not function.least <= len(args) <= function.most:
        raise SyntaxProblem(f"{name} takes {_counted(function)}, not {len(args)}", span)
    return function.bind(args, span)


def _abs(args: Args, span: Span) -> Typed:
    value = need_signed(args[0], "abs")
    return Typed(call(Op.ABS, (value.node,), value.type), span)


def _whole(op: Op) -> Callable[[Args, Span], Typed]:
    def bind(args: Args, span: Span) -> Typed:
        value = need_number(args[0], op.value)
        return Typed(call(op, (value.node,), _rounded(value.type, 0)), span)

    return bind


def _round(args: Args, span: Span) -> Typed:
    value = need_number(args[0], "round")
    if len(args) == 1:
        return Typed(call(Op.ROUND, (value.node,), _rounded(value.type, 0)), span)
    digits = args[1].node
    if not isinstance(digits, Literal) or not isinstance(digits.value, int):
        raise TypeProblem("round needs a constant number of digits", args[1].span)
    if abs(digits.value) > MAX_PRECISION:
        raise TypeProblem(f"round takes -{MAX_PRECISION} to {MAX_PRECISION} digits", args[1].span)
    type_ = _rounded(value.type, digits.value)
    return Typed(call(Op.ROUND, (value.node, digits), type_), span)


def _rounded(type_: Type, digits: int) -> Type:
    """Return the type of a rounded number: a DECIMAL keeps the digits asked for, and gains one
    before the point, because 9.9 becomes 10."""
    if type_.kind is not Kind.DECIMAL:
        return type_
    scale = min(type_.scale, max(0, digits))
    return decimal_type(min(MAX_PRECISION, type_.precision - type_.scale + scale + 1), scale)


def _text(op: Op, result: Type) -> Callable[[Args, Span], Typed]:
    def bind(args: Args, span: Span) -> Typed:
        return Typed(call(op, (need(args[0], Kind.TEXT, op.value).node,), result), span)

    return bind


def _substring(args: Args, span: Span) -> Typed:
    text = need(args[0], Kind.TEXT, "substring")
    numbers = [need(arg, Kind.BIGINT, "substring") for arg in args[1:]]
    nodes = (text.node, *(number.node for number in numbers))
    return Typed(call(Op.SUBSTRING, nodes, TEXT), span)


def _coalesce(args: Args, span: Span) -> Typed:
    values, type_ = unify(args, span)
    if len(values) == 1:
        return values[0]
    return Typed(call(Op.COALESCE, tuple(value.node for value in values), type_), span)


def _nullif(args: Args, span: Span) -> Typed:
    lhs, rhs = comparable(args[0], args[1], span)
    values, type_ = unify((lhs, rhs), span)
    return Typed(call(Op.NULLIF, tuple(value.node for value in values), type_), span)


def _date_trunc(args: Args, span: Span) -> Typed:
    unit = _unit(args[0], TRUNC_UNITS)
    moment = _moment(args[1], "date_trunc")
    return Typed(call(Op.DATE_TRUNC, (unit, moment.node), TIMESTAMP), span)


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


FUNCTIONS = {
    "abs": _Signature(1, 1, _abs),
    "ceil": _Signature(1, 1, _whole(Op.CEIL)),
    "coalesce": _Signature(1, 1000, _coalesce),
    "date_trunc": _Signature(2, 2, _date_trunc),
    "extract": _Signature(2, 2, _extract),
    "floor": _Signature(1, 1, _whole(Op.FLOOR)),
    "length": _Signature(1, 1, _text(Op.LENGTH, BIGINT)),
    "lower": _Signature(1, 1, _text(Op.LOWER, TEXT)),
    "nullif": _Signature(2, 2, _nullif),
    "round": _Signature(1, 2, _round),
    "substring": _Signature(2, 3, _substring),
    "trim": _Signature(1, 1, _text(Op.TRIM, TEXT)),
    "upper": _Signature(1, 1, _text(Op.UPPER, TEXT)),
}

_INSTEAD = {
    "substr": "substring",
    "len": "length",
    "char_length": "length",
    "ceiling": "ceil",
    "ifnull": "coalesce",
    "nvl": "coalesce",
    "isnull": "coalesce",
    "lcase": "lower",
    "ucase": "upper",
    "date_part": "extract",
    "mod": "the operator %",
    "mean": "avg",
    "average": "avg",
    "total": "sum",
    "stdev": "stddev",
    "any_value": "first",
    "arbitrary": "first",
    "first_value": "first",
    "last_value": "last",
    "approx_count_distinct": "count(DISTINCT …)",
    "variance": "stddev(x) * stddev(x)",
    "var_samp": "stddev(x) * stddev(x)",
    "if": "CASE WHEN … THEN … ELSE … END",
    "iif": "CASE WHEN … THEN … ELSE … END",
    "try_cast": "CAST, which gives NULL for what can't be converted",
}

# Functions that people look for and that the language has no substitute for.
_POWER = "powers and roots are not part of the language; write x * x, or compute them in the client"
_CONCAT = "texts can't be joined; select both columns, and join them in the client"
_MEDIAN = "the aggregates are avg, count, first, last, max, min, stddev and sum"
_ABSENT = (
    dict.fromkeys(("power", "pow", "sqrt", "exp", "ln", "log"), _POWER)
    | dict.fromkeys(("concat", "concat_ws", "string_agg", "group_concat"), _CONCAT)
    | dict.fromkeys(("median", "mode", "percentile", "percentile_cont", "quantile"), _MEDIAN)
)


def _unknown(name: str, span: Span) -> SyntaxProblem | UnknownFunction:
    if is_clock(name):
        return refuse_clock(span)
    candidates = [*FUNCTIONS, *AGGREGATES, "cast"]
    if name in _INSTEAD:
        hint = f"write {_INSTEAD[name]}"
    else:
        hint = _ABSENT.get(name) or suggest(name, candidates)
    return UnknownFunction(f"there is no function {name[:60]}", span, hint=hint)


def _counted(function: _Signature) -> str:
    least, most = function.least, function.most
    if least == most:
        return f"{least} argument{'s' if least > 1 else ''}"
    return f"{least} to {most} arguments"


_LEAST_MEAN_SCALE = 6
# DISTINCT makes no difference to these.
_PICKING = (Function.MIN, Function.MAX, Function.FIRST, Function.LAST)


@dataclass(frozen=True, slots=True)
class _Rule:
    function: Function
    type: Callable[[Type], Type]
    numbers: bool = False


def _sum(type_: Type) -> Type:
    if type_.kind is Kind.DECIMAL:
        return decimal_type(MAX_PRECISION, type_.scale)
    return type_


def _avg(type_: Type) -> Type:
    if type_.kind is Kind.DECIMAL:
        return decimal_type(MAX_PRECISION, max(_LEAST_MEAN_SCALE, type_.scale))
    return DOUBLE


def _same(type_: Type) -> Type:
    return type_


_STDDEV = _Rule(Function.STDDEV, lambda _: DOUBLE, numbers=True)

AGGREGATES = {
    "avg": _Rule(Function.AVG, _avg, numbers=True),
    "count": _Rule(Function.COUNT, lambda _: BIGINT),
    "first": _Rule(Function.FIRST, _same),
    "last": _Rule(Function.LAST, _same),
    "max": _Rule(Function.MAX, _same),
    "min": _Rule(Function.MIN, _same),
    "stddev": _STDDEV,
    "stddev_samp": _STDDEV,
    "sum": _Rule(Function.SUM, _sum, numbers=True),
}


def is_aggregate(node: exp.Expr) -> bool:
    return (
        isinstance(node, exp.Anonymous)
        and isinstance(node.this, str)
        and node.this.lower() in AGGREGATES
    )


def bind_aggregate(node: exp.Expr, bind: Callable[[exp.Expr], Typed]) -> Aggregate:
    """Return the aggregate of a node that `is_aggregate`; `bind` binds its argument."""
    consume(node, "this", "expressions")
    name, span, args = node.this.lower(), node_span(node), node.expressions
    distinct = len(args) == 1 and isinstance(args[0], exp.Distinct)
    if distinct:
        consume(args[0], "expressions")
        args = args[0].expressions
    if len(args) != 1:
        hint = "count(*) counts rows" if name == "count" and not args else ""
        raise SyntaxProblem(f"{name} takes 1 argument, not {len(args)}", span, hint=hint)
    if isinstance(args[0], exp.Star):
        return _count_rows(name, distinct, args[0], span)
    return _aggregate(name, distinct, bind(args[0]))


def misplaced(node: exp.Expr, clause: str) -> BindProblem:
    """Return the error for an aggregate in a clause that has nothing to aggregate."""
    hints = {
        "WHERE": "WHERE chooses rows before they are grouped; write the condition in HAVING",
        "GROUP BY": "group by what the aggregate is taken over",
        "an aggregate": "aggregate once; an expression may hold several aggregates",
    }
    return BindProblem(
        f"{node.this.lower()} can't stand in {clause}",
        node_span(node),
        hint=hints.get(clause, ""),
        reason="MISPLACED_AGGREGATE",
    )


def _count_rows(name: str, distinct: bool, star: exp.Expr, span: Span) -> Aggregate:
    consume(star)
    if name != "count":
        raise SyntaxProblem(f"{name} takes a value, not *", span, hint="only count takes *")
    if distinct:
        raise SyntaxProblem(
            "count(DISTINCT *) is not part of the language", span, hint="count(DISTINCT column)"
        )
    return Aggregate(Function.COUNT_ROWS, None, False, BIGINT)


def _aggregate(name: str, distinct: bool, value: Typed) -> Aggregate:
    rule = AGGREGATES[name]
    argument = _argument(name, rule, value)
    distinct = distinct and rule.function not in _PICKING
    return Aggregate(rule.function, argument, distinct, rule.type(argument.type))


def _argument(name: str, rule: _Rule, value: Typed) -> Expression:
    value = closed(value)
    return need_number(value, name).node if rule.numbers else value.node
