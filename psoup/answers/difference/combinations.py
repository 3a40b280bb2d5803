"""CombinedRows of rows, as a copy has them: found by joining what has changed with the rest.

What came between two marks is, for each leg, what that leg gained, joined with what the legs before
it kept and all that the legs after it have now. So every combination with a new row is found, and
found once; nothing is joined where no leg gained a row. What is gone or has expired is found in the
same way from what legs lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.instants import FOR_EVER, SINCE_EVER
from psoup.answers.difference.copier import once
from psoup.answers.difference.leg_sets import LegSets, TakenRows
from psoup.answers.joins.join_limits import JoinLimits
from querystem.combine import Combining
from querystem.combine.parts import PartPlace, part_places
from querystem.identity import parts_of
from querystem.join import TooManyPairs
from querystem.query import From, Query
from results.checksum import key_ids
from results.id_sets import all_ids, member
from results.row_order import number_order

# So many rows of the first leg are joined at first, and then twice as many each time; more where
# rows of others changed and their pairs with these are no more than so many.
_FIRST_STEP, _FEW_PAIRS = 1024, 1 << 20


@dataclass(frozen=True)
class CombinedRows:
    """Some combinations, with the instants of NOW from and until which each is visible.

    `parts` are the row ids of their legs, `rows` what a query makes its outputs of. The ids are
    hashes of the parts, and of the salt unless that is 0.
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
        return key_ids([pa.array(one) for one in numbers], len(self))

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
        """The combinations by ascending parts."""
        return self if len(self) < 2 else self.take(number_order(self.parts))

    def after(self, parts: tuple[int, ...]) -> CombinedRows:
        """The combinations that come after one with these parts."""
        if not parts:
            return self
        later, equal = np.zeros(len(self), np.bool_), np.ones(len(self), np.bool_)
        for column, part in zip(self.parts, parts, strict=True):
            later |= equal & (column > part)
            equal &= column == part
        return self.keep(later)

    @classmethod
    def joined(cls, some: Sequence[CombinedRows]) -> CombinedRows:
        if len(some) == 1:
            return some[0]
        return cls(
            tuple(np.concatenate(part) for part in zip(*(one.parts for one in some), strict=True)),
            np.concatenate([one.visible_from for one in some]),
            np.concatenate([one.visible_until for one in some]),
            pa.concat_batches([one.rows for one in some]),
            some[0].salt,
        )


@dataclass(frozen=True)
class LegChange:
    """The rows of a leg that changed, those that did not, and all on the other side of the
    change."""

    changed: TakenRows
    unchanged: TakenRows
    every: TakenRows


class Combiner:
    """Makes combinations of rows of a query's legs. `joins` counts how often it has joined.

    The limits bound the pairs of rows that it looks at in its life. `salt` goes into the ids.
    """

    def __init__(
        self, query: Query, legs: Sequence[LegSets], limits: JoinLimits, salt: int
    ) -> None:
        assert isinstance(query.source, From)
        self._query = query
        self._legs = legs
        self._limits = limits
        self._pairs = 0
        self._salt = salt
        self._places = part_places(query.source)
        self.joins = 0

    def walk(
        self, changes: Sequence[LegChange], after: tuple[int, ...] = ()
    ) -> Iterator[CombinedRows]:
        """The combinations in which a leg's row changed, by ascending parts, some at a time; from
        those on that come after the one with the given parts.

        Raises TooMuchWork.
        """
        for number, place in enumerate(self._places):
            if place.leads:
                branches = tuple(branch for _, branch in place.branches)
                if branches >= after[: len(branches)]:
                    same = branches == after[: len(branches)] and len(after) > len(branches)
                    first = after[len(branches)] if same else 0
                    for found in self._led(changes, number, first):
                        later = found.after(after)
                        if len(later):
                            yield later

    def with_any(self, parts: Sequence[Int64s], rows: Sequence[Int64s]) -> Mask:
        """A mask of combinations, given by their parts: true for those that have one of some rows,
        which are the ids of each leg's."""
        found = np.zeros(len(parts[0]), np.bool_)
        for place, ids in zip(self._places, rows, strict=True):
            chosen = _of_branches(place, parts, len(found))
            found[chosen] |= member(parts[place.column][chosen], ids)
        return found

    def _led(self, changes: Sequence[LegChange], lead: int, first: int) -> Iterator[CombinedRows]:
        """The combinations of one leading leg's rows with ids from `first` on."""
        turns = [
            number
            for number, change in enumerate(changes)
            if not self._places[lead].excludes(self._places[number]) and not change.changed.none
        ]
        if not turns:
            return
        ids = _ids(changes[lead].changed.batch)
        if turns != [lead]:
            ids = all_ids(ids, _ids(changes[lead].unchanged.batch))
        place, step = int(np.searchsorted(ids, first)), _FIRST_STEP
        if lead not in turns:
            changed = max(changes[number].changed.batch.num_rows for number in turns)
            step = max(step, _FEW_PAIRS // changed)
        while place < len(ids):
            last = min(place + step, len(ids)) - 1
            span = int(ids[place]), int(ids[last]) + 1
            found = [self._turn(changes, number, lead, span) for number in turns]
            some = [one for one in found if one is not None and len(one)]
            if some:
                yield CombinedRows.joined(some).in_order()
            place, step = last + 1, 2 * step

    def _turn(
        self, changes: Sequence[LegChange], number: int, lead: int, span: tuple[int, int]
    ) -> CombinedRows | None:
        """The combinations with a changed row of one leg and no changed row of an earlier one,
        whose leading row has an id in the span; None where a leg has no rows."""
        batches = []
        for other, change in enumerate(changes):
            place = self._places[other]
            excluded = place.excludes(self._places[lead]) or place.excludes(self._places[number])
            taken = change.changed if other == number else change.every
            batch = (change.unchanged if other < number else taken).batch
            if other == lead:
                low, high = np.searchsorted(_ids(batch), span)
                batch = batch.slice(low, high - low)
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
        return CombinedRows(parts, begin, until, rows, self._salt).keep(begin < until)

    def _intervals(
        self, batches: Sequence[pa.RecordBatch], parts: Sequence[Int64s], count: int
    ) -> tuple[Int64s, Int64s]:
        """The intervals that those of the parts have in common."""
        begin, until = np.full(count, SINCE_EVER), np.full(count, FOR_EVER)
        for leg, place, batch in zip(self._legs, self._places, batches, strict=True):
            ts = batch.column("ts").view(pa.int64()).to_numpy()
            interval = leg.interval(ts)
            chosen = _of_branches(place, parts, count)
            if interval is None or not len(chosen):
                continue
            at = np.searchsorted(_ids(batch), parts[place.column][chosen])
            begin[chosen] = np.maximum(begin[chosen], interval[0][at])
            until[chosen] = np.minimum(until[chosen], interval[1][at])
        return begin, until


def _of_branches(place: PartPlace, parts: Sequence[Int64s], count: int) -> Int64s:
    """The combinations that have a row of the leg with this place."""
    there = np.ones(count, np.bool_)
    for part, branch in place.branches:
        there &= parts[part] == branch
    return np.flatnonzero(there)


def _ids(batch: pa.RecordBatch) -> Int64s:
    ids: Int64s = batch.column("row_id").to_numpy()
    return ids
