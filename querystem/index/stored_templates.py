"""Predicates from their stored texts, many at once: their template, and their constants as columns.

Texts that differ only in their constants have one template: the predicate with a parameter in the
place of each constant. Where a template is a conjunction of comparisons between columns and
constants, the constants of all its texts are read as columns, without an object for each predicate.
Any other text, and any constant that is not written plainly, is parsed by itself.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s, Mask
from datastem.types import Kind
from querystem.expressions import Call, ColumnRef, Expression, Op, Parameter, from_json
from querystem.index.batch import EVERYTHING, double_keys
from querystem.index.combinations import LONGEST_TEXT, KeyColumn
from querystem.index.hashed_segment import NO_RESIDUAL, Entries, KeyRange

# A literal in a stored text, and the text with a hole in its place. In a JSON text `["lit",` can't
# stand inside a string, where quotes are escaped.
_LITERAL = r'\["lit",("[^"]*"),(?:"(?:[^"\\]|\\.)*"|[^\]"]*)\]'
_HOLE = r'["par",\1]'
_HOLES = re.compile(r'\["par","([^"]*)"\]')
# How a constant of each kind is written when it is nothing special.
_PLAIN = {
    "BIGINT": r"(?P<c{0}>-?[0-9]+)",
    "TIMESTAMP": r"(?P<c{0}>-?[0-9]+)",
    "DOUBLE": r"(?P<c{0}>-?[0-9][0-9.eE+-]*)",
    "TEXT": r'"(?P<c{0}>[^"\\]*)"',
}
_RANGES = frozenset({Op.LT, Op.LE, Op.GT, Op.GE})
# Fewer texts are parsed as fast one by one.
_LEAST = 32

Comparison = tuple[Op, ColumnRef]


@dataclass(frozen=True, slots=True)
class TemplateRows:
    """The stored texts at `rows`, all of one template.

    `comparisons` are those of the template, in the order of the text, and `pattern` matches the
    texts whose constants are plain. Both are empty where texts are to be parsed one by one.
    """

    texts: pa.Array
    rows: Int64s
    comparisons: tuple[Comparison, ...] = ()
    pattern: str = ""

    @property
    def fixed(self) -> list[Expression]:
        return [column for op, column in self.comparisons if op is Op.EQ]

    @property
    def columns(self) -> list[str]:
        return [column.name for _, column in self.comparisons]

    def expression(self, row: int) -> Expression:
        return from_json(json.loads(self.texts[row].as_py()))

    def one_by_one(self, rows: Int64s) -> TemplateRows:
        """Rows of these that are to be parsed one by one."""
        return TemplateRows(self.texts, rows)

    def after(self, count: int) -> TemplateRows:
        """The rows after the first `count`."""
        return replace(self, rows=self.rows[count:])

    def read(self, order: tuple[Expression, ...], ids: Int64s) -> tuple[Entries, Int64s]:
        """The entries of predicates with plain constants, and the rows of all others.

        `order` is that of the fixed columns, `ids` has the predicates of all texts.
        """
        found = pc.extract_regex(self.texts.take(pa.array(self.rows)), self.pattern)
        readable: Mask = found.is_valid().to_numpy(zero_copy_only=False)
        columns = [
            _keys(found.field(place).filter(pa.array(readable)), column.type.kind)
            for place, (_, column) in enumerate(self.comparisons)
        ]
        rows = self.rows[readable]
        plain, fixed, ranges = self._parts(columns, len(rows))
        none = np.full(len(rows), NO_RESIDUAL)
        entries = Entries(ids[rows], [fixed[operand] for operand in order], ranges, none)
        unread = np.concatenate([self.rows[~readable], rows[~plain]])
        return entries.take(np.flatnonzero(plain)), unread

    def _parts(
        self, columns: list[KeyColumn], count: int
    ) -> tuple[Mask, dict[Expression, KeyColumn], dict[Expression, KeyRange]]:
        plain = np.ones(count, np.bool_)
        fixed: dict[Expression, KeyColumn] = {}
        ranges: dict[Expression, KeyRange] = {}
        for (op, operand), column in zip(self.comparisons, columns, strict=True):
            if op is Op.EQ:
                fixed[operand] = column
                if operand.type.kind is Kind.TEXT:
                    length = pc.binary_length(column).to_numpy(zero_copy_only=False)
                    plain &= length <= LONGEST_TEXT
            else:
                plain &= (column > EVERYTHING[0]) & (column < EVERYTHING[1])
                lo, hi = ranges.get(operand) or [np.full(count, edge) for edge in EVERYTHING]
                ranges[operand] = _meet(lo, hi, op, column)
        return plain, fixed, ranges


def by_template(texts: pa.Array) -> Iterator[TemplateRows]:
    """All stored texts, those of one template together."""
    if not len(texts):
        return
    forms = pc.replace_substring_regex(texts, _LITERAL, _HOLE).dictionary_encode()
    which = forms.indices.to_numpy()
    order = np.argsort(which, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(which))[:-1])
    for form, rows in zip(forms.dictionary.to_pylist(), groups, strict=True):
        comparisons = _comparisons(_template(form)) if len(rows) >= _LEAST else ()
        if _is_hashable(comparisons):
            yield TemplateRows(texts, rows, comparisons, _pattern(form))
        else:
            yield TemplateRows(texts, rows)


def _template(form: str) -> Expression:
    """The predicate of a text with holes: a parameter stands in the place of each constant."""
    numbers = itertools.count()
    named = _HOLES.sub(lambda hole: f'["par","{hole[1]}","{next(numbers)}"]', form)
    return from_json(json.loads(named))


def _comparisons(template: Expression) -> tuple[Comparison, ...]:
    """The comparisons of a conjunction; none where the template has any other part."""
    parts = template.args if isinstance(template, Call) and template.op is Op.AND else (template,)
    found = []
    for part in parts:
        match part:
            case Call(op, (ColumnRef() as column, Parameter(_, type_)), _) if (
                (op is Op.EQ or op in _RANGES and type_.kind is not Kind.TEXT)
                and type_ == column.type
                and str(type_) in _PLAIN
            ):
                found.append((op, column))
            case _:
                return ()
    return tuple(found)


def _is_hashable(comparisons: tuple[Comparison, ...]) -> bool:
    fixed = [column for op, column in comparisons if op is Op.EQ]
    ranges = {column for op, column in comparisons if op is not Op.EQ}
    return bool(fixed) and len(set(fixed)) == len(fixed) and ranges.isdisjoint(fixed)


def _pattern(form: str) -> str:
    """A pattern of exactly the texts of a template that have plain constants."""
    pieces = _HOLES.split(form)
    written = re.escape(pieces[0])
    for place, (type_, after) in enumerate(zip(pieces[1::2], pieces[2::2], strict=True)):
        constant = _PLAIN[type_].format(place)
        written += f'\\["lit","{type_}",{constant}\\]{re.escape(after)}'
    return f"^{written}$"


def _keys(texts: pa.Array, kind: Kind) -> KeyColumn:
    """The keys of constants, from their texts."""
    if kind is Kind.TEXT:
        return texts
    if kind is Kind.DOUBLE:
        return double_keys(texts.cast(pa.float64()).to_numpy(zero_copy_only=False))
    return texts.cast(pa.int64()).to_numpy(zero_copy_only=False)


def _meet(lo: Int64s, hi: Int64s, op: Op, keys: Int64s) -> KeyRange:
    """The bounds that are left of `[lo, hi]` where a comparison with the keys holds."""
    match op:
        case Op.GT:
            return np.maximum(lo, keys + 1), hi
        case Op.GE:
            return np.maximum(lo, keys), hi
        case Op.LT:
            return lo, np.minimum(hi, keys - 1)
    return lo, np.minimum(hi, keys)
