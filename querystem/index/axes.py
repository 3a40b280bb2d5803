"""Axes: all factors on one operand, as arrays that are probed together.

An axis is bound to a batch before it gives lines: constants that the batch does not reach need
none. Line 0 of a bound axis is the empty one, which the axis does not fill; `count` lines follow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Array, Int64s, Mask, UInt64s
from querystem.expressions import Expression
from querystem.index.batch import ProbeBatch, edges_of
from querystem.index.matches import accumulate, pack, scatter
from querystem.kernel.integers import INT64_MIN

# Up to here a comparison for each constant is faster than finding each row's place among them; in a
# small batch what a call costs decides, so that there are fewer.
FEW_CUTS = 24
FEW_TEXTS = FEW_CUTS // 4
_FEWEST_CUTS, _ROWS_PER_CUT = 4, 1 << 12
# A table of this many places stays in the processor's cache.
_TABLE_PLACES = 1 << 15


def _has_few(cuts: Array, rows: int) -> bool:
    """Return whether a comparison for each of the cuts is faster for a batch of so many rows."""
    return len(cuts) <= min(FEW_CUTS, _FEWEST_CUTS + rows // _ROWS_PER_CUT)


class BoundAxis(Protocol):
    """An axis for one batch: the rows of node `nodes[i]` are line `plus[i]` without `minus[i]`."""

    nodes: Int64s
    plus: Int64s
    minus: Int64s
    count: int

    def fill(self, rows: slice, shift: int, into: UInt64s) -> None:
        """Fill the lines after the empty one for a slice of the rows; `into` has one more line, as
        scratch space."""


@dataclass(frozen=True, slots=True)
class IntervalAxis:
    """Factors that hold if one operand's key lies in an interval.

    `cuts` are the distinct ends of all intervals, ascending. Node `nodes[i]` holds from cut
    `begins[i]` on up to, and without, cut `ends[i]`. Place -1 is before every key, and place
    `len(cuts)` as an end is after every key.
    """

    operand: Expression
    nodes: Int64s
    cuts: Array
    begins: Int64s
    ends: Int64s
    # The lines `plus` and `minus` of the last batch, by the first and the last cut that it reached:
    # batches of one stream mostly reach the same.
    _lines: dict[tuple[int, int], tuple[Int64s, Int64s]] = field(default_factory=dict)

    @classmethod
    def of(cls, operand: Expression, nodes: Int64s, least: Array, most: Array) -> IntervalAxis:
        """Return the axis of nodes that hold for the keys in `[least[i], most[i]]`."""
        lowest, highest = edges_of(operand.type)
        has_begin, has_end = least != lowest, most != highest
        # No key follows the highest one, so `most + 1` would wrap around there.
        after = np.where(has_end, most, 0) + 1
        cuts = np.unique(np.concatenate([least[has_begin], after[has_end]]))
        begins = np.where(has_begin, np.searchsorted(cuts, least), -1)
        ends = np.where(has_end, np.searchsorted(cuts, after), len(cuts))
        return cls(operand, nodes, cuts, begins, ends)

    def bind(self, batch: ProbeBatch, needed: Mask) -> BoundAxis:
        """Return the needed nodes for a batch that has rows: other nodes would cost lines for their
        cuts."""
        return self.restricted(needed)._bind(batch)

    def restricted(self, needed: Mask) -> IntervalAxis:
        """Return the axis of the nodes of which the mask `needed`, over all nodes, is true."""
        chosen = needed[self.nodes]
        if chosen.all():
            return self
        begins, ends = self.begins[chosen], self.ends[chosen]
        # A place after the last cut stands for the ends that are after every key.
        is_used = np.zeros(len(self.cuts) + 1, np.bool_)
        is_used[begins[begins >= 0]] = True
        is_used[ends] = True
        # The number of used cuts before each place, which is its new place.
        places = np.append(0, np.cumsum(is_used[:-1]))
        return IntervalAxis(
            self.operand,
            self.nodes[chosen],
            self.cuts[is_used[:-1]],
            np.where(begins < 0, -1, places[begins]),
            places[ends],
        )

    def _bind(self, batch: ProbeBatch) -> BoundAxis:
        keys, valid = batch.keys(self.operand)
        first, last = self.cuts.searchsorted(np.array([keys.min(), keys.max()]), "right").tolist()
        if (first, last) not in self._lines:
            most = last - first + 1
            minus = np.clip(self.begins - first + 1, 0, most)
            plus = np.maximum(minus, np.clip(self.ends - first + 1, 0, most))
            self._lines.clear()
            self._lines[first, last] = plus, minus
        return _Intervals(self.nodes, *self._lines[first, last], keys, valid, self.cuts[first:last])


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
        if _has_few(self._cuts, len(self._keys)):
            self._compare(rows, shift, into)
            return
        if self._places is None:
            self._places = places_among(self._cuts, self._keys)
        scatter(_places_of(self._places, self._valid, rows, len(into) - 1), into, shift)
        accumulate(into[:-1])

    def _compare(self, rows: slice, shift: int, into: UInt64s) -> None:
        keys, valid = self._keys[rows], None if self._valid is None else self._valid[rows]
        for line, cut in enumerate(self._cuts):
            below = np.asarray(keys < cut, np.bool_)
            into[line] = pack(below if valid is None else below & valid, shift)
        everywhere = np.ones(len(keys), np.bool_) if valid is None else valid
        into[len(self._cuts)] = pack(everywhere, shift)


def _places_of(places: Int64s, valid: Mask | None, rows: slice, scratch: int) -> Int64s:
    """Return the places of a slice of the rows; rows that are not valid get the place `scratch`."""
    return places[rows] if valid is None else np.where(valid[rows], places[rows], scratch)


def places_among(cuts: Array, keys: Array) -> Int64s:
    """Return, for each key, the number of ascending cuts that are not above it."""
    least, most = int(cuts[0]) - 1, int(cuts[-1])
    if cuts.dtype == object or most - least > _TABLE_PLACES or least < INT64_MIN:
        return np.searchsorted(cuts, keys, side="right")
    table = np.searchsorted(cuts, np.arange(least, most + 1), side="right")
    return table.take(np.clip(keys, least, most) - least)


@dataclass(frozen=True, slots=True)
class PointAxis:
    """Factors that hold if one operand has a single key: node `nodes[i]` holds for `points[i]`. The
    points are distinct and ascend."""

    operand: Expression
    nodes: Int64s
    points: Int64s

    def bind(self, batch: ProbeBatch, needed: Mask) -> BoundAxis:
        """Return all nodes for a batch that has rows: those without rows cost no line."""
        keys, valid = batch.keys(self.operand)
        if _has_few(self.points, len(keys)):
            return Masks(self.nodes, [_valid_mask(keys == point, valid) for point in self.points])
        places = places_among(self.points, keys) - 1
        is_point = _valid_mask(self.points[places] == keys, valid)
        return _Places(self.nodes, np.where(is_point, places, len(self.points)))


def _valid_mask(mask: Any, valid: Mask | None) -> Mask:
    truth: Mask = mask if valid is None else mask & valid
    return truth


@dataclass(frozen=True, slots=True)
class MemberAxis:
    """Factors that hold if one operand equals a text: node `nodes[i]` holds for `texts[i]`. The
    texts are distinct."""

    operand: Expression
    nodes: Int64s
    texts: pa.Array

    def bind(self, batch: ProbeBatch, needed: Mask) -> BoundAxis:
        """Return all nodes for a batch that has rows: those without rows cost no line."""
        column = batch.texts(self.operand)
        if len(self.nodes) <= FEW_TEXTS:
            return Masks(self.nodes, [_equal(column, text) for text in self.texts])
        places = pc.index_in(column, value_set=self.texts).fill_null(len(self.nodes))
        return _Places(self.nodes, places.to_numpy(zero_copy_only=False).astype(np.int64))


def _equal(column: pa.Array, text: pa.Scalar) -> Mask:
    equal: Mask = pc.equal(column, text).fill_null(False).to_numpy(zero_copy_only=False)
    return equal


class Masks:
    """Nodes bound to a batch by a mask each; a node whose mask is empty has line 0."""

    def __init__(self, nodes: Int64s, masks: list[Mask]) -> None:
        self.nodes, self.minus = nodes, np.zeros(len(nodes), np.int64)
        occurs = np.array([mask.any() for mask in masks], np.bool_)
        self._masks = [mask for mask, is_needed in zip(masks, occurs, strict=True) if is_needed]
        self.plus = np.where(occurs, np.cumsum(occurs), 0)
        self.count = len(self._masks)

    def fill(self, rows: slice, shift: int, into: UInt64s) -> None:
        for line, mask in enumerate(self._masks):
            into[line] = pack(mask[rows], shift)


class _Places:
    """Nodes bound to a batch of which each row satisfies at most one: row r satisfies node
    `nodes[places[r]]`, or none if that place is past the last."""

    def __init__(self, nodes: Int64s, places: Int64s) -> None:
        occurs = np.bincount(places, minlength=len(nodes) + 1)[: len(nodes)] > 0
        self.nodes, self.minus = nodes, np.zeros(len(nodes), np.int64)
        self.plus = np.where(occurs, np.cumsum(occurs), 0)
        self.count = int(occurs.sum())
        self._lines = np.append(self.plus - 1, self.count)[places]
        self._lines[self._lines < 0] = self.count

    def fill(self, rows: slice, shift: int, into: UInt64s) -> None:
        scatter(self._lines[rows], into, shift)
