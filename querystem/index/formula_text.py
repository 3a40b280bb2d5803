"""Formulas as texts, so that many of them are a column, and each is read at its first use."""

from __future__ import annotations

import json
from typing import Any

from querystem.expressions import from_json, to_json
from querystem.index.formula import Condition, Every, Formula, Interval, Member, Some, formula_of
from querystem.kernel.compare import END, START

_EDGES = {"start": START, "end": END}


def formula_text(formula: Formula) -> str:
    """Return a formula as text, from which `read_formula` makes it again."""
    return json.dumps(_to_json(formula), separators=(",", ":"))


def read_formula(text: str) -> Formula:
    """Return the formula of a text."""
    return _from_json(json.loads(text))


def _to_json(formula: Formula) -> list[Any]:
    match formula:
        case Condition(expression, value):
            return ["where", value, to_json(expression)]
        case Member(operand, value):
            return ["member", to_json(operand), value]
        case Interval(operand, begin, end):
            return ["interval", to_json(operand), _cut_json(begin), _cut_json(end)]
        case Every(parts):
            return ["every", *map(_to_json, parts)]
        case Some(parts):
            return ["some", *map(_to_json, parts)]


def _from_json(form: list[Any]) -> Formula:
    match form:
        case ["where", bool() as value, expression]:
            return formula_of(from_json(expression), value)
        case ["member", operand, str() as value]:
            return Member(from_json(operand), value)
        case ["interval", operand, begin, end]:
            return Interval(from_json(operand), _cut(begin), _cut(end))
        case ["every", *parts]:
            return Every(tuple(map(_from_json, parts)))
        case ["some", *parts]:
            return Some(tuple(map(_from_json, parts)))
    raise ValueError(f"no formula: {form!r}")


def _cut_json(cut: Any) -> Any:
    if cut is START or cut is END:
        return cut.value
    # In JSON a double would lose NaN and infinity; an integer of any size is safe.
    return ["double", repr(cut)] if isinstance(cut, float) else int(cut)


def _cut(form: Any) -> Any:
    if isinstance(form, str):
        return _EDGES[form]
    return float(form[1]) if isinstance(form, list) else form
