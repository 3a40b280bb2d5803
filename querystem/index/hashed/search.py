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
from querystem.index.hashed.coded_texts import NO_TEXT
from querystem.index.hashed.combinations import KeyColumn, codes_of
from querystem.index.hashed.conjunction import LikeKey
from querystem.index.hashed.ladders import Ladder, admitted_pairs
from querystem.index.hashed.segment import HashedSegment, Segment
from querystem.index.matches import (
    RowLines,
    RowLists,
    RowSets,
    accumulate,
    lines_of,
    lists_of,
    scatter,
    words_for,
)
from querystem.index.regroup import GroupedRows, in_order, regroup
from querystem.kernel.vector import both

# About so many pairs of an entry and a row are worked on together.
_PAIRS_AT_ONCE = 1 << 22
# A smaller matrix costs more for the calls than for its cells, and a matrix with fewer pairs among
# its cells costs more than sorting those.
_MIN_MATRIX_CELLS = 1 << 14
_MAX_CELLS_PER_PAIR = 8
_CELLS_AT_ONCE = 1 << 20
# An entry that matches more than one row in so many is smaller as a line of bits.
_ROWS_PER_LISTED_ROW = 32
# To find the run of a row costs as much as so many entries of it, on average.
_PAIRS_PER_ENTRY = 4
# A condition is evaluated for all rows, unless it is needed for fewer than one in so many.
_ROWS_PER_TAKEN_ROW = 16


class CodedRows:
    """The rows of a batch that have a value in every fixed operand, and their codes."""

    def __init__(self, batch: ProbeBatch, fixed: tuple[Expression, ...]) -> None:
        columns: list[KeyColumn] = []
        valid = None
        for operand in fixed:
            is_text = operand.type.kind is Kind.TEXT
            column, has_value = batch.octets(operand) if is_text else batch.keys(operand)
            columns.append(column)
            valid = both(valid, has_value)
        self._rows = None if valid is None else valid.nonzero()[0]
        self._columns = columns if self._rows is None else [c.take(self._rows) for c in columns]
        self._codes: dict[int, UInt64s] = {}

    def find(self, segment: HashedSegment) -> tuple[Int64s, Int64s]:
        """Return the rows that have a combination of the segment, and the place of each row's
        combination."""
        seed = segment.combinations.seed
        if seed not in self._codes:
            self._codes[seed] = codes_of(self._columns, seed)
        rows, places = segment.combinations.find(self._columns, self._codes[seed])
        return (rows if self._rows is None else self._rows[rows]), places


# ---- matches


def search(segment: Segment, batch: ProbeBatch, rows: Int64s, places: Int64s) -> Iterator[RowSets]:
    """Yield the matches of a segment's predicates; no predicate is in two of the lists. Row
    `rows[i]` has the key at `places[i]`; rows ascend, and one with several keys is repeated."""
    if len(rows):
        for ladder in segment.ladders:
            yield from LadderRuns(segment, ladder, batch, rows, places).lists()


def search_within(
    segment: Segment, batch: ProbeBatch, rows: Int64s, places: Int64s, most: int
) -> list[RowSets] | None:
    """Return what `search` yields; None if more than `most` pairs of an entry and a row would have
    to be looked at."""
    if len(rows) > most or _PAIRS_PER_ENTRY * most < segment.entry_count(places):
        return None
    runs = [LadderRuns(segment, ladder, batch, rows, places) for ladder in segment.ladders]
    if sum(run.total for run in runs) > most:
        return None
    return [part for run in runs for part in run.lists()]


