"""An axis answers all factors on one operand together.

It is bound to a batch before it gives lines: constants that the batch does not reach need none.
Line 0 of a bound axis is the empty one, which the axis does not fill; `count` lines follow.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Array, Int64s, Mask, UInt64s
from querystem.expressions import Expression
from querystem.index.batch import ProbeBatch, is_wide, key_of, point_of
from querystem.index.formula import Interval, Member
from querystem.index.matches import accumulate, pack, scatter
from querystem.kernel.compare import END, START


class DenseTable:
    """A table of numbers that grows and shrinks by rows, and is kept dense.

    A row has `width` values of one kind, and a key; the order of rows means nothing. `put` and
    `drop` cost the same however many rows there are.
    """

    def __init__(self, width: int, dtype: npt.DTypeLike = np.int64) -> None:
        self._table = np.zeros((8, width), dtype)
        self._keys: list[int] = []
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: int) -> bool:
        return key in self._places

    @property
    def table(self) -> Array:
        """All rows as one array, which is valid until the next change."""
        return self._table[: len(self._keys)]

    def get(self, key: int) -> list[Any]:
        row: list[Any] = self._table[self._places[key]].tolist()
        return row

    def put(self, key: int, *row: Any) -> None:
        place = len(self._keys)
        if place == len(self._table):
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        self._table[place] = row
        self._keys.append(key)
        self._places[key] = place

    def drop(self, key: int) -> None:
        """Removes a row; the last row takes its place."""
        place, last = self._places.pop(key), self._keys.pop()
        if last != key:
            self._table[place] = self._table[len(self._keys)]
            self._keys[place] = last
            self._places[last] = place

    def _check(self) -> None:
        assert [self._places[key] for key in self._keys] == list(range(len(self._keys)))
        assert len(self._places) == len(self._keys) <= len(self._table)


# Up to here a comparison for each constant is faster than finding each row's place among them.
FEW_CUTS = 24
FEW_TEXTS = FEW_CUTS // 4
# A table of this many places is as good as in the processor.
_TABLE = 1 << 15


class BoundAxis(Protocol):
    """An axis for one batch: the rows of node `nodes[i]` are line `plus[i]` without `minus[i]`."""

    nodes: Int64s
    plus: Int64s
    minus: Int64s
    count: int

    def fill(self, rows: slice, shift: int, into: UInt64s) -> None:
        """Fills the lines after the empty one for some rows; `into` has one more, for scratch."""


class IntervalAxis:
    """Factors that hold where one operand's key lies in an interval."""

    def __init__(self, operand: Expression) -> None:
        self._operand = operand
        self._bounds = DenseTable(2, object if is_wide(operand.type) else np.int64)
        self._edges = DenseTable(3)
        self._plan: tuple[Array, Int64s, Int64s] | None = None

    def __len__(self) -> int:
        return len(self._edges)

    def put(self, node: int, factor: Interval) -> None:
        edges = [_edge(cut) for cut in (factor.begin, factor.end)]
        cuts = zip(edges, (factor.begin, factor.end), strict=True)
        self._edges.put(node, node, *edges)
        type_ = self._operand.type
        self._bounds.put(node, *[0 if edge else key_of(cut, type_) for edge, cut in cuts])
        self._plan = None

    def drop(self, node: int) -> None:
        self._edges.drop(node)
        self._bounds.drop(node)
        self._plan = None

    def bind(self, batch: ProbeBatch, needed: Mask) -> BoundAxis:
        """Bind the nodes of which the mask `needed`, over all nodes, is true: others would cost
        lines for their cuts."""
        edges, bounds = self._edges.table, self._bounds.table
        chosen = needed[edges[:, 0]]
        if not chosen.all():
            edges, bounds = edges[chosen], bounds[chosen]
            plan = _cuts_and_places(edges[:, 1:], bounds)
        elif self._plan is None:
            plan = self._plan = _cuts_and_places(edges[:, 1:], bounds)
        else:
            plan = self._plan
        cuts, begins, ends = plan
        keys, valid = batch.keys(self._operand)
        first, last = np.searchsorted(cuts, [keys.min(), keys.max()], side="right")
        most = last - first + 1
        minus = np.clip(begins - first + 1, 0, most)
        plus = np.maximum(minus, np.clip(ends - first + 1, 0, most))
        return _Intervals(edges[:, 0], plus, minus, keys, valid, cuts[first:last])

    def _check(self) -> None:
        self._edges._check()
        self._bounds._check()


def _edge(cut: Any) -> int:
    return -1 if cut is START else int(cut is END)


def _cuts_and_places(edges: Int64s, bounds: Array) -> tuple[Array, Int64s, Int64s]:
    """The distinct cuts in order, and the places of each interval's two among them."""
    cuts = np.unique(bounds[edges == 0])
    places = np.searchsorted(cuts, bounds)
    places[edges < 0] = -1
    places[edges > 0] = len(cuts)
    return cuts, places[:, 0], places[:, 1]


