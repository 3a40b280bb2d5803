"""The bound form of an expression: typed, closed, and storable.

The binder makes it, the kernel evaluates it, the tables keep it. Conversions are explicit (`CAST`
calls that the binder puts in), except that a comparison may mix the numeric types: those are
compared exactly, never through DOUBLE.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from datastem.constants import Constant, constant_from_json, constant_to_json
from datastem.instants import MAX_INSTANT, MIN_INSTANT, from_micros
from datastem.types import BOOLEAN, TEXT, TIMESTAMP, Type, parse_type
from results.window import MovingEnd


class Op(enum.Enum):
    """Every operation of the kernel, with its arguments."""

    # (a, b) of one type, or any two numeric types -> BOOLEAN
    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IS_DISTINCT = "is distinct from"  # never NULL; its negation is NOT(IS_DISTINCT)
    # BOOLEAN, three-valued; AND and OR take two or more arguments
    AND = "and"
    OR = "or"
    NOT = "not"
    IS_NULL = "is null"  # never NULL
    IN = "in"  # (a, literal, literal, …), NULL literals allowed
    LIKE = "like"  # (text, pattern literal): % and _, backslash escapes
    CASE = "case"  # (condition, value, condition, value, …, else), values of one type
    CAST = "cast"  # (a) -> the call's type; what can't be converted is NULL
    # numbers; both arguments have one kind, and what can't be computed is NULL
    ADD = "+"  # also (TIMESTAMP or DURATION, DURATION) -> the type of the first
    SUB = "-"  # as ADD, and (TIMESTAMP, TIMESTAMP) -> DURATION
    MUL = "*"  # also (DURATION, number) -> DURATION, halves away from zero
    DIV = "/"  # DOUBLE or DECIMAL
    INT_DIV = "div"  # BIGINT, truncates towards zero
    MOD = "%"  # sign of the dividend
    NEG = "neg"  # also DURATION
    ABS = "abs"  # also DURATION
    ROUND = "round"  # (a) or (a, BIGINT literal digits); half away from zero
    FLOOR = "floor"
    CEIL = "ceil"
    SIGN = "sign"  # -> BIGINT; also DURATION
    # (DOUBLE) -> DOUBLE; what is no number is NULL
    SQRT = "sqrt"
    POWER = "power"  # (DOUBLE, DOUBLE)
    EXP = "exp"
    LN = "ln"
    LOG10 = "log10"
    # text; positions and lengths count code points
    LOWER = "lower"
    UPPER = "upper"
    LENGTH = "length"
    TRIM = "trim"  # spaces at both ends
    SUBSTRING = "substring"  # (text, BIGINT start from 1[, BIGINT length])
    CONCAT = "||"  # two or more texts; a result past `kernel.MAX_TEXT_BYTES` is NULL
    LEFT = "left"  # (text, BIGINT count), negative: all but so many
    RIGHT = "right"
    REPLACE = "replace"  # (text, old, new); a result past `kernel.MAX_TEXT_BYTES` is NULL
    SPLIT_PART = "split_part"  # (text, separator, BIGINT number)
    STRPOS = "strpos"  # (text, part) -> BIGINT, 0 without one
    STARTS_WITH = "starts_with"  # (text, prefix) -> BOOLEAN; LIKE if the prefix is a literal
    # values of one type; NULLs are left out
    GREATEST = "greatest"
    LEAST = "least"
    COALESCE = "coalesce"
    NULLIF = "nullif"
    # time, UTC; a third argument is a Zone
    DATE_TRUNC = "date_trunc"  # (TEXT literal unit, TIMESTAMP or DATE) -> TIMESTAMP
    # (TIMESTAMP, Zone) -> TIMESTAMP: what the zone's clock shows, as if it were UTC
    AT_TIME_ZONE = "at time zone"
    EXTRACT = "extract"  # (TEXT literal unit, TIMESTAMP or DATE) -> BIGINT; seconds DOUBLE.
    # Of a DURATION: all of it in that unit, DOUBLE; microseconds BIGINT


# Operations that read whole texts, or take a call of the C library for each row.
_HEAVY = frozenset({Op.LIKE, Op.CONCAT, Op.REPLACE, Op.SPLIT_PART, Op.STRPOS, Op.POWER})

# None is NULL. TIMESTAMP values are aware datetimes in UTC, DURATION values microseconds.
Scalar = Constant


@dataclass(frozen=True, slots=True)
class Literal:
    value: Scalar
    type: Type


@dataclass(frozen=True, slots=True)
class ColumnRef:
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Parameter:
    """A `:name` that has no value yet; the kernel never sees one."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Now:
    """The instant of the answer, which `at_instant` replaces; the kernel never sees one. With an
    `end` it is where a window begins or ends at that instant. That is never stored: it is made of a
    window."""

    type: Type = TIMESTAMP
    end: MovingEnd | None = None


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone, with the rules that it is computed by (`ZoneRules.packed`). They are part of it,
    so that an expression means the same in every process. Without rules, which `with_zones` gives
    it, it has no value."""

    name: str
    rules: str = ""
    type: Type = TEXT


@dataclass(frozen=True, slots=True)
class Call:
    op: Op
    args: tuple[Expression, ...]
    type: Type


Expression = Literal | ColumnRef | Parameter | Now | Zone | Call

TRUE = Literal(True, BOOLEAN)


def references_of(expression: Expression) -> Iterator[ColumnRef]:
    """Yield the references of an expression to columns, with repeats."""
    match expression:
        case ColumnRef():
            yield expression
        case Call(_, args, _):
            for arg in args:
                yield from references_of(arg)


def columns_of(expression: Expression) -> Iterator[str]:
    """Return the names of the columns an expression reads, with repeats."""
    return (reference.name for reference in references_of(expression))


def factors_of(condition: Expression) -> tuple[Expression, ...]:
    """Return the conditions that AND joins, none for TRUE."""
    if condition == TRUE:
        return ()
    if isinstance(condition, Call) and condition.op is Op.AND:
        return condition.args
    return (condition,)


def uses_now(*expressions: Expression) -> bool:
    """Return whether the value of any of the expressions depends on NOW."""
    for expression in expressions:
        if isinstance(expression, Now):
            return True
        if isinstance(expression, Call) and uses_now(*expression.args):
            return True
    return False


def at_instant(expression: Expression, now: int | None) -> Expression:
    """Return the expression with an instant, in microseconds, in the place of NOW. Before there is
    a NOW, and out of the years that a TIMESTAMP may have, it is NULL."""
    if not uses_now(expression):
        return expression
    return _with_now(expression, now)


def _with_now(expression: Expression, now: int | None) -> Expression:
    if isinstance(expression, Now):
        instant = now if now is None or expression.end is None else expression.end.at(now)
        is_instant = instant is not None and MIN_INSTANT <= instant <= MAX_INSTANT
        return Literal(from_micros(instant or 0) if is_instant else None, TIMESTAMP)
    if not isinstance(expression, Call):
        return expression
    args = tuple([_with_now(arg, now) for arg in expression.args])
    return Call(expression.op, args, expression.type)


def weight_of(expression: Expression) -> int:
    """Return how much an expression computes for a row, in plain operations; LIKE and its like and
    long texts count as several."""
    match expression:
        case Call(op, args, _):
            return (8 if op in _HEAVY else 1) + sum(weight_of(arg) for arg in args)
        case Literal(str() as text, _):
            return 1 + len(text) // 64
    return 1


def to_json(expression: Expression) -> list[Any]:
    """Return the expression as lists that `json.dumps` writes and `from_json` reads back
    exactly."""
    match expression:
        case Literal(value, type_):
            return ["lit", str(type_), constant_to_json(value)]
        case ColumnRef(name, type_):
            return ["col", str(type_), name]
        case Parameter(name, type_):
            return ["par", str(type_), name]
        case Now(type_, end):
            assert end is None, "the end of a window is written with the window"
            return ["now", str(type_)]
        case Zone(name, rules):
            return ["zone", name, rules]
        case Call(op, args, type_):
            return ["call", str(type_), op.value, *[to_json(arg) for arg in args]]


def from_json(form: list[Any]) -> Expression:
    tag = form[0]
    if tag == "zone":
        return Zone(form[1], form[2])
    type_ = parse_type(form[1])
    if tag == "lit":
        return Literal(constant_from_json(form[2], type_), type_)
    if tag == "col":
        return ColumnRef(form[2], type_)
    if tag == "par":
        return Parameter(form[2], type_)
    if tag == "now":
        return Now(type_)
    return Call(Op(form[2]), tuple(from_json(arg) for arg in form[3:]), type_)


def predicate_key(where: Expression) -> str:
    """Return the normal form of a predicate as text: equal for equal predicates over one stream."""
    return json.dumps(to_json(where), separators=(",", ":"))
