"""Predicates from their stored texts, many at once.

Texts that differ only in their constants are one shape. Of a shape that is a conjunction of
comparisons between columns and constants, the constants are read as columns; any other text,
and any constant that is not written plainly, is parsed by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s, Mask
from datastem.types import Kind
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op, from_json
from querystem.index.batch import EVERYTHING, double_keys
from querystem.index.combinations import LONGEST_TEXT, KeyColumn
from querystem.index.hashed_segment import NO_RESIDUAL, Entries, KeyRange

# In a JSON text `["lit",` can't stand inside a string, where quotes are escaped.
_LITERAL = r'(\["lit","[^"]*"),(?:"(?:[^"\\]|\\.)*"|[^\]"]*)\]'
_HOLE = r"\1]"
# How a constant of each kind is written when it is nothing special.
_PLAIN = {
    Kind.BIGINT: r"(?P<c{0}>-?[0-9]+)",
    Kind.TIMESTAMP: r"(?P<c{0}>-?[0-9]+)",
    Kind.DOUBLE: r"(?P<c{0}>-?[0-9][0-9.eE+-]*)",
    Kind.TEXT: r'"(?P<c{0}>[^"\\]*)"',
}
_RANGES = frozenset({Op.LT, Op.LE, Op.GT, Op.GE})
# Fewer texts are parsed as fast one by one.
_LEAST = 32


@dataclass(frozen=True, slots=True)
class TextShape:
    """The texts at `rows`, equal but for their constants.

    `comparisons` are those of the conjunction, in the order of the text; none where it is not
    one that can be read in columns.
    """

    texts: pa.Array
    rows: Int64s
    comparisons: tuple[tuple[Op, ColumnRef], ...] = ()
    pattern: str = ""

    @property
    def fixed(self) -> list[Expression]:
        return [column for op, column in self.comparisons if op is Op.EQ]

    @property
    def columns(self) -> list[str]:
        return [column.name for _, column in self.comparisons]

    def expression(self, row: int) -> Expression:
        return from_json(json.loads(self.texts[row].as_py()))

    def singly(self, rows: Int64s) -> TextShape:
        """The same for some rows, to be parsed one by one."""
        return TextShape(self.texts, rows)

    def after(self, count: int) -> TextShape:
        """Without the first rows."""
        return replace(self, rows=self.rows[count:])

    def read(self, order: tuple[Expression, ...], ids: Int64s) -> tuple[Entries, Int64s]:
        """Entries with the fixed columns in this order, and the rows that could not be read."""
        found = pc.extract_regex(self.texts.take(pa.array(self.rows)), self.pattern)
        readable: Mask = found.is_valid().to_numpy(zero_copy_only=False)
        columns = [
            _column(found.field(place).filter(pa.array(readable)), column.type.kind)
            for place, (_, column) in enumerate(self.comparisons)
        ]
        rows = self.rows[readable]
        plain, fixed, ranges = self._parts(columns, len(rows))
        entries = Entries(
            ids[rows],
            [fixed[operand] for operand in order],
            ranges,
            np.full(len(rows), NO_RESIDUAL),
        )
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


def shapes_of(texts: pa.Array) -> Iterator[TextShape]:
    """All texts, each in one shape."""
    if not len(texts):
        return
    forms = pc.replace_substring_regex(texts, _LITERAL, _HOLE).dictionary_encode()
    which = forms.indices.to_numpy()
    order = np.argsort(which, kind="stable")
    for rows in np.split(order, np.cumsum(np.bincount(which))[:-1]):
        shape = TextShape(texts, rows)
        yield shape if len(rows) < _LEAST else _read_shape(shape)


def _read_shape(shape: TextShape) -> TextShape:
    text = shape.texts[int(shape.rows[0])].as_py()
    comparisons = _comparisons(from_json(json.loads(text)))
    if not _is_hashable(comparisons):
        return shape
    return replace(shape, comparisons=comparisons, pattern=_pattern(text, comparisons))


def _comparisons(where: Expression) -> tuple[tuple[Op, ColumnRef], ...]:
    """Those of a conjunction; none where it has another part."""
    parts = where.args if isinstance(where, Call) and where.op is Op.AND else (where,)
    found = []
    for part in parts:
        match part:
            case Call(op, (ColumnRef() as column, Literal(_, type_)), _) if (
                (op is Op.EQ or op in _RANGES and type_.kind is not Kind.TEXT)
                and type_ == column.type
                and type_.kind in _PLAIN
            ):
                found.append((op, column))
            case _:
                return ()
    return tuple(found)


def _is_hashable(comparisons: tuple[tuple[Op, ColumnRef], ...]) -> bool:
    fixed = [column for op, column in comparisons if op is Op.EQ]
    ranges = {column for op, column in comparisons if op is not Op.EQ}
    return bool(fixed) and len(set(fixed)) == len(fixed) and ranges.isdisjoint(fixed)


def _pattern(text: str, comparisons: tuple[tuple[Op, ColumnRef], ...]) -> str:
    """Matches exactly the texts of the shape with plain constants."""
    pieces = re.split(_LITERAL, text)
    written = re.escape(pieces[0])
    for place, (_, column) in enumerate(comparisons):
        head, after = pieces[1 + 2 * place], pieces[2 + 2 * place]
        constant = _PLAIN[column.type.kind].format(place)
        written += f"{re.escape(head)},{constant}\\]{re.escape(after)}"
    return f"^{written}$"


def _column(texts: pa.Array, kind: Kind) -> KeyColumn:
    if kind is Kind.TEXT:
        return texts
    if kind is Kind.DOUBLE:
        return double_keys(texts.cast(pa.float64()).to_numpy(zero_copy_only=False))
    return texts.cast(pa.int64()).to_numpy(zero_copy_only=False)


def _meet(lo: Int64s, hi: Int64s, op: Op, keys: Int64s) -> KeyRange:
    match op:
        case Op.GT:
            return np.maximum(lo, keys + 1), hi
        case Op.GE:
            return np.maximum(lo, keys), hi
        case Op.LT:
            return lo, np.minimum(hi, keys - 1)
    return lo, np.minimum(hi, keys)
