"""An expression as text a person reads: the language's own words, brackets only where needed."""

from __future__ import annotations

import datetime

from datastem.instants import format_instant, to_micros
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op, Parameter, Scalar
from querystem.language.words import write_name

_WEAKEST_FIRST = (
    {Op.OR},
    {Op.AND},
    {Op.NOT},
    {Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.IS_DISTINCT, Op.LIKE, Op.IN, Op.IS_NULL},
    {Op.ADD, Op.SUB},
    {Op.MUL, Op.DIV, Op.INT_DIV, Op.MOD},
    {Op.NEG},
)
_STRENGTH = {op: strength for strength, ops in enumerate(_WEAKEST_FIRST) for op in ops}
_CLOSED = len(_WEAKEST_FIRST)


def expression_text(expression: Expression) -> str:
    match expression:
        case Literal(value, _):
            return literal_text(value)
        case ColumnRef(name, _):
            return write_name(name)
        case Parameter(name, _):
            return f":{name}"
        case Call():
            return _call_text(expression)


def literal_text(value: Scalar) -> str:
    match value:
        case None | bool():
            return "NULL" if value is None else str(value).upper()
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime.datetime():
            return f"'{format_instant(to_micros(value))}'"
        case datetime.date():
            return f"'{value.isoformat()}'"
        case float():
            return repr(value)
    return str(value)


def _call_text(call: Call) -> str:
    strength = _STRENGTH.get(call.op, _CLOSED)
    args = [_bracketed(arg, strength) for arg in call.args]
    match call.op:
        case Op.NOT:
            return f"NOT {args[0]}"
        case Op.NEG:
            return f"-{args[0]}"
        case Op.IS_NULL:
            return f"{args[0]} IS NULL"
        case Op.IN:
            return f"{args[0]} IN ({', '.join(args[1:])})"
        case Op.CAST:
            return f"CAST({args[0]} AS {call.type})"
        case Op.CASE:
            return _case_text(args)
    if strength == _CLOSED:
        return f"{call.op.value}({', '.join(args)})"
    return f" {call.op.value.upper()} ".join(args)


def _case_text(args: list[str]) -> str:
    branches = zip(args[:-1:2], args[1::2], strict=True)
    whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in branches)
    return f"CASE {whens} ELSE {args[-1]} END"


def compared_text(operand: Expression) -> str:
    """The operand as it stands beside a comparison."""
    return _bracketed(operand, _STRENGTH[Op.EQ])


def _bracketed(arg: Expression, around: int) -> str:
    text = expression_text(arg)
    inner = _STRENGTH.get(arg.op, _CLOSED) if isinstance(arg, Call) else _CLOSED
    return f"({text})" if inner <= around < _CLOSED else text
