"""One batch against a segment: from rows to their combination, from there to its predicates.

Each ladder of the segment gives a run of entries for each row. Entries and rows of these runs are
pairs, row by row; a sort brings them into the order of predicates. A combination that many of its
rows and entries share is compared as a matrix instead, whose pairs need no sorting.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from datastem.arrays import Array, Int64s, Mask, UInt64s
from datastem.types import Kind
from querystem.expressions import Expression
from querystem.index.batch import ProbeBatch, truth
from querystem.index.hashed.combinations import KeyColumn, codes_of, take
from querystem.index.hashed.ladders import Ladder, admitted_pairs
from querystem.index.hashed.residuals import NO_RESIDUAL
from querystem.index.hashed.segment import HashedSegment
from querystem.index.matches import RowLists
from querystem.index.regroup import GroupedRows, in_order, regroup
from querystem.kernel.vector import both

# About so many pairs of an entry and a row are worked on together.
_PAIRS_AT_ONCE = 1 << 22
# A smaller matrix costs more for the calls than for its cells, and a matrix with fewer pairs among
# its cells costs more than sorting those.
_MIN_MATRIX_CELLS = 1 << 14
_MAX_CELLS_PER_PAIR = 8
_CELLS_AT_ONCE = 1 << 20


class CodedRows:
    """The rows of a batch that have a value in every fixed operand, and their codes."""

    def __init__(self, batch: ProbeBatch, fixed: tuple[Expression, ...]) -> None:
        self.batch = batch
        columns = [_column(batch, operand) for operand in fixed]
        valid = None
        for operand in fixed:
            valid = both(valid, batch.valid(operand))
        self._rows = None if valid is None else np.flatnonzero(valid)
        self._columns = columns if self._rows is None else [take(c, self._rows) for c in columns]
        self._codes: dict[int, UInt64s] = {}

    def find(self, segment: HashedSegment) -> tuple[Int64s, Int64s]:
        """Return the rows that have a combination of the segment, and the place of each row's
        combination."""
        seed = segment.combinations.seed
        if seed not in self._codes:
            self._codes[seed] = codes_of(self._columns, seed)
        rows, places = segment.combinations.find(self._columns, self._codes[seed])
        return (rows if self._rows is None else self._rows[rows]), places


def _column(batch: ProbeBatch, operand: Expression) -> KeyColumn:
    if operand.type.kind is Kind.TEXT:
        return batch.texts(operand)
    return np.ascontiguousarray(batch.keys(operand)[0])


# ---- matches


def search(segment: HashedSegment, rows: CodedRows) -> Iterator[RowLists]:
    """Yield the matches of a segment's predicates; no predicate is in two of the lists."""
    met, places = rows.find(segment)
    if len(met):
        for ladder in segment.ladders:
            yield from _LadderSearch(segment, ladder, rows.batch).search(met, places)


