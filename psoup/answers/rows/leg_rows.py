"""The rows of a leg: those that its window chose and its predicate matches, and their columns.

All that needs rows of a stream gets them here: answers on the event loop and in threads,
combinations of several legs, Explain, and copies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import Part, Picked, gather, in_order
from datastem.codec import StemColumns, columns_read, columns_shown
from datastem.schema import StreamSchema
from psoup.answers.caches import Memo
from psoup.answers.matching.matcher import Work
from psoup.answers.matching.permitted_rows import MatchSource
from psoup.answers.planning.plan import CompositePlan, LegPlan, Plan
from psoup.answers.rows.windows import NO_ROWS, Choice, Horizon, choose, choose_current, parts_of
from querystem.combine import LegColumns, is_every
from querystem.evaluate import answer_of
from querystem.pace import spending
from querystem.query import Query

# Units (`querystem.pace`) of a value that is copied.
_VALUE_UNITS = 10
# All rows of a column are gathered if at least one in this many of them is needed.
_GATHER_ALL_RATIO = 8
# Parts with more rows than this, on average, are sent one by one, not copied into one batch first.
_SEPARATE_ROWS = 4096
# `picked_at_once` gives up past this many blocks or bytes.
_QUICK_BLOCKS, _QUICK_BYTES = 4, 256 << 10


class LegMatchers(Protocol):
    """The matchers of the legs of one answer, which count their work together."""

    @property
    def work(self) -> Work: ...

    def of(self, leg: LegPlan) -> MatchSource: ...

    def of_combinations(self, plan: Plan, composite: CompositePlan) -> MatchSource: ...


def chosen_rows(leg: LegPlan, matcher: MatchSource, memo: Memo) -> Choice:
    """Return the rows of a leg's window."""
    if leg.now is None:
        return NO_ROWS
    return rows_at(leg, matcher, Horizon(leg.now, leg.oldest, leg.limit()[0]), memo)


def rows_at(leg: LegPlan, matcher: MatchSource, horizon: Horizon, memo: Memo) -> Choice:
    """Return the rows of a leg's window as of another horizon than the plan's."""
    permitted = matcher.permitted
    if leg.keyed is not None:
        return choose_current(leg.window, leg.keyed, horizon, permitted)
    return choose(leg.window, leg.stem, horizon, memo, leg.stream_id, permitted)


@dataclass(frozen=True)
class LegRows:
    """The chosen rows of a leg that match."""

    leg: LegPlan
    matcher: MatchSource
    choice: Choice

    def picked(self) -> Picked:
        """Return the places of the rows, part by part."""
        return [(part, self.places(part)) for part in self.parts()]

    def picked_at_once(self) -> Picked | None:
        """Return the places of the rows; None if they are many, or if a file or a row must be read
        to find them."""
        region, room = self.choice.region, float(_QUICK_BYTES)
        if region.empty:
            return []
        parts = self.leg.stem.probe_memory(region.begin, region.end, region.hi, _QUICK_BLOCKS)
        if parts is None:
            return None
        picked = []
        for part in parts:
            # `probe_memory` does not choose by the least id.
            if part.stop <= region.lo:
                continue
            lo, hi, inside = self._span(part)
            ids = self.matcher.cached(part, lo, hi)
            places = None if ids is None else self.choice.places(part, ids, inside)
            if places is None or len(places) * part.row_bytes > room:
                return None
            room -= len(places) * part.row_bytes
            picked.append((part, places))
        return picked

    def parts(self) -> Iterator[Part]:
        """Yield the parts that may hold any of the rows, by ascending id."""
        region = self.choice.region
        if region.empty:
            return
        if self.choice.ids is not None:
            yield from parts_of(self.leg.stem, self.choice.ids, region.hi)
            return
        yield from self.leg.stem.probe(region.begin, region.end, region.hi, region.lo)

    def places(self, part: Part, among: Int64s | None = None) -> Int64s:
        """Return the places of the rows in a part; only of `among`, which must ascend, if given."""
        lo, hi, inside = self._span(part, among)
        places = self.choice.places(part, self.matcher.match(part, lo, hi), inside)
        if among is None or len(among) == len(part.ids):
            return places
        return np.intersect1d(places, among, assume_unique=True)

    def gather(self, picked: Picked, reads: frozenset[str]) -> pa.RecordBatch:
        """Return rows with the columns of these names, as queries see them."""
        return gathered(picked, columns_read(self.leg.schema, reads))

    def _span(self, part: Part, among: Int64s | None = None) -> tuple[int, int, bool]:
        """Return row ids `[lo, hi)` outside of which no row of the part is chosen, and whether all
        inside are."""
        region = self.choice.region
        lo, hi = part.span(region.begin, region.end)
        if among is not None:
            lo, hi = max(lo, int(part.ids[among[0]])), min(hi, int(part.ids[among[-1]]) + 1)
        first, stop = self.choice.span(part)
        lo, hi = max(lo, region.lo, first), min(hi, region.hi, stop)
        # If ts never falls, `part.span` cuts exactly at the instants of the region.
        return lo, max(lo, hi), part.in_order and region.instants_only


