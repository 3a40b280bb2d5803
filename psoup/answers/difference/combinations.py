"""Combinations of rows, as a copy has them: found by joining what has changed with what has not.

For each leg, the rows added to it are joined with the unchanged rows of the legs before it and all
present rows of the legs after it. So every combination with a new row is found exactly once, and
nothing is joined if no leg has new rows. Removed and expired combinations are found in the same way
from the rows that legs lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.instants import FOR_EVER, SINCE_EVER
from psoup.answers.difference.copier import once
from psoup.answers.difference.leg_sets import LazyRows, LegSets
from psoup.answers.joins.join_limits import JoinLimits
from querystem.combine import Combining
from querystem.combine.parts import part_places
from querystem.identity import parts_of
from querystem.join import TooManyPairs
from querystem.language import timeless
from querystem.query import Query
from querystem.sources import From
from results.checksum import key_ids
from results.id_sets import all_ids, member
from results.row_order import number_order

# The rows of the first leg that the first step joins; each further step joins twice as many.
_FIRST_STEP_ROWS = 1024
# If only rows of other legs changed, the first step may join as many pairs as this.
_FIRST_STEP_PAIRS = 1 << 20


@dataclass(frozen=True)
class CombinedRows:
    """Combinations of rows, and the instants of NOW from and until which each is visible.

    `parts` are the row ids of their legs, an array for each column of parts. `rows` is what a query
    computes its outputs from. The ids are hashes of the parts, and of the salt unless that is 0.
    """

    parts: tuple[Int64s, ...]
    visible_from: Int64s
    visible_until: Int64s
    rows: pa.RecordBatch
    salt: int = 0

    def __len__(self) -> int:
        return len(self.visible_from)

    @once
    def ids(self) -> Int64s:
        numbers = [*self.parts, np.full(len(self), self.salt)] if self.salt else self.parts
        return key_ids([pa.array(column) for column in numbers], len(self))

    def take(self, places: Int64s) -> CombinedRows:
        return CombinedRows(
            tuple(part[places] for part in self.parts),
            self.visible_from[places],
            self.visible_until[places],
            self.rows.take(pa.array(places)),
            self.salt,
        )

    def keep(self, mask: Mask) -> CombinedRows:
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def in_order(self) -> CombinedRows:
        """Return the combinations by ascending parts."""
        return self if len(self) < 2 else self.take(number_order(self.parts))

    def after(self, parts: tuple[int, ...]) -> CombinedRows:
        """Return the combinations whose parts are greater than these, compared in order."""
        if not parts:
            return self
        # Masks of the combinations: which are greater by the columns so far, and which are equal.
        later, equal = np.zeros(len(self), np.bool_), np.ones(len(self), np.bool_)
        for column, part in zip(self.parts, parts, strict=True):
            later |= equal & (column > part)
            equal &= column == part
        return self.keep(later)

    @classmethod
    def joined(cls, batches: Sequence[CombinedRows]) -> CombinedRows:
        """Return the combinations of at least one batch, one batch after the other."""
        if len(batches) == 1:
            return batches[0]
        parts = zip(*(batch.parts for batch in batches), strict=True)
        return cls(
            tuple(np.concatenate(column) for column in parts),
            np.concatenate([batch.visible_from for batch in batches]),
            np.concatenate([batch.visible_until for batch in batches]),
            pa.concat_batches([batch.rows for batch in batches]),
            batches[0].salt,
        )


@dataclass(frozen=True)
class LegChange:
    """The rows of a leg that changed, those that did not, and all rows of the side that has the
    changed ones."""

    changed: LazyRows
    unchanged: LazyRows
    every: LazyRows


class Combiner:
    """Makes combinations of rows of a query's legs. `joins` counts the joins it has made.

    The limits bound the pairs of rows that it compares in its life. `salt` goes into the ids.
    Combinations that a condition on NOW shows no more at `now` are left out.
    """

    def __init__(
        self,
        query: Query,
        legs: Sequence[LegSets],
        limits: JoinLimits,
        salt: int,
        now: int | None = None,
    ) -> None:
        assert isinstance(query.source, From)
        self._query, self._visibility = timeless(query)
        self._now = now
        self._legs = legs
        self._limits = limits
        self._pairs = 0
        self._salt = salt
        self._places = part_places(query.source)
        self.joins = 0

    @property
    def ends_alone(self) -> bool:
        """Whether a combination may end although none of its rows does."""
        return self._visibility is not None and self._visibility.ends

    def walk(
        self, changes: Sequence[LegChange], after: tuple[int, ...] = ()
    ) -> Iterator[CombinedRows]:
        """Yield batches of combinations that have a changed row of any leg, by ascending parts;
        only those that come after the parts `after`.

        Raises TooMuchWork.
        """
        for number, place in enumerate(self._places):
            if place.leads:
                branches = tuple(branch for _, branch in place.branches)
                # Branches before that of `after` were sent completely.
                if branches >= after[: len(branches)]:
                    # The leading row of `after` may have more combinations: it is joined again.
                    same = branches == after[: len(branches)] and len(after) > len(branches)
                    first = after[len(branches)] if same else 0
                    for batch in self._led(changes, number, first):
                        remaining = batch.after(after)
                        if len(remaining):
                            yield remaining

    def with_any(self, parts: Sequence[Int64s], rows: Sequence[Int64s]) -> Mask:
        """Return a mask of combinations, given by their parts: true for those that have one of
        some rows. `rows` has the ids of these for each leg."""
        mask = np.zeros(len(parts[0]), np.bool_)
        for place, ids in zip(self._places, rows, strict=True):
            chosen = place.combinations(parts)
            mask[chosen] |= member(parts[place.column][chosen], ids)
        return mask

    def _led(self, changes: Sequence[LegChange], lead: int, first: int) -> Iterator[CombinedRows]:
        """Yield the combinations of one leading leg's rows with ids from `first` on."""
        turns = [
            number
            for number, change in enumerate(changes)
            if not self._places[lead].excludes(self._places[number]) and not change.changed.is_empty
        ]
        if not turns:
            return
        ids = _ids(changes[lead].changed.batch)
        # If another leg has changed, unchanged leading rows are part of new combinations too.
        if turns != [lead]:
            ids = all_ids(ids, _ids(changes[lead].unchanged.batch))
        place, step = int(np.searchsorted(ids, first)), _FIRST_STEP_ROWS
        if lead not in turns:
            changed = max(changes[number].changed.batch.num_rows for number in turns)
            step = max(step, _FIRST_STEP_PAIRS // changed)
        while place < len(ids):
            # Short steps first, so that the first rows come soon; doubling bounds their number.
            last = min(place + step, len(ids)) - 1
            span = int(ids[place]), int(ids[last]) + 1
            results = [self._turn(changes, number, lead, span) for number in turns]
            batches = [batch for batch in results if batch is not None and len(batch)]
            if batches:
                yield CombinedRows.joined(batches).in_order()
            place, step = last + 1, 2 * step

    def _turn(
        self, changes: Sequence[LegChange], number: int, lead: int, span: tuple[int, int]
    ) -> CombinedRows | None:
        """Return the combinations with a changed row of the leg `number` and no changed row of an
        earlier one, whose leading row has an id in the span; None if a leg has no rows."""
        batches = []
        for leg, change in enumerate(changes):
            place = self._places[leg]
            excluded = place.excludes(self._places[lead]) or place.excludes(self._places[number])
            rows = change.changed if leg == number else change.every
            batch = (change.unchanged if leg < number else rows).batch
            if leg == lead:
                low, high = np.searchsorted(_ids(batch), span)
                batch = batch.slice(low, high - low)
            # A leg of another branch is in none of these combinations. An empty leg that is in no
            # branch would be in all of them, so there are none.
            if excluded:
                batch = batch.slice(0, 0)
            elif not batch.num_rows and not place.branches:
                return None
            batches.append(batch)
        return self._combined(batches)

    def _combined(self, batches: Sequence[pa.RecordBatch]) -> CombinedRows:
        self.joins += 1
        with self._limits.joining() as room:
            room.take(sum(batch.nbytes for batch in batches))
            combining = Combining(SINCE_EVER, self._limits.pairs - self._pairs, [], room)
            try:
                rows = combining.source_rows(self._query, batches, parts=True)
            except TooManyPairs as many:
                raise TooManyPairs(many.count + self._pairs, self._limits.pairs) from None
        self._pairs += sum(step.candidates for run in combining.runs for step in run.steps)
        parts = parts_of(self._query, rows)
        begin, until = self._intervals(batches, parts, rows.num_rows)
        if self._visibility is not None:
            first, end = self._visibility.interval(rows)
            begin, until = np.maximum(begin, first), np.minimum(until, end)
        # Combinations whose parts are never visible together are left out.
        visible = begin < until
        if self.ends_alone and self._now is not None:
            visible &= until > self._now
        return CombinedRows(parts, begin, until, rows, self._salt).keep(visible)

    def _intervals(
        self, batches: Sequence[pa.RecordBatch], parts: Sequence[Int64s], count: int
    ) -> tuple[Int64s, Int64s]:
        """Return, for each combination, the interval that those of its parts have in common."""
        begin, until = np.full(count, SINCE_EVER), np.full(count, FOR_EVER)
        for leg, place, batch in zip(self._legs, self._places, batches, strict=True):
            ts = batch.column("ts").view(pa.int64()).to_numpy()
            chosen = place.combinations(parts)
            if not leg.follows_now or not len(chosen):
                continue
            starts, ends = leg.interval(ts)
            # The place of each combination's row in the batch, which is by ascending id.
            at = np.searchsorted(_ids(batch), parts[place.column][chosen])
            begin[chosen] = np.maximum(begin[chosen], starts[at])
            until[chosen] = np.minimum(until[chosen], ends[at])
        return begin, until


def _ids(batch: pa.RecordBatch) -> Int64s:
    ids: Int64s = batch.column("row_id").to_numpy()
    return ids