class _LadderSearch:
    """The search of a ladder of a segment, for a batch."""

    def __init__(self, segment: HashedSegment, ladder: Ladder, batch: ProbeBatch) -> None:
        self._segment, self._ladder, self._batch = segment, ladder, batch
        has_residuals = len(segment.residuals.texts) > 0
        self._is_checked = segment.has_dead or has_residuals or len(ladder.others) > 0

    def search(self, rows: Int64s, places: Int64s) -> Iterator[RowLists]:
        """Yield the matches of ascending rows, which have the combinations at `places`."""
        ends = self._ladder.ends(self._batch, rows, places)
        # How many entries of the ladder each row has.
        counts = ends - self._ladder.begins.take(places)
        total = int(counts.sum())
        if total > _PAIRS_AT_ONCE and not self._segment.repeats:
            yield from self._search_slices(rows, places, counts)
        elif total:
            yield from self._search_slice(rows, places, counts, total)

    def _search_slices(self, rows: Int64s, places: Int64s, counts: Array) -> Iterator[RowLists]:
        """Yield the matches of some combinations at a time."""
        pairs_of = np.bincount(places, counts, len(self._ladder.begins) - 1)
        ends = np.cumsum(pairs_of)
        edges = np.searchsorted(ends, np.arange(0, ends[-1], _PAIRS_AT_ONCE))
        for first, last in pairwise(np.unique(np.append(edges, len(ends))).tolist()):
            chosen = np.flatnonzero((places >= first) & (places < last))
            total = int(counts[chosen].sum())
            yield from self._search_slice(rows[chosen], places[chosen], counts[chosen], total)

    def _search_slice(
        self, rows: Int64s, places: Int64s, counts: Array, total: int
    ) -> Iterator[RowLists]:
        if _MAX_CELLS_PER_PAIR * total >= _MIN_MATRIX_CELLS and not self._segment.repeats:
            combinations, codes = np.unique(places, return_inverse=True)
            entries = np.diff(self._ladder.begins)[combinations]
            cells = entries * np.bincount(codes)
            is_dense = cells <= _MAX_CELLS_PER_PAIR * np.bincount(codes, counts)
            is_dense &= cells >= _MIN_MATRIX_CELLS
            if is_dense.any():
                yield self._lists(self._by_matrices(rows, codes, combinations, is_dense))
                others = np.flatnonzero(~is_dense[codes])
                rows, places, counts = rows[others], places[others], counts[others]
        if len(rows):
            yield self._lists(self._by_sorting(rows, places, counts))

    def _by_sorting(self, rows: Int64s, places: Int64s, counts: Array) -> GroupedRows:
        pair_rows = np.repeat(rows.astype(np.int32), counts)
        # Where the run of each row begins, less the number of pairs before it.
        shift = self._ladder.begins.take(places) - (np.cumsum(counts) - counts)
        entries = np.repeat(shift.astype(np.int32), counts)
        entries += np.arange(len(entries), dtype=np.int32)
        slots = self._ladder.slots.take(entries)
        if self._is_checked:
            holds = self._holds(slots, pair_rows)
            slots, pair_rows = slots[holds], pair_rows[holds]
        return regroup(self._segment.numbers(slots), pair_rows)

    def _by_matrices(
        self, rows: Int64s, codes: Int64s, combinations: Int64s, is_dense: Mask
    ) -> GroupedRows:
        """Return the matches of those combinations that are dense; row i has the combination at
        place `combinations[codes[i]]`."""
        order = np.argsort(codes, kind="stable")
        ends = np.append(0, np.cumsum(np.bincount(codes)))
        parts: list[GroupedRows] = []
        for code in np.flatnonzero(is_dense).tolist():
            place = int(combinations[code])
            run = slice(self._ladder.begins[place], self._ladder.begins[place + 1])
            rows_of = rows[order[ends[code] : ends[code + 1]]]
            parts += self._by_matrix(self._ladder.slots[run], self._ladder.bounds[run], rows_of)
        return in_order(parts)

    def _by_matrix(self, slots: Array, bounds: Int64s, rows: Int64s) -> Iterator[GroupedRows]:
        """Yield the matches of entries, whose bounds ascend, with rows of their combination."""
        keys = None
        if self._ladder.side is not None:
            keys, valid = self._ladder.side.keys(self._batch, rows)
            if valid is not None:
                rows, keys = rows[valid], keys[valid]
        rows = rows.astype(np.int32)
        step = max(_CELLS_AT_ONCE // max(len(rows), 1), 1)
        for begin in range(0, len(slots), step):
            lines = slots[begin : begin + step]
            cells = np.broadcast_to(rows, (len(lines), len(rows)))
            if keys is None:
                counts, pair_rows = np.full(len(lines), len(rows)), cells.reshape(-1)
            else:
                inside = bounds[begin : begin + step, None] <= keys
                counts, pair_rows = inside.sum(axis=1), cells[inside]
            if self._is_checked:
                holds = self._holds(np.repeat(lines, counts), pair_rows)
                pair_lines = np.repeat(np.arange(len(lines)), counts)[holds]
                counts, pair_rows = np.bincount(pair_lines, minlength=len(lines)), pair_rows[holds]
            yield GroupedRows(lines.astype(np.int64), counts, pair_rows)

    def _holds(self, slots: Array, rows: Array) -> Mask:
        """Return a mask of the pairs of a run that are matches."""
        segment = self._segment
        holds = admitted_pairs(self._ladder.others, segment.ranges, self._batch, slots, rows)
        if segment.has_dead:
            holds &= ~segment.dead.take(slots)
        if len(segment.residuals.texts):
            holds &= self._holds_residual(slots, rows)
        return holds

    def _holds_residual(self, slots: Array, rows: Array) -> Mask:
        """Return a mask of the pairs whose residual condition holds. Each condition is evaluated
        once."""
        codes = self._segment.residuals.codes.take(slots)
        holds: Mask = codes == NO_RESIDUAL
        pairs = np.flatnonzero(~holds).astype(np.int32)
        grouped = regroup(codes[pairs], pairs)
        ends = np.cumsum(grouped.counts)
        for code, begin, end in zip(grouped.numbers, ends - grouped.counts, ends, strict=True):
            pairs = grouped.rows[begin:end]
            mask = truth(self._segment.residual(int(code)), self._batch)
            holds[pairs] = mask[rows[pairs]]
        return holds

    def _lists(self, groups: GroupedRows) -> RowLists:
        rows = (groups.rows + self._batch.first).astype(np.uint32)
        return RowLists(self._segment.ids_of(groups.numbers), groups.counts, rows)
