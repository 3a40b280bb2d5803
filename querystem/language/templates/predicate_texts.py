"""Texts of predicates: many rows of values, filled into one WHERE.

Each factor is filled once for each distinct combination of its values, by the code that fills a
single query. Only AND and OR are assembled row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from typing import Any

from datastem.types import BOOLEAN
from querystem.expressions import Call, Expression, Literal, Op, Parameter
from querystem.language.normal_form.normal import sort_key
from querystem.language.templates.filling import expression_filler

_CONNECTIVES = (Op.AND, Op.OR)
_COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.IS_DISTINCT, Op.IN)
# Equal values of these kinds may be written differently: 0.0 and -0.0, 1.5 and 1.50.
_SEVERAL_SPELLINGS = {float, Decimal}


class Unfit(Exception):
    """Filling in simplifies more than one factor, so the rows have to be filled one by one."""


def computed_with(expression: Expression, compared: bool = False) -> set[str]:
    """Return the parameters that stand elsewhere than beside a comparison, unless the expression
    itself is `compared`."""
    match expression:
        case Parameter(name, _):
            return set() if compared else {name}
        case Call(op, args, _):
            return {name for arg in args for name in computed_with(arg, op in _COMPARISONS)}
    return set()


def predicate_texts(
    where: Expression,
    values: Mapping[str, Sequence[Any]],
    literal: Callable[[str, Any], Literal],
    count: int,
) -> list[str]:
    """Return the `predicate_key` of each of the `count` rows; raise Unfit, and what `literal`
    raises."""
    return list(_PredicateTexts(values, literal, count).texts(where, top=True))


class _PredicateTexts:
    def __init__(
        self,
        values: Mapping[str, Sequence[Any]],
        literal: Callable[[str, Any], Literal],
        count: int,
    ) -> None:
        self._values = values
        self._literal = literal
        self._count = count
        self._marks = {name: marks_of(column) for name, column in values.items()}

    def texts(self, expression: Expression, top: bool = False) -> Iterable[str]:
        names = sorted(set(_parameters(expression)))
        if not names:
            return repeat(sort_key(expression), self._count)
        if isinstance(expression, Call) and expression.op in _CONNECTIVES:
            return self._connected(expression, top)
        return self._factor(expression, names)

    def _connected(self, expression: Call, top: bool) -> list[str]:
        head = sort_key(Call(expression.op, (), BOOLEAN))[:-1]
        texts = []
        for row in zip(*(self.texts(arg) for arg in expression.args), strict=True):
            parts = sorted(set(row))
            if len(parts) > 1:
                texts.append(f"{head},{','.join(parts)}]")
            elif top:
                texts.append(parts[0])
            else:
                raise Unfit
        return texts

    def _factor(self, factor: Expression, names: Sequence[str]) -> list[str]:
        fill = expression_filler(factor)
        cached: dict[tuple[Any, ...], str] = {}
        texts = []
        columns = [self._values[name] for name in names]
        for marks, *values in zip(
            zip(*(self._marks[n] for n in names), strict=True), *columns, strict=True
        ):
            text = cached.get(marks)
            if text is None:
                literals = {n: self._literal(n, v) for n, v in zip(names, values, strict=True)}
                text = cached[marks] = _factor_text(fill(literals))
            texts.append(text)
        return texts


def marks_of(values: Sequence[Any]) -> Sequence[Any]:
    """Return the values, or texts of them, such that only identical values are equal: 0.0 is not
    -0.0, and 1 is not TRUE."""
    kinds = set(map(type, values)) - {type(None)}
    alike = len(kinds) <= 1 and not kinds & _SEVERAL_SPELLINGS
    return values if alike else [repr(value) for value in values]


def _factor_text(filled: Expression) -> str:
    if isinstance(filled, Literal) or (isinstance(filled, Call) and filled.op in _CONNECTIVES):
        raise Unfit
    return sort_key(filled)


def _parameters(expression: Expression) -> Iterable[str]:
    match expression:
        case Parameter(name, _):
            yield name
        case Call(_, args, _):
            for arg in args:
                yield from _parameters(arg)
