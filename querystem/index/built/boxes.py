"""Boxes: conjunctions of ranges of two or more operands, in a grid over two of these.

Cuts at quantiles of the bounds divide each of the two axes. A cell of the grid lists the boxes that
reach into it, so a row is compared only with the boxes of its cell. The boxes are nodes of a graph
as well, which is cheaper for a batch whose rows crowd into cells of many boxes. Many boxes that are
too wide for a grid have one cell, which small batches use: a batch costs bitmaps something for each
box, however few its rows are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap

import numpy as np

from datastem.arrays import Array, Int64s, Mask
from querystem.expressions import Expression
from querystem.index.batch import ProbeBatch
from querystem.index.built.limits import PREDICATES_PER_PAIR, most_pairs
from querystem.index.hashed.ladders import KeyRange
from querystem.index.matches import RowLists, lists_of
from querystem.index.structures import EveryBox, Grid
from querystem.kernel.vector import both

# With fewer boxes bitmaps are as fast.
_MIN_BOXES = 256
_MIN_WIDE_BOXES = 2048
# A grid lists each box in about so many cells at most, or is not made.
_MAX_ENTRIES_PER_BOX = 4
_MAX_CELLS_PER_BOX = 4
_MIN_DIVISIONS = 8
# About so many pairs of a box and a row are compared at a time.
_PAIRS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class BoxGrid:
    """Boxes on the same operands: predicate `ids[i]`, ascending, allows each operand the keys from
    `ranges[operand][0][i]` to `ranges[operand][1][i]`.

    `cuts` divide the first two operands. Cell c has the boxes `boxes[begins[c]:begins[c + 1]]`; the
    cells of one column of the grid follow each other.
    """

    ids: Int64s
    ranges: Mapping[Expression, KeyRange]
    cuts: tuple[Int64s, Int64s]
    begins: Array
    boxes: Array

    @classmethod
    def of(cls, ids: Int64s, ranges: Mapping[Expression, KeyRange]) -> BoxGrid | None:
        """Return the finest grid that lists each box in few cells, else one of a single cell. None
        if there are too few boxes."""
        if len(ids) < _MIN_BOXES:
            return None
        ends = {operand: np.sort(np.concatenate(bounds)) for operand, bounds in ranges.items()}
        # The two operands whose ranges are the narrowest come first.
        widths = {o: _span(_cuts(ends[o], _MIN_DIVISIONS), ranges[o])[1].sum() for o in ranges}
        ordered = {operand: ranges[operand] for operand in sorted(ranges, key=widths.__getitem__)}
        pair = list(ordered)[:2]
        divisions = 1 << (_MAX_CELLS_PER_BOX * len(ids)).bit_length() // 2
        while divisions >= _MIN_DIVISIONS:
            first, second = (_cuts(ends[operand], divisions) for operand in pair)
            spans = _span(first, ranges[pair[0]]), _span(second, ranges[pair[1]])
            entries = int((spans[0][1] * spans[1][1]).sum())
            cells = (len(first) + 1) * (len(second) + 1)
            if entries * PREDICATES_PER_PAIR > cells * len(ids):
                # A coarser grid has more boxes in a cell.
                break
            if entries <= _MAX_ENTRIES_PER_BOX * len(ids):
                begins, boxes = _cells(spans, len(first) + 1, len(second) + 1)
                return cls(ids, ordered, (first, second), begins, boxes)
            divisions //= 2
        if len(ids) < _MIN_WIDE_BOXES:
            return None
        no_cuts = np.empty(0, np.int64)
        numbers = np.arange(len(ids), dtype=np.int32)
        return cls(ids, ordered, (no_cuts, no_cuts), np.array([0, len(ids)], np.int32), numbers)

    def probe(self, batch: ProbeBatch, chosen: Mask | None) -> Sequence[RowLists] | None:
        """Return the matches of the chosen boxes (None: all) with a batch that has rows; None if
        bitmaps are cheaper."""
        rows, cells = self._place(batch)
        begins = self.begins.take(cells)
        counts = self.begins.take(cells + 1) - begins
        total = int(counts.sum())
        if total > most_pairs(len(self.ids), batch.length):
            return None
        if total <= _PAIRS_AT_ONCE:
            boxes, matched = self._compare(batch, rows, begins, counts, chosen)
        else:
            ends = counts.cumsum()
            edges = np.searchsorted(ends, np.arange(0, total, _PAIRS_AT_ONCE))
            parts = [
                self._compare(batch, rows[part], begins[part], counts[part], chosen)
                for part in starmap(slice, pairwise(np.unique(np.append(edges, len(ends)))))
            ]
            boxes, matched = map(np.concatenate, zip(*parts, strict=True))
        return [lists_of(self.ids, boxes, matched, batch.first)]

    def structure(self, predicate_id: int) -> Grid | EveryBox:
        """Return how the boxes are found."""
        columns, lines = (len(cuts) + 1 for cuts in self.cuts)
        if columns == lines == 1:
            return EveryBox(len(self.ids), tuple(self.ranges))
        return Grid(len(self.ids), tuple(self.ranges)[:2], (columns, lines))

    def remove(self, predicate_id: int) -> None:
        """Do nothing: boxes that are not chosen are left out."""

    def _place(self, batch: ProbeBatch) -> tuple[Int64s, Int64s]:
        """Return the rows that have a key in both operands, and their cells."""
        valid, places = None, []
        for operand, cuts in zip(self.ranges, self.cuts, strict=False):
            keys, has_key = batch.keys(operand)
            valid = both(valid, has_key)
            places.append(cuts.searchsorted(keys, "right"))
        cells = places[0] * (len(self.cuts[1]) + 1) + places[1]
        rows = np.arange(batch.length) if valid is None else valid.nonzero()[0]
        return rows, cells if valid is None else cells.take(rows)

    def _compare(
        self, batch: ProbeBatch, rows: Int64s, begins: Array, counts: Array, chosen: Mask | None
    ) -> tuple[Array, Array]:
        """Return the pairs of a box and a row that match, row by row: the boxes, and the rows. Row
        i may match the next `counts[i]` of `boxes` from `begins[i]` on."""
        pair_rows = rows.astype(np.int32).repeat(counts)
        places = (begins - (counts.cumsum() - counts)).repeat(counts)
        places += np.arange(len(places))
        boxes = self.boxes.take(places)
        if chosen is not None:
            kept = chosen.take(boxes).nonzero()[0]
            boxes, pair_rows = boxes.take(kept), pair_rows.take(kept)
        for operand, (least, most) in self.ranges.items():
            all_keys, valid = batch.keys(operand)
            keys = all_keys.take(pair_rows)
            inside = (least.take(boxes) <= keys) & (keys <= most.take(boxes))
            if valid is not None:
                inside &= valid.take(pair_rows)
            kept = inside.nonzero()[0]
            boxes, pair_rows = boxes.take(kept), pair_rows.take(kept)
        return boxes, pair_rows

    def _check(self) -> None:
        assert (np.diff(self.ids) > 0).all() and len(self.ranges) >= 2
        assert len(self.begins) == (len(self.cuts[0]) + 1) * (len(self.cuts[1]) + 1) + 1
        assert self.begins[0] == 0 and self.begins[-1] == len(self.boxes)
        assert len(self.boxes) <= _MAX_ENTRIES_PER_BOX * len(self.ids)


def _cuts(ends: Int64s, divisions: int) -> Int64s:
    """Return at most `divisions` - 1 keys that divide ascending ends of ranges evenly."""
    return np.unique(ends[np.arange(1, divisions) * len(ends) // divisions])


def _span(cuts: Int64s, bounds: KeyRange) -> tuple[Int64s, Int64s]:
    """Return the first division that each range reaches into, and how many it does."""
    first = np.searchsorted(cuts, bounds[0], side="right")
    last = np.searchsorted(cuts, bounds[1], side="right")
    return first, np.maximum(last - first, 0) + 1


def _cells(spans: Sequence[tuple[Int64s, Int64s]], columns: int, lines: int) -> tuple[Array, Array]:
    """Return where each cell begins, and the boxes of all cells, which ascend in each."""
    (first_column, width), (first_line, height) = spans
    counts = width * height
    boxes = np.repeat(np.arange(len(counts)), counts)
    # The number of each entry among those of its box, which go column by column.
    numbers = np.arange(len(boxes)) - np.repeat(np.cumsum(counts) - counts, counts)
    tall = height.take(boxes)
    cells = (first_column.take(boxes) + numbers // tall) * lines
    cells += first_line.take(boxes) + numbers % tall
    order = np.argsort(cells, kind="stable")
    begins = np.append(0, np.cumsum(np.bincount(cells, minlength=columns * lines)))
    return begins.astype(np.int32), boxes[order].astype(np.int32)