class _Intervals:
    """Intervals bound to a batch: line i + 1 has the rows below cut i, the last every valid row."""

    def __init__(
        self,
        nodes: Int64s,
        plus: Int64s,
        minus: Int64s,
        keys: Array,
        valid: Mask | None,
        cuts: Array,
    ) -> None:
        self.nodes, self.plus, self.minus = nodes, plus, minus
        self.count = len(cuts) + 1
        self._keys, self._valid, self._cuts = keys, valid, cuts
        self._places: Int64s | None = None

    def fill(self, rows: slice, shift: int, into: UInt64s) -> None:
        if len(self._cuts) <= FEW_CUTS:
            self._compare(rows, shift, into)
            return
        if self._places is None:
            self._places = places_among(self._cuts, self._keys)
        scatter(_apart(self._places, self._valid, rows, len(into) - 1), into, shift)
        accumulate(into[:-1])

    def _compare(self, rows: slice, shift: int, into: UInt64s) -> None:
        keys, valid = self._keys[rows], None if self._valid is None else self._valid[rows]
        for line, cut in enumerate(self._cuts):
            below = np.asarray(keys < cut, np.bool_)
            into[line] = pack(below if valid is None else below & valid, shift)
        everywhere = np.ones(len(keys), np.bool_) if valid is None else valid
        into[len(self._cuts)] = pack(everywhere, shift)


def _apart(places: Int64s, valid: Mask | None, rows: slice, trash: int) -> Int64s:
    """The places of some rows; rows that are not valid get the place `trash`."""
    return places[rows] if valid is None else np.where(valid[rows], places[rows], trash)


def places_among(cuts: Array, keys: Array) -> Int64s:
    """The number of ascending cuts that are not above each key."""
    least, most = int(cuts[0]) - 1, int(cuts[-1])
    if cuts.dtype == object or most - least > _TABLE:
        return np.searchsorted(cuts, keys, side="right")
    table = np.searchsorted(cuts, np.arange(least, most + 1), side="right")
    return table.take(np.clip(keys, least, most) - least)


class PointAxis:
    """Factors that hold where one operand has a single key."""

    def __init__(self, operand: Expression) -> None:
        self._operand = operand
        self._rows = DenseTable(2)
        self._plan: tuple[Int64s, Int64s] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, node: int, factor: Interval) -> None:
        self._rows.put(node, node, point_of(factor))
        self._plan = None

    def drop(self, node: int) -> None:
        self._rows.drop(node)
        self._plan = None

    def bind(self, batch: ProbeBatch, needed: Mask) -> BoundAxis:
        """Bind all nodes: those without rows in the batch cost no line."""
        if self._plan is None:
            order = np.argsort(self._rows.table[:, 1])
            self._plan = self._rows.table[order, 0], self._rows.table[order, 1]
        nodes, points = self._plan
        keys, valid = batch.keys(self._operand)
        if len(points) <= FEW_CUTS:
            return _Each(nodes, [_mask(keys == point, valid) for point in points])
        places = places_among(points, keys) - 1
        found = _mask(points[places] == keys, valid)
        return _Places(nodes, np.where(found, places, len(points)))

    def _check(self) -> None:
        self._rows._check()


def _mask(mask: Any, valid: Mask | None) -> Mask:
    truth: Mask = mask if valid is None else mask & valid
    return truth


class MemberAxis:
    """Factors that hold where one operand equals a text."""

    def __init__(self, operand: Expression) -> None:
        self._operand = operand
        self._texts: dict[int, str] = {}
        self._plan: tuple[Int64s, pa.Array] | None = None

    def __len__(self) -> int:
        return len(self._texts)

    def put(self, node: int, factor: Member) -> None:
        self._texts[node] = factor.value
        self._plan = None

    def drop(self, node: int) -> None:
        del self._texts[node]
        self._plan = None

    def bind(self, batch: ProbeBatch, needed: Mask) -> BoundAxis:
        """Bind all nodes: those without rows in the batch cost no line."""
        if self._plan is None:
            nodes = np.fromiter(self._texts, np.int64, len(self._texts))
            self._plan = nodes, pa.array(self._texts.values(), pa.string())
        nodes, texts = self._plan
        column = batch.texts(self._operand)
        if len(nodes) <= FEW_TEXTS:
            return _Each(nodes, [_equal(column, text) for text in texts])
        places = pc.index_in(column, value_set=texts).fill_null(len(nodes))
        return _Places(nodes, places.to_numpy(zero_copy_only=False).astype(np.int64))

    def _check(self) -> None:
        assert self._plan is None or len(self._plan[0]) == len(self._texts)


def _equal(column: pa.Array, text: pa.Scalar) -> Mask:
    equal: Mask = pc.equal(column, text).fill_null(False).to_numpy(zero_copy_only=False)
    return equal


class _Each:
    """Nodes bound to a batch by a mask each; a node whose mask is empty has line 0."""

    def __init__(self, nodes: Int64s, masks: list[Mask]) -> None:
        self._masks = [mask for mask in masks if mask.any()]
        self.nodes, self.minus = nodes, np.zeros(len(nodes), np.int64)
        occurs = np.array([mask.any() for mask in masks])
        self.plus = np.where(occurs, np.cumsum(occurs), 0)
        self.count = len(self._masks)

    def fill(self, rows: slice, shift: int, into: UInt64s) -> None:
        for line, mask in enumerate(self._masks):
            into[line] = pack(mask[rows], shift)


class _Places:
    """Nodes bound to a batch of which each row satisfies at most one: row r satisfies node
    `nodes[places[r]]`, or none where that is past the last."""

    def __init__(self, nodes: Int64s, places: Int64s) -> None:
        occurs = np.bincount(places, minlength=len(nodes) + 1)[: len(nodes)] > 0
        self.nodes, self.minus = nodes, np.zeros(len(nodes), np.int64)
        self.plus = np.where(occurs, np.cumsum(occurs), 0)
        self.count = int(occurs.sum())
        self._lines = np.append(self.plus - 1, self.count)[places]
        self._lines[self._lines < 0] = self.count

    def fill(self, rows: slice, shift: int, into: UInt64s) -> None:
        scatter(self._lines[rows], into, shift)


Axis = IntervalAxis | PointAxis | MemberAxis