class LadderRuns:
    """The entries of a ladder that rows have to look at, `total` altogether."""

    def __init__(
        self, segment: Segment, ladder: Ladder, batch: ProbeBatch, rows: Int64s, places: Int64s
    ) -> None:
        self._segment, self._ladder, self._batch = segment, ladder, batch
        self._is_checked = segment.has_dead or segment.has_conditions or len(ladder.others) > 0
        self._rows, self._places = rows, places
        # How many entries of the ladder each row has.
        self._counts = ladder.ends(batch, rows, places) - ladder.begins.take(places)
        self.total = int(self._counts.sum())

    def lists(self) -> Iterator[RowSets]:
        """Yield the matches."""
        if self.total > _PAIRS_AT_ONCE and not self._segment.repeats:
            yield from self._search_slices(self._rows, self._places, self._counts)
        elif self.total:
            yield from self._search_slice(self._rows, self._places, self._counts, self.total)

    def _search_slices(self, rows: Int64s, places: Int64s, counts: Array) -> Iterator[RowSets]:
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
    ) -> Iterator[RowSets]:
        if _MAX_CELLS_PER_PAIR * total >= _MIN_MATRIX_CELLS and not self._segment.repeats:
            combinations, codes = _numbered(places, len(self._ladder.begins) - 1)
            begins = self._ladder.begins
            entries = begins.take(combinations + 1) - begins.take(combinations)
            cells = entries * np.bincount(codes, minlength=len(combinations))
            is_dense = cells >= _MIN_MATRIX_CELLS
            if is_dense.any():
                pairs = np.bincount(codes, counts, len(combinations))
                is_dense &= cells <= _MAX_CELLS_PER_PAIR * pairs
            if is_dense.any():
                is_line = is_dense & (pairs * _ROWS_PER_LISTED_ROW > entries * self._batch.length)
                yield from self._dense(rows, codes, combinations, is_dense, is_line)
                others = np.flatnonzero(~is_dense[codes])
                rows, places, counts = rows[others], places[others], counts[others]
        if len(rows):
            yield self._by_sorting(rows, places, counts)

    def _by_sorting(self, rows: Int64s, places: Int64s, counts: Array) -> RowLists:
        pair_rows = rows.astype(np.int32).repeat(counts)
        # Where the run of each row begins, less the number of pairs before it.
        shift = self._ladder.begins.take(places) - (counts.cumsum() - counts)
        entries = shift.astype(np.int32).repeat(counts)
        entries += np.arange(len(entries), dtype=np.int32)
        slots = self._ladder.slots.take(entries)
        if self._is_checked:
            holds = self._holds(slots, pair_rows)
            slots, pair_rows = slots[holds], pair_rows[holds]
        segment, first = self._segment, self._batch.first
        return lists_of(segment.predicate_ids, segment.numbers(slots), pair_rows, first)

    def _dense(
        self,
        rows: Int64s,
        codes: Int64s,
        combinations: Int64s,
        is_dense: Mask,
        is_line: Mask,
    ) -> Iterator[RowSets]:
        """Yield the matches of those combinations that are dense; row i has the combination at
        place `combinations[codes[i]]`. Those of which an entry matches many rows are lines."""
        order = np.argsort(codes, kind="stable")
        ends = np.append(0, np.cumsum(np.bincount(codes, minlength=len(combinations))))
        parts: list[GroupedRows] = []
        for code in np.flatnonzero(is_dense).tolist():
            place = int(combinations[code])
            run = slice(self._ladder.begins[place], self._ladder.begins[place + 1])
            rows_of = rows[order[ends[code] : ends[code + 1]]]
            slots, bounds = self._ladder.slots[run], self._ladder.bounds[run]
            if is_line[code] and not self._is_checked:
                yield self._by_lines(slots, bounds, rows_of)
            else:
                parts += self._by_matrix(slots, bounds, rows_of)
        if parts:
            groups = in_order(parts)
            numbered = (groups.rows + self._batch.first).astype(np.uint32)
            yield RowLists(self._segment.ids_of(groups.numbers), groups.counts, numbered)

    def _by_lines(self, slots: Array, bounds: Int64s, rows: Int64s) -> RowLines:
        """Return the matches of entries, whose bounds ascend, with rows of their combination."""
        batch, last = self._batch, len(slots)
        # The last entry that admits each row of the batch, or else the line after all entries.
        entries = np.full(batch.length, last)
        if self._ladder.side is None:
            entries[rows] = last - 1
        else:
            keys, valid = self._ladder.side.keys(batch, rows)
            admitting = bounds.searchsorted(keys, "right")
            if valid is not None:
                admitting[~valid] = 0
            entries[rows] = np.where(admitting > 0, admitting - 1, last)
        words = np.empty((last + 1, words_for(batch.shift + batch.length)), np.uint64)
        scatter(entries, words, batch.shift)
        # What admits a row is also every entry before it.
        accumulate(words[-2::-1])
        ids = self._segment.ids_of(slots)
        order = np.argsort(ids)
        return lines_of(ids[order], order, words[:-1], batch.first)

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
        segment, checks = self._segment, self._segment.checks
        holds = admitted_pairs(self._ladder.others, checks.ranges, self._batch, slots, rows)
        if segment.has_dead:
            holds &= ~segment.dead.take(slots)
        for key, patterns in checks.likes.items():
            self._check_likes(key, patterns.codes.take(slots), rows, holds)
        if len(checks.residuals.texts):
            self._check_residuals(checks.residuals.codes.take(slots), rows, holds)
        return holds

    def _check_likes(self, key: LikeKey, codes: Array, rows: Array, holds: Mask) -> None:
        """Make `holds` false for the pairs whose text does not match its pattern as it has to."""
        operand, is_match = key
        pairs = np.flatnonzero(holds & (codes != NO_TEXT))
        valid = self._batch.valid(operand)
        if valid is not None:
            is_valid = valid.take(rows.take(pairs))
            holds[pairs[~is_valid]] = False
            pairs = pairs[is_valid]
        if len(pairs):
            pair_rows, pair_codes = rows.take(pairs), codes.take(pairs)
            matched = self._segment.matcher(key).match(self._batch, operand, pair_rows, pair_codes)
            holds[pairs] = matched == is_match

    def _check_residuals(self, codes: Array, rows: Array, holds: Mask) -> None:
        """Make `holds` false for the pairs whose residual condition does not hold. Each condition
        is evaluated once."""
        pairs = np.flatnonzero(holds & (codes != NO_TEXT)).astype(np.int32)
        grouped = regroup(codes[pairs], pairs)
        ends = np.cumsum(grouped.counts)
        for code, begin, end in zip(grouped.numbers, ends - grouped.counts, ends, strict=True):
            pairs = grouped.rows[begin:end]
            condition, pair_rows = self._segment.residual(int(code)), rows.take(pairs)
            if _ROWS_PER_TAKEN_ROW * len(pairs) < self._batch.length:
                holds[pairs] = truth(condition, self._batch.taken(pair_rows))
            else:
                holds[pairs] = truth(condition, self._batch).take(pair_rows)


def _numbered(places: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """Return combinations, among them all that occur, and for each row the number of its own;
    `count` is the number of all combinations."""
    if count <= len(places):
        return np.arange(count), places
    return np.unique(places, return_inverse=True)
