"""Stored texts by template, and their constants as columns.

Texts that differ only in their constants have one template: the predicate with a parameter in the
place of each constant. A template is parsed once, and its constants are read for all its texts
together. A template with few texts, and a constant that is not written plainly, are left to be
parsed one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s, Mask
from datastem.types import Kind, parse_type
from querystem.expressions import (
    Call,
    ColumnRef,
    Expression,
    Literal,
    Now,
    Parameter,
    Zone,
    from_json,
)
from querystem.index.columns.constants import ConstantColumns
from querystem.index.columns.formulas import operand_parameters
from querystem.index.formula import formula_of

# A literal in a stored text, and the text with a hole in its place. In a JSON text `["lit",` can't
# stand inside a string, because quotes are escaped there.
_LITERAL = r'\["lit",("[^"]*"),(?:"(?:[^"\\]|\\.)*"|[^\]"]*)\]'
_LITERALS = re.compile(_LITERAL)
_HOLE = r'["par",\1]'
_HOLES = re.compile(r'\["par","([^"]*)"\]')
# How a constant is written if it is nothing special. Up to 18 digits always fit int64.
_INTEGER = "-?[0-9]{1,18}"
_PLAIN = {
    Kind.BIGINT: _INTEGER,
    Kind.TIMESTAMP: _INTEGER,
    Kind.DURATION: _INTEGER,
    Kind.DOUBLE: "-?[0-9][0-9.eE+-]*",
    Kind.TEXT: r'"(?:[^"\\]|\\.)*"',
    Kind.DATE: '"[0-9]{4}-[0-9]{2}-[0-9]{2}"',
    Kind.DECIMAL: r'"-?[0-9]+(?:\.[0-9]+)?"',
    Kind.BOOLEAN: "true|false",
}
# Fewer texts are parsed one by one in the same time.
_MIN_TEXTS = 16


@dataclass(frozen=True, slots=True)
class TemplateTexts:
    """The stored texts at places `rows`, all of one template, and their constants."""

    template: Expression
    rows: Int64s
    constants: ConstantColumns


@dataclass(frozen=True, slots=True)
class OtherTexts:
    """The stored texts at places `rows`, which are to be parsed one by one."""

    rows: Int64s


def by_template(texts: pa.Array) -> Iterator[TemplateTexts | OtherTexts]:
    """Yield all stored texts, those of one template together."""
    rows = np.arange(len(texts))
    # Mostly there are few templates, and it takes less time to try that of the first text on all
    # texts than to find the template of each text.
    while len(rows) >= _MIN_TEXTS:
        count = len(rows)
        template = _Template(_LITERALS.sub(_HOLE, texts[rows[0].item()].as_py()))
        is_plain, written = template.match(texts.take(pa.array(rows)))
        if is_plain.sum() >= _MIN_TEXTS:
            yield from template.texts(rows[is_plain], written.filter(pa.array(is_plain)))
            rows = rows[~is_plain]
        if 2 * len(rows) > count:
            break
    if not len(rows):
        return
    remaining = texts.take(pa.array(rows))
    forms = pc.replace_substring_regex(remaining, _LITERAL, _HOLE).dictionary_encode()
    for code, places in places_by_code(forms.indices.to_numpy()):
        if len(places) < _MIN_TEXTS:
            yield OtherTexts(rows[places])
            continue
        template = _Template(forms.dictionary[code].as_py())
        is_plain, written = template.match(remaining.take(pa.array(places)))
        yield from template.texts(rows[places[is_plain]], written.filter(pa.array(is_plain)))
        yield OtherTexts(rows[places[~is_plain]])


def parse_text(text: str) -> Expression:
    """Return the predicate of a stored text."""
    return from_json(json.loads(text))


def places_by_code(codes: Int64s) -> Iterator[tuple[int, Int64s]]:
    """Yield each code from 0 on that occurs, and its places, ascending."""
    order = np.argsort(codes, kind="stable")
    for code, places in enumerate(np.split(order, np.cumsum(np.bincount(codes))[:-1])):
        if len(places):
            yield code, places


class _Template:
    """A text with holes: `["par","TYPE"]` stands in the place of each constant."""

    def __init__(self, form: str) -> None:
        self._form = form
        # The parameter of each hole, and its type.
        self._types = {
            f"c{place}": parse_type(hole[1]) for place, hole in enumerate(_HOLES.finditer(form))
        }

    def match(self, texts: pa.Array) -> tuple[Mask, pa.Array]:
        """Return a mask of the texts that have this template and plain constants, and a struct of
        the constants, which is NULL for all other texts."""
        if not self._types:
            is_equal: Mask = pc.equal(texts, self._form).to_numpy(zero_copy_only=False)
            return is_equal, texts
        written = pc.extract_regex(texts, self._pattern())
        return written.is_valid().to_numpy(zero_copy_only=False), written

    def texts(self, rows: Int64s, written: pa.Array) -> Iterator[TemplateTexts | OtherTexts]:
        """Yield the texts at `rows`, with the constants that `match` returned for them."""
        if len(rows):
            columns = dict(zip(self._types, written.flatten(), strict=True)) if self._types else {}
            constants = ConstantColumns(columns, self._types, len(rows))
            yield from _by_operand(self._expression(), rows, constants)

    def _expression(self) -> Expression:
        names = iter(self._types)
        named = _HOLES.sub(lambda hole: f'["par","{hole[1]}","{next(names)}"]', self._form)
        return from_json(json.loads(named))

    def _pattern(self) -> str:
        pieces = _HOLES.split(self._form)
        pattern = re.escape(pieces[0])
        for (name, type_), after in zip(self._types.items(), pieces[2::2], strict=True):
            literal = re.escape(f'["lit","{type_}",')
            pattern += f"{literal}(?P<{name}>{_PLAIN[type_.kind]})\\]{re.escape(after)}"
        return f"^{pattern}$"


def _by_operand(
    template: Expression, rows: Int64s, constants: ConstantColumns
) -> Iterator[TemplateTexts | OtherTexts]:
    """Yield the texts of a template by the constants inside its operands, such as 10 in
    `a % 10 = 3`: each operand has an axis of its own."""
    names = operand_parameters(formula_of(template))
    if not names:
        yield TemplateTexts(template, rows, constants)
        return
    written = pc.binary_join_element_wise(*[constants.written[name] for name in names], ",")
    for _, places in places_by_code(written.dictionary_encode().indices.to_numpy()):
        if len(places) < _MIN_TEXTS:
            yield OtherTexts(rows[places])
        else:
            chosen = constants.take(places)
            literals = {name: chosen.literal(name, 0) for name in names}
            yield TemplateTexts(_filled(template, literals), rows[places], chosen)


def _filled(expression: Expression, literals: Mapping[str, Literal]) -> Expression:
    """Return an expression with literals in the place of these parameters."""
    match expression:
        case Parameter(name, _):
            return literals.get(name, expression)
        case Call(op, args, type_):
            return Call(op, tuple(_filled(arg, literals) for arg in args), type_)
        case Literal() | ColumnRef() | Now() | Zone():
            return expression
