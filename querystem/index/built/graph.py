"""A graph of formulas as arrays: it is built once, from columns, and never changes.

Its nodes are numbered kind by kind: intervals, points, members and patterns of each operand,
conditions, and inner nodes by arity. Equal factors and equal inner nodes are one node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from datastem.arrays import Array, Int64s, Mask
from querystem.expressions import Expression
from querystem.index.axes import IntervalAxis, MemberAxis, PointAxis
from querystem.index.batch import ProbeBatch, truth
from querystem.index.columns.formulas import (
    ColumnFormula,
    ConditionColumn,
    IntervalColumn,
    LikeColumn,
    MemberColumn,
    NodeColumn,
)
from querystem.index.formula import Formula
from querystem.index.formula_text import read_formula
from querystem.index.hashed.combinations import DistinctRows
from querystem.index.like.axis import LikeAxis
from querystem.index.like.patterns import Patterns
from querystem.index.probe import Arity

Axis = IntervalAxis | PointAxis | MemberAxis | LikeAxis

_LOW = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class BuiltGraph:
    """The nodes: those of `axes`, then those of `conditions`, which are texts of formulas, then the
    inner ones. A row of a table of `arities` is an inner node and its children."""

    lines: int
    axes: Sequence[Axis]
    first_condition: int
    conditions: pa.Array
    arities: Sequence[tuple[Arity, Int64s]]
    _formulas: dict[int, Formula] = field(default_factory=dict)

    @property
    def condition_nodes(self) -> Int64s:
        return np.arange(self.first_condition, self.first_condition + len(self.conditions))

    def condition_mask(self, node: int, batch: ProbeBatch) -> Mask:
        """Return a mask of the rows for which a condition holds; it is read at its first use."""
        if node not in self._formulas:
            text = self.conditions[node - self.first_condition].as_py()
            self._formulas[node] = read_formula(text)
        return truth(self._formulas[node], batch)

    def groups(self) -> Sequence[tuple[Arity, Int64s]]:
        """Return the inner nodes of each arity, in the order of evaluation."""
        return self.arities


@dataclass(frozen=True, slots=True)
class _Nodes:
    """A node for each predicate, by its number before equal ones become one."""

    ids: Int64s
    level: int
    is_condition: bool


class GraphBuilder:
    """Columns of formulas, collected until `build` makes a graph of all of them.

    Every factor of every predicate has a number of its own here. `build` finds those that are
    equal, and numbers them again.
    """

    def __init__(self) -> None:
        self._count = 0
        # By operand, and for inner nodes by arity: numbers, and what the factors with these
        # numbers compare the operand with.
        self._intervals: dict[Expression, list[tuple[Int64s, Array, Array]]] = {}
        self._points: dict[Expression, list[tuple[Int64s, Int64s]]] = {}
        self._members: dict[Expression, list[tuple[Int64s, pa.Array]]] = {}
        self._likes: dict[Expression, list[tuple[Int64s, pa.Array, Mask]]] = {}
        self._conditions: list[tuple[Int64s, pa.Array]] = []
        self._inner: dict[Arity, list[tuple[Int64s, Int64s]]] = {}

    def add(self, formula: ColumnFormula, count: int) -> Int64s:
        """Add the formulas of `count` predicates, and return the number of each one's node."""
        return self._add(formula, count).ids

    def _add(self, formula: ColumnFormula, count: int) -> _Nodes:
        if isinstance(formula, NodeColumn):
            return self._add_inner(formula, count)
        ids = self._new(count)
        match formula:
            case IntervalColumn(operand, least, most, _):
                self._add_intervals(operand, ids, least, most, formula.is_point)
            case MemberColumn(operand, texts, _):
                self._members.setdefault(operand, []).append((ids, texts))
            case LikeColumn(operand, patterns, value, _):
                is_match = np.full(count, value)
                self._likes.setdefault(operand, []).append((ids, patterns, is_match))
            case ConditionColumn(texts, _):
                self._conditions.append((ids, texts))
        return _Nodes(ids, 1, isinstance(formula, ConditionColumn))

    def _add_intervals(
        self, operand: Expression, ids: Int64s, least: Array, most: Array, is_point: Mask
    ) -> None:
        if is_point.all():
            self._points.setdefault(operand, []).append((ids, least))
            return
        if is_point.any():
            self._points.setdefault(operand, []).append((ids[is_point], least[is_point]))
            ids, least, most = ids[~is_point], least[~is_point], most[~is_point]
        self._intervals.setdefault(operand, []).append((ids, least, most))

    def _add_inner(self, formula: NodeColumn, count: int) -> _Nodes:
        parts = [self._add(part, count) for part in formula.parts]
        parts.sort(key=lambda part: part.is_condition)
        late = sum(part.is_condition for part in parts)
        level = 1 + max((part.level for part in parts), default=0)
        arity = Arity(level, formula.is_every, len(parts) - late, late)
        children = np.empty((count, len(parts)), np.int64)
        for place, part in enumerate(parts):
            children[:, place] = part.ids
        ids = self._new(count)
        self._inner.setdefault(arity, []).append((ids, children))
        return _Nodes(ids, level, False)

    def _new(self, count: int) -> Int64s:
        self._count += count
        return np.arange(self._count - count, self._count)

    def build(self) -> tuple[BuiltGraph, Int64s]:
        """Return the graph, and its node for each number."""
        numbering = _Numbering(self._count)
        axes: list[Axis] = []
        for operand, intervals in self._intervals.items():
            ids, least, most = map(np.concatenate, zip(*intervals, strict=True))
            axes.append(_interval_axis(IntervalAxis.of(operand, ids, least, most), numbering))
        for operand, points in self._points.items():
            ids, keys = map(np.concatenate, zip(*points, strict=True))
            distinct, places = np.unique(keys, return_inverse=True)
            axes.append(PointAxis(operand, numbering.put(ids, places, len(distinct)), distinct))
        for operand, members in self._members.items():
            texts, nodes = _distinct_texts(members, numbering)
            axes.append(MemberAxis(operand, nodes, texts))
        axes += [_like_axis(operand, likes, numbering) for operand, likes in self._likes.items()]
        first_condition = numbering.lines
        conditions = _distinct_texts(self._conditions, numbering)[0]
        arities = [
            (arity, _inner_table(arity, self._inner[arity], numbering))
            for arity in sorted(self._inner)
        ]
        graph = BuiltGraph(numbering.lines, axes, first_condition, conditions, arities)
        return graph, numbering.nodes


