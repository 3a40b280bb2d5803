"""Functions of numbers."""

from __future__ import annotations

from datastem.types import BIGINT, DOUBLE, MAX_PRECISION, Kind, Type, decimal_type
from querystem.expressions import Literal, Op
from querystem.language.errors import Span, TypeProblem
from querystem.language.expressions.coerce import arithmetic, need_number, need_signed
from querystem.language.functions.signature import Args, Bind, FunctionGroup, Signature, of_doubles
from querystem.language.normal_form.normal import call
from querystem.language.tokens.literals import Typed


def _abs(args: Args, span: Span) -> Typed:
    value = need_signed(args[0], "abs")
    return Typed(call(Op.ABS, (value.node,), value.type), span)


def _sign(args: Args, span: Span) -> Typed:
    return Typed(call(Op.SIGN, (need_signed(args[0], "sign").node,), BIGINT), span)


def _mod(args: Args, span: Span) -> Typed:
    return arithmetic(Op.MOD, args[0], args[1], span)


def _whole(op: Op) -> Bind:
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


NUMBERS = FunctionGroup(
    "Numbers",
    (
        Signature(
            "abs", 1, 1, _abs, "abs(x)", "the magnitude of a number or a duration", "abs(-3)", "3"
        ),
        Signature(
            "ceil",
            1,
            1,
            _whole(Op.CEIL),
            "ceil(x)",
            "the least whole number that is at least x",
            "ceil(2.1)",
            "3.0",
        ),
        Signature(
            "exp",
            1,
            1,
            of_doubles(Op.EXP, DOUBLE),
            "exp(x)",
            "e to the power of x; infinite if that is too large for a DOUBLE",
            "exp(0)",
            "1.0",
        ),
        Signature(
            "floor",
            1,
            1,
            _whole(Op.FLOOR),
            "floor(x)",
            "the greatest whole number that is at most x",
            "floor(-2.1)",
            "-3.0",
        ),
        Signature(
            "ln",
            1,
            1,
            of_doubles(Op.LN, DOUBLE),
            "ln(x)",
            "the natural logarithm; NULL for 0 and less",
            "ln(0)",
            "NULL",
        ),
        Signature(
            "log10",
            1,
            1,
            of_doubles(Op.LOG10, DOUBLE),
            "log10(x)",
            "the logarithm to base 10; NULL for 0 and less",
            "log10(1000)",
            "3.0",
        ),
        Signature(
            "mod",
            2,
            2,
            _mod,
            "mod(x, y)",
            "the remainder, with the sign of x, as x % y; NULL if y is 0",
            "mod(-7, 3)",
            "-1",
        ),
        Signature(
            "power",
            2,
            2,
            of_doubles(Op.POWER, DOUBLE),
            "power(x, y)",
            "x to the power of y; NULL for 0 to a negative power, and for a negative number to a "
            "power that is not whole",
            "power(2, 10)",
            "1024.0",
        ),
        Signature(
            "round",
            1,
            2,
            _round,
            "round(x[, digits])",
            "x rounded to so many digits after the point, halves away from zero; without digits to "
            "a whole number",
            "round(2.675, 2)",
            "2.68",
        ),
        Signature(
            "sign",
            1,
            1,
            _sign,
            "sign(x)",
            "−1, 0 or 1 as x is less than, equal to or greater than 0; 0 for NaN",
            "sign(-2.5)",
            "-1",
        ),
        Signature(
            "sqrt",
            1,
            1,
            of_doubles(Op.SQRT, DOUBLE),
            "sqrt(x)",
            "the square root; NULL for a negative number",
            "sqrt(2.25)",
            "1.5",
        ),
    ),
    "`exp`, `ln`, `log10`, `power` and `sqrt` take any number and give a DOUBLE. All but `sqrt` "
    "are computed\nby the C library of the machine, so the last digit of a result may differ "
    "between machines.",
)