def gathered(picked: Picked, columns: StemColumns) -> pa.RecordBatch:
    """Return the picked rows with some columns, in one batch."""
    rows = sum(len(places) for _, places in picked)
    spending()(rows * len(columns.names) * _VALUE_UNITS)
    return gather(picked, columns.names, columns.schema)


def outputs_of(query: Query, schema: StreamSchema, picked: Picked) -> Sequence[pa.RecordBatch]:
    """Return the outputs of a query without GROUP BY over picked rows of one leg, in order: one
    batch or more."""
    # Expressions must be evaluated, or rows sorted; otherwise columns are sent as they are.
    if query.shown is None or not in_order(picked):
        return [answer_of(query, [gathered(picked, columns_read(schema, query.reads))])]
    columns = columns_shown(schema, query.shown)
    many = sum(len(places) for _, places in picked) > _SEPARATE_ROWS * len(picked) > 0
    groups = [[piece] for piece in picked] if many else [picked]
    return [gathered(group, columns) for group in groups]


@dataclass(frozen=True)
class PickedRows(LegColumns):
    """Rows of a leg that are picked but not gathered yet: a join needs all rows of a few columns,
    and a few rows of the other columns."""

    rows: LegRows
    picked: Picked
    reads: frozenset[str]

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def row_bytes(self) -> float:
        if not len(self):
            return 0.0
        # An estimate: each column is taken to have an equal share of a row.
        average = sum(len(places) * part.row_bytes for part, places in self.picked) / len(self)
        return average * min(1.0, len(self.reads) / len(self.rows.leg.schema.types))

    @property
    def nbytes(self) -> int:
        """The bytes of all rows, about, with the columns that are read."""
        return round(self.row_bytes * len(self))

    def batch(self, names: Collection[str]) -> pa.RecordBatch:
        return gathered(self.picked, self._columns(names))

    def take(self, places: Int64s, names: Collection[str]) -> pa.RecordBatch:
        if is_every(places, len(self)):
            return self.batch(names)
        if _GATHER_ALL_RATIO * len(places) > len(self):
            return self.batch(names).take(pa.array(places))
        # `distinct` ascends; `cuts` bound it for each part; `back` restores order and repeats.
        distinct, back = np.unique(places, return_inverse=True)
        cuts = np.searchsorted(distinct, self._starts)
        pieces = [
            (part, chosen[distinct[low:high] - start])
            for (part, chosen), start, low, high in zip(
                self.picked, self._starts[:-1], cuts[:-1], cuts[1:], strict=True
            )
        ]
        return gathered(pieces, self._columns(names)).take(pa.array(back))

    @cached_property
    def _starts(self) -> Int64s:
        """The place of the first row of each part among all rows, and the number of all rows."""
        return np.cumsum([0, *(len(places) for _, places in self.picked)])

    def _columns(self, names: Collection[str]) -> StemColumns:
        return columns_shown(self.rows.leg.schema, tuple((name, name) for name in sorted(names)))
