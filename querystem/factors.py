"""How the query SteM matches a predicate: its factors, and how the rows of each are found.

This describes what `querystem.index` does with a predicate, by the same formula and limits.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from datastem.instants import from_micros
from datastem.schema import StreamSchema
from datastem.types import Kind, Type
from querystem.expressions import Expression
from querystem.index.axes import FEW_CUTS, FEW_TEXTS
from querystem.index.batch import point_of
from querystem.index.formula import (
    Condition,
    Every,
    Factor,
    Formula,
    Interval,
    Member,
    Some,
    cut_order,
    formula_of,
    like_of,
)
from querystem.index.like.axis import FEW_PATTERNS
from querystem.kernel.compare import END, EPOCH_DAY, START
from querystem.labels import labelled
from querystem.language.normal_form.texts import compared_text, expression_text, literal_text
from querystem.language.tokens.durations import write_interval


class Access(enum.Enum):
    """How the rows of a factor are found, the cheapest way for many predicates first."""

    LOOKED_UP = "one look-up, for all values or patterns of the operand together"
    SEARCHED = "one binary search, for all constants of the operand together"
    COMPARED = "one comparison for each distinct constant of the operand"
    EVALUATED = "an evaluation of its own, while its conjunction has rows left"


def factors_of(where: Expression) -> tuple[Factor, ...]:
    """Return the distinct factors of a predicate in the order of its formula; empty if all rows
    match, or no row does."""
    return tuple(dict.fromkeys(_leaves(formula_of(where))))


def _leaves(formula: Formula) -> Iterator[Factor]:
    if isinstance(formula, Every | Some):
        for part in formula.parts:
            yield from _leaves(part)
    else:
        yield formula


def operand_of(factor: Factor) -> Expression | None:
    """Return the operand a factor is indexed by; None for a condition that no index answers."""
    if isinstance(factor, Condition):
        like = like_of(factor)
        return None if like is None else like[0]
    return factor.operand


def constants_of(factors: Iterable[Factor]) -> int:
    """Return how many distinct constants, texts or cuts, factors compare their one operand with."""
    constants: set[Any] = set()
    for factor in factors:
        match factor:
            case Interval(_, begin, end):
                constants |= {begin, end} - {START, END}
            case Member(_, value):
                constants.add(value)
            case Condition() if (like := like_of(factor)) is not None:
                constants.add(like[1])
    return len(constants)


def access_of(factor: Factor, constants: int) -> Access:
    """Return how a factor's rows are found, if the factors on its operand have this number of
    distinct `constants`."""
    match factor:
        case Interval() if constants <= FEW_CUTS:
            return Access.COMPARED
        case Interval():
            return Access.SEARCHED if point_of(factor) is None else Access.LOOKED_UP
        case Member():
            return Access.COMPARED if constants <= FEW_TEXTS else Access.LOOKED_UP
        case Condition():
            if like_of(factor) is None:
                return Access.EVALUATED
            return Access.COMPARED if constants <= FEW_PATTERNS else Access.LOOKED_UP


# ---- as text


def factor_text(factor: Factor) -> str:
    """Return a condition that equals the factor; it may be written differently than in the
    query."""
    match factor:
        case Member(operand, value):
            return f"{compared_text(operand)} = {literal_text(value)}"
        case Condition(expression, is_true):
            text = expression_text(expression)
            return text if is_true else f"NOT ({text})"
        case Interval(operand, begin, end):
            return _interval_text(compared_text(operand), operand.type, begin, end)


def _interval_text(name: str, type_: Type, begin: Any, end: Any) -> str:
    if cut_order(begin) >= cut_order(end):
        return "FALSE"
    if begin is START and end is END:
        return f"{name} IS NOT NULL"
    if end == _next(begin, type_):
        return f"{name} = {_cut_text(begin, type_)}"
    parts = []
    if begin is not START:
        parts.append(f"{name} {_bound_text(begin, type_, '>=', '>')}")
    if end is not END:
        parts.append(f"{name} {_bound_text(end, type_, '<', '<=')}")
    return " AND ".join(parts)


def _bound_text(cut: Any, type_: Type, at: str, past: str) -> str:
    """Return one side of an interval. The index has `> 184.5` as "from the next double on"; the
    shorter of the two texts is taken. The same holds for durations."""
    at_text = _cut_text(cut, type_)
    before_text = _before(cut, type_)
    if before_text is not None:
        return f"{past} {before_text}" if len(before_text) < len(at_text) else f"{at} {at_text}"
    return f"{at} {at_text}" if at_text else f"{past} {_cut_text(cut - 1, type_)}"


def _before(cut: Any, type_: Type) -> str | None:
    """Return the value before a cut as a literal; None if that is never the shorter text."""
    if type_.kind is Kind.DOUBLE and math.isfinite(cut):
        return _cut_text(math.nextafter(cut, -math.inf), type_)
    return _cut_text(cut - 1, type_) if type_.kind is Kind.DURATION else None


def _next(cut: Any, type_: Type) -> Any:
    if isinstance(cut, float):
        return math.nextafter(cut, math.inf) if math.isfinite(cut) else None
    return None if cut is START else cut + 1


def _cut_text(cut: Any, type_: Type) -> str:
    """Return the cut as a literal; empty for the instant after the last one."""
    try:
        match type_.kind:
            case Kind.TIMESTAMP:
                return literal_text(from_micros(cut))
            case Kind.DATE:
                return literal_text(datetime.date.fromordinal(cut + EPOCH_DAY))
            case Kind.DECIMAL:
                return format(decimal.Decimal(cut).scaleb(-type_.scale), "f")
            case Kind.DURATION:
                return write_interval(cut)
    except (OverflowError, ValueError):
        return ""
    return literal_text(cut)


def labelled_factor(factor: Factor, schema: StreamSchema) -> Factor:
    """Return a factor of a predicate of a stream as people read it."""
    if isinstance(factor, Condition):
        return replace(factor, expression=labelled(factor.expression, schema))
    return replace(factor, operand=labelled(factor.operand, schema))