class _Numbering:
    """The node of each number, as far as it is settled."""

    def __init__(self, count: int) -> None:
        self.nodes = np.full(count, -1, np.int64)
        self.lines = 0

    def put(self, ids: Int64s, places: Int64s, count: int) -> Int64s:
        """Make `count` nodes, and give number `ids[i]` the one at `places[i]`. Return the nodes."""
        self.nodes[ids] = places + self.lines
        self.lines += count
        return np.arange(self.lines - count, self.lines)


def _interval_axis(axis: IntervalAxis, numbering: _Numbering) -> IntervalAxis:
    """Return an axis whose equal intervals are one node, from an axis of numbers."""
    # Both places, which are below 2^31, in one int64. A begin may be -1.
    packed, places = np.unique((axis.begins + 1) << 32 | axis.ends, return_inverse=True)
    nodes = numbering.put(axis.nodes, places, len(packed))
    return IntervalAxis(axis.operand, nodes, axis.cuts, (packed >> 32) - 1, packed & _LOW)


def _like_axis(
    operand: Expression,
    columns: Sequence[tuple[Int64s, pa.Array, Mask]],
    numbering: _Numbering,
) -> LikeAxis:
    """Return an axis in which equal patterns are one, with a node for each that texts have to match
    and one for each that they must not match."""
    ids, texts, is_match = zip(*columns, strict=True)
    coded = pa.concat_arrays(texts).dictionary_encode()
    codes = coded.indices.to_numpy().astype(np.int64) << 1 | np.concatenate(is_match)
    distinct, places = np.unique(codes, return_inverse=True)
    nodes = numbering.put(np.concatenate(ids), places, len(distinct))
    patterns = Patterns.of(coded.dictionary)
    return LikeAxis(operand, nodes, patterns, distinct >> 1, distinct & 1 == 1)


def _distinct_texts(
    columns: Sequence[tuple[Int64s, pa.Array]], numbering: _Numbering
) -> tuple[pa.Array, Int64s]:
    """Return the distinct texts, and a node for each of them."""
    if not columns:
        return pa.array([], pa.string()), np.empty(0, np.int64)
    ids = np.concatenate([ids for ids, _ in columns])
    coded = pa.concat_arrays([texts for _, texts in columns]).dictionary_encode()
    places = coded.indices.to_numpy().astype(np.int64)
    return coded.dictionary, numbering.put(ids, places, len(coded.dictionary))


def _inner_table(
    arity: Arity, columns: Sequence[tuple[Int64s, Int64s]], numbering: _Numbering
) -> Int64s:
    """Return a row of a node and its children for each distinct inner node of an arity."""
    ids, children = map(np.concatenate, zip(*columns, strict=True))
    children = numbering.nodes[children]
    # Nodes are numbered kind by kind, so sorting puts children of one kind into one column.
    children[:, : arity.early].sort(axis=1)
    children[:, arity.early :].sort(axis=1)
    if children.shape[1]:
        rows = DistinctRows.of([np.ascontiguousarray(column) for column in children.T])
        nodes = numbering.put(ids, rows.places, len(rows.first))
        return np.column_stack([nodes, children[rows.first]])
    return numbering.put(ids, np.zeros(len(ids), np.int64), 1)[:, None]
