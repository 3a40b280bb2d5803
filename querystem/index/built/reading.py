"""Stored texts as shapes of columns, and graphs made of shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from querystem.expressions import Expression, columns_of
from querystem.index.batch import is_wide
from querystem.index.built.alternatives import (
    MIN_PREDICATES,
    Access,
    Alternatives,
    EqualityAccess,
    PatternAccess,
)
from querystem.index.built.boxes import BoxGrid
from querystem.index.built.graph import BuiltGraph, GraphBuilder
from querystem.index.built.part import BuiltPart, FamilyCombinations, StoredPredicates
from querystem.index.columns.conjunctions import (
    AccessColumns,
    AccessKey,
    FixedColumns,
    ShapeColumns,
    shape_columns,
)
from querystem.index.columns.formulas import (
    ColumnFormula,
    IntervalColumn,
    NodeColumn,
    formula_column,
)
from querystem.index.columns.templates import OtherTexts, TemplateTexts, by_template, parse_text
from querystem.index.formula import formula_of
from querystem.index.hashed.conjunction import split_conjunction
from querystem.index.hashed.entries import Entries, join_entries
from querystem.index.hashed.segment import HashedSegment
from querystem.index.like.axis import LikeAxis


@dataclass(frozen=True, slots=True)
class PredicateShape:
    """Predicates of one shape, at places `rows` of `stored`; `fixed` and `alternatives` are those
    of `ShapeColumns`."""

    stored: StoredPredicates
    rows: Int64s
    formula: ColumnFormula
    fixed: FixedColumns | None
    alternatives: tuple[AccessColumns, ...] = ()

    @property
    def ids(self) -> Int64s:
        return self.stored.ids[self.rows]

    @property
    def fixed_operands(self) -> tuple[Expression, ...]:
        return () if self.fixed is None else tuple(self.fixed.fixed)


class TextReader:
    """Stored texts, read in columns. `columns` are the names of the columns that predicates read so
    far."""

    def __init__(self) -> None:
        self.columns: set[str] = set()

    def read(self, stored: StoredPredicates) -> list[PredicateShape]:
        """Return the predicates of stored texts. Raise whatever a bad text raises."""
        return [shape for texts in by_template(stored.texts) for shape in self._read(stored, texts)]

    def _read(
        self, stored: StoredPredicates, texts: TemplateTexts | OtherTexts
    ) -> Iterator[PredicateShape]:
        if isinstance(texts, OtherTexts):
            yield from self._read_each(stored, texts.rows)
            return
        self.columns.update(columns_of(texts.template))
        for part in _shapes(texts):
            if isinstance(part, OtherTexts):
                yield from self._read_each(stored, part.rows)
            else:
                yield PredicateShape(stored, part.rows, part.formula, part.fixed, part.alternatives)

    def _read_each(self, stored: StoredPredicates, rows: Int64s) -> Iterator[PredicateShape]:
        for row, text in zip(rows, stored.texts.take(pa.array(rows)).to_pylist(), strict=True):
            where = parse_text(text)
            self.columns.update(columns_of(where))
            formula = formula_of(where)
            conjunction = split_conjunction(formula)
            fixed = None if conjunction is None else FixedColumns.of(conjunction)
            yield PredicateShape(stored, np.array([row]), formula_column(formula), fixed)


def _shapes(texts: TemplateTexts) -> list[ShapeColumns | OtherTexts]:
    """Return the shapes of a template, or its texts if a constant can't be read in columns: then
    the text that is to blame raises by itself."""
    try:
        return list(shape_columns(texts))
    except ValueError:
        return [OtherTexts(texts.rows)]


def entries_of(shapes: Sequence[PredicateShape], order: tuple[Expression, ...]) -> Entries:
    """Return the entries of shapes of one family; `order` is that of the fixed operands."""
    return join_entries(
        [shape.fixed.entries(order, shape.ids) for shape in shapes if shape.fixed is not None]
    )


def build_part(shapes: Sequence[PredicateShape], combinations: FamilyCombinations) -> BuiltPart:
    """Return a part with the predicates of shapes: all in a graph, and many in an access as
    well."""
    builder = GraphBuilder()
    numbers = [builder.add(shape.formula, len(shape.rows)) for shape in shapes]
    graph, nodes = builder.build()
    ids = np.concatenate([shape.ids for shape in shapes])
    order = np.argsort(ids, kind="stable")
    stored = StoredPredicates(ids[order], _texts_of(shapes).take(pa.array(order)))
    roots = nodes[np.concatenate(numbers)[order]]
    accesses: list[BoxGrid | Alternatives] = [*_grids(shapes), *_alternatives(shapes, graph)]
    return BuiltPart(stored, graph, roots, combinations, accesses)


def _grids(shapes: Sequence[PredicateShape]) -> list[BoxGrid]:
    """Return grids of the boxes that are worth one."""
    boxes: dict[frozenset[Expression], list[tuple[Int64s, dict[Expression, IntervalColumn]]]] = {}
    for shape in shapes:
        ranges = _box_ranges(shape)
        if len(ranges) >= 2:
            boxes.setdefault(frozenset(ranges), []).append((shape.ids, ranges))
    grids = []
    for columns in boxes.values():
        ids = np.concatenate([ids for ids, _ in columns])
        order = np.argsort(ids)
        bounds = {
            operand: (
                np.concatenate([ranges[operand].least for _, ranges in columns])[order],
                np.concatenate([ranges[operand].most for _, ranges in columns])[order],
            )
            for operand in columns[0][1]
        }
        grids.append(BoxGrid.of(ids[order], bounds))
    return [grid for grid in grids if grid is not None]


def _alternatives(shapes: Sequence[PredicateShape], graph: BuiltGraph) -> list[Alternatives]:
    """Return the predicates with alternatives, those with the same kinds of accesses together."""
    alike: dict[tuple[AccessKey, ...], list[PredicateShape]] = {}
    for shape in shapes:
        if shape.alternatives:
            keys = tuple(access.key for access in shape.alternatives)
            alike.setdefault(keys, []).append(shape)
    return [
        Alternatives.of([_access(place, key, of_keys, graph) for place, key in enumerate(keys)])
        for keys, of_keys in alike.items()
        if sum(len(shape.rows) for shape in of_keys) >= MIN_PREDICATES
    ]


def _access(
    place: int, key: AccessKey, shapes: Sequence[PredicateShape], graph: BuiltGraph
) -> Access:
    """Return the access at this place among the alternatives of shapes."""
    is_pattern, operands = key
    entries = join_entries(
        [shape.alternatives[place].entries(operands, shape.ids) for shape in shapes]
    )
    if not is_pattern:
        return EqualityAccess(operands, HashedSegment.of(entries))
    axes = [axis for axis in graph.axes if isinstance(axis, LikeAxis)]
    axis = next(axis for axis in axes if axis.operand == operands[0])
    return PatternAccess.of(axis, entries)


def _box_ranges(shape: PredicateShape) -> dict[Expression, IntervalColumn]:
    """Return the ranges of a shape that is a conjunction of ranges alone; else none."""
    formula = shape.formula
    if not isinstance(formula, NodeColumn) or not formula.is_every or shape.fixed is not None:
        return {}
    ranges = {part.operand: part for part in formula.parts if isinstance(part, IntervalColumn)}
    is_box = len(ranges) == len(formula.parts) and not any(is_wide(o.type) for o in ranges)
    return ranges if is_box else {}


def _texts_of(shapes: Sequence[PredicateShape]) -> pa.Array:
    """Return the texts of all predicates of shapes, one shape after the other."""
    # Blocks of one source stand together, so that its texts are taken in one step.
    sources: list[tuple[StoredPredicates, list[Int64s]]] = []
    for shape in shapes:
        if not sources or sources[-1][0] is not shape.stored:
            sources.append((shape.stored, []))
        sources[-1][1].append(shape.rows)
    return pa.concat_arrays(
        [stored.texts.take(pa.array(np.concatenate(rows))) for stored, rows in sources]
    )
