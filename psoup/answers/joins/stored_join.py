"""Joins that the engine has stored for the most part, as composites.

The engine stores the combinations of a box of row ids (`CompositeMark`). An answer takes those that
its windows hold and its predicate matches. It joins only what lies outside the box: for each leg
the rows outside, with the rows inside of the legs before it and all rows of the legs after it. So
every combination is found exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask, UInt16s
from datastem.blocks import BLOCK_BITS, BLOCK_MASK, Part, Picked
from datastem.instants import FOR_EVER
from datastem.picking import pick_rows
from datastem.stem_view import StemView
from psoup.answers.caches import Memo
from psoup.answers.joins.kept_rows import MAX_KEPT_ROWS, KeptRows
from psoup.answers.joins.part_rows import PartRows, distinct
from psoup.answers.matching.matcher import Matcher
from psoup.answers.matching.permitted_rows import MatchSource
from psoup.answers.planning.plan import CompositePlan, LegPlan
from psoup.answers.rows.folds import CHUNK_ROWS, Fold
from psoup.answers.rows.leg_rows import LegRows, PickedRows
from psoup.answers.rows.windows import Choice, permitted_among
from psoup.store.layout import combination_part
from querystem.aggregate import Partial, finish, merge, partial
from querystem.combine import Combining, ItemRows, LegItem, from_reads, side_reads
from querystem.expressions import TRUE, uses_now
from querystem.kernel import matches
from querystem.query import Query
from querystem.sources import From, item_column
from results.id_sets import member
from results.region import Region

# Combinations are kept if they take at most this share of the cache, each taking about as many
# bytes.
_KEPT_SHARE, _KEPT_ROW_BYTES = 4, 128


@dataclass
class CombinationMatcher(Matcher):
    """Matches a predicate over stored combinations; `legs` have the rows with the values."""

    legs: Sequence[LegPlan] = ()

    def _computed(self, part: Part, lo: int, hi: int) -> UInt16s:
        first, last = np.searchsorted(part.ids, [lo, hi]).tolist()
        # For each leg: its distinct rows, and for each combination the place of its row among them,
        # −1 if that has left the store.
        rows, places = list[PartRows](), list[Int64s]()
        for number, leg in enumerate(self.legs):
            ids = part_ids(part, number)[first:last]
            rows.append(PartRows.of(leg, ids))
            places.append(rows[-1].places(ids))
        # The combinations of which every leg still has its row.
        alive = np.flatnonzero(np.minimum.reduce(places) >= 0)
        # The unnamed column gives the batch its length if the predicate reads no other.
        columns: dict[str, pa.Array] = {"": pa.nulls(len(alive))}
        for number, (leg_rows, chosen) in enumerate(zip(rows, places, strict=True)):
            if names := side_reads(number, self.where):
                batch = leg_rows.batch(names).take(pa.array(chosen[alive]))
                columns |= {item_column(number, name): batch.column(name) for name in names}
        combined = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        ids = part.ids[first:last][alive[matches(self.where, combined)]]
        return (ids & BLOCK_MASK).astype(np.uint16)

    def found(
        self, stem: StemView, begin: int | None, low: int, high: int, most: int
    ) -> Int64s | None:
        """Return the ids in `[low, high)` that match, ascending, without those of blocks before
        `begin`; None if they are more than `most`. Some may have no row."""
        pieces, count = [np.empty(0, np.int64)], 0
        for number in stem.numbers(begin, FOR_EVER, high):
            first, stop = max(low, number << BLOCK_BITS), min(high, (number + 1) << BLOCK_BITS)
            if first < stop:
                pieces.append(self.match_block(stem, number, first, stop))
                count += len(pieces[-1])
            if count > most:
                return None
        return np.concatenate(pieces)


def part_ids(part: Part, number: int) -> Int64s:
    """Return the row ids of a leg in the combinations of a part."""
    ids: Int64s = part.numbers(combination_part(number))
    return ids


@dataclass
class StoredJoin:
    """The join of a query's FROM, most of which the engine has stored.

    `legs` are the rows of the legs of FROM, in its order. `stored_count` is the number of stored
    combinations that the answer has. Those that a predicate matches, if they are not many, are kept
    in `memo` with their values.
    """

    plan: CompositePlan
    source: From
    legs: Sequence[LegRows]
    matcher: MatchSource
    combining: Combining
    memo: Memo | None
    stored_count: int = 0

    def combinations(self, names: frozenset[str]) -> ItemRows:
        """Return the combinations with the columns of these names. Raises what a join raises."""
        pieces = [self._stored(names), *self._joined(names)]
        # If all pieces are empty, one is kept for its columns.
        return ItemRows.joined([piece for piece in pieces if len(piece)] or pieces[:1])

    def _joined(self, names: frozenset[str]) -> Iterator[ItemRows]:
        """Yield the combinations that are not stored."""
        for box in self._boxes():
            inputs = [
                PickedRows(rows, picked, self._reads(number, names))
                for number, (rows, picked) in enumerate(box)
            ]
            self.combining.room.take(sum(rows.nbytes for rows in inputs))
            yield self.combining.combinations(self.source, names, iter(inputs))

    def folded(self, query: Query) -> pa.RecordBatch | None:
        """Return the groups of a query, from cached summaries of stored combinations; None if the
        combinations themselves are needed, or so few that no summaries are."""
        grouping, memo = query.grouping, self.memo
        plain = not self.source.subqueries and self.source.where == TRUE
        # What depends on NOW is never cached: no later answer could use it.
        plain = plain and grouping is not None and not uses_now(*grouping.expressions)
        plain = plain and all(rows.leg.is_timeless for rows in self.legs)
        if grouping is None or not plain or "row_id" in query.reads or not self._is_foldable:
            return None
        names = query.reads
        kept = self._kept(from_reads(self.source, names), CHUNK_ROWS)
        if memo is None or kept is not None:
            return None

        def of(part: Part, among: Int64s) -> Partial:
            return partial(grouping, self._beside(self._ids(part, among), names).whole())

        legs = tuple(rows.leg.subject for rows in self.legs)
        subject = ("groups", self.plan.predicate_id, self.plan.places, query.grouping_key, legs)
        # Ids in this region are those of combinations. All legs have its interval of time.
        region = replace(self._composed[0].choice.region, lo=0, hi=self.plan.mark.high)
        folded = Fold(memo, subject, self.plan.stem, region, of, merge, "_until").values()
        joined = [partial(grouping, rows.whole()) for rows in self._joined(names)]
        nothing = [np.empty(0, np.int64)] * len(self.legs)
        partials = [*folded, *joined] or [partial(grouping, self._beside(nothing, names).whole())]
        return finish(grouping, merge(partials))

    @property
    def _is_foldable(self) -> bool:
        """Whether one interval of time decides which stored combinations count."""
        pairs = zip(self._composed, self.plan.mark.highs, strict=True)
        all_known = all(
            rows.choice.region.lo == 0 and rows.choice.region.hi >= high for rows, high in pairs
        )
        return all_known and self._has_one_window

    @cached_property
    def _composed(self) -> list[LegRows]:
        """The legs in the order of the composite."""
        return [self.legs[place] for place in self.plan.places]

    def _reads(self, number: int, names: frozenset[str]) -> frozenset[str]:
        return side_reads(number, self.source.on, reads=names) | {"ts", "row_id"}

    @property
    def is_complete(self) -> bool:
        """Whether no row of a leg lies outside the box, so that nothing has to be joined."""
        return next(self._boxes(), None) is None

    # ---- what is stored

    def _stored(self, names: frozenset[str]) -> ItemRows:
        """Return the stored combinations that the windows hold and that are permitted."""
        if any(rows.choice.region.empty for rows in self.legs):
            nothing = [np.empty(0, np.int64)] * len(self.legs)
            return self._beside(nothing, names)
        kept = self._kept(names, MAX_KEPT_ROWS)
        if kept is None:
            return self._beside(self._stored_ids(), names)
        places = kept.places(self.legs, self.plan.stem.index.least, self.plan.mark.high)
        self.stored_count += len(places)
        self.combining.room.take(round(kept.row_bytes * len(places)))
        return kept.take(places, names)

    def _kept(self, names: frozenset[str], most: int) -> KeptRows | None:
        """Return all stored combinations that the predicate matches, from the earliest begin of a
        window on; None if they are more than `most`, or more than fit the cache."""
        memo, matcher = self.memo, self.matcher
        if memo is None or not isinstance(matcher, CombinationMatcher):
            return None
        most = min(most, memo.limit // _KEPT_SHARE // _KEPT_ROW_BYTES)
        key = "kept", self.plan.composite_id, self.plan.predicate_id, self.plan.places, names
        stem, high, begin = self.plan.stem, self.plan.mark.high, self._begin
        stems = stem.stem, *(rows.leg.stem.stem for rows in self.legs)
        cached = memo.get(key)
        kept = cached if isinstance(cached, KeptRows) else None
        if kept is None or not kept.is_usable(stems, stem.index.least, begin):
            kept = KeptRows.nothing(stems, stem.index.least, begin)
        if kept.rows is not None and kept.stop >= high:
            return kept if len(kept.ids) <= most else None
        kept = kept.trimmed(stem.index.least, begin)
        # From the begin of all that is kept, which may be before that of this answer's windows.
        ids = matcher.found(stem, kept.begin, kept.stop, high, most - len(kept.ids))
        if ids is None:
            return None
        kept = kept.extended(high, *self._gathered(ids, names))
        memo.put(key, kept, kept.nbytes)
        return kept

    def _gathered(self, ids: Int64s, names: frozenset[str]) -> tuple[Int64s, ItemRows]:
        """Return the combinations with these ascending ids that still have all their rows: their
        ids and, with the columns of these names and the ts of each leg, their rows."""
        picked = pick_rows(self.plan.stem, ids, [*map(combination_part, range(len(self.legs)))])
        composed = [
            np.concatenate([ids[:0], *(part_ids(part, number)[at] for part, at in picked)])
            for number in range(len(self.legs))
        ]
        ids = np.concatenate([ids[:0], *(part.ids[at] for part, at in picked)])
        with_ts = names | {item_column(number, "ts") for number in range(len(self.legs))}
        items, places, alive = self._items(composed, with_ts, whole_blocks=False)
        chosen = [leg_places[alive] for leg_places in places]
        return ids[alive], self.combining.beside(items, chosen, with_ts)

    @cached_property
    def _begin(self) -> int | None:
        """An instant that no combination in the windows is before; None if there is none."""
        # The ts of a combination is the least of its rows' ts, so it may be before the begin of
        # some window, but not of all.
        begins = [rows.choice.region.begin for rows in self.legs]
        known = [begin for begin in begins if begin is not None]
        return min(known) if len(known) == len(begins) else None

    def _beside(self, composed: Sequence[Int64s], names: frozenset[str]) -> ItemRows:
        """Return the combinations of rows with these ids, which are in the order of the
        composite."""
        items, places, alive = self._items(composed, names, whole_blocks=True)
        self.stored_count += int(alive.sum())
        return self.combining.beside(items, [leg_places[alive] for leg_places in places], names)

    def _items(
        self, composed: Sequence[Int64s], names: frozenset[str], whole_blocks: bool
    ) -> tuple[list[LegItem], list[Int64s], Mask]:
        """Return the rows of each leg of FROM with these ids, which are in the order of the
        composite; the places of the combinations' rows among them; and a mask of combinations, true
        if every leg still has its row."""
        items, places = list[LegItem](), list[Int64s]()
        for number, leg_rows in enumerate(self.legs):
            chosen = composed[self.plan.places.index(number)]
            leg, reads = leg_rows.leg, side_reads(number, reads=names) | {"ts", "row_id"}
            rows = PartRows.of(leg, chosen) if whole_blocks else PartRows.pick(leg, chosen, reads)
            items.append(LegItem(PickedRows(leg_rows, rows.picked, reads), reads))
            places.append(rows.places(chosen))
        return items, places, np.minimum.reduce(places) >= 0

    def _stored_ids(self) -> list[Int64s]:
        """Return the row ids of each leg, in the order of the composite, of the combinations that
        the windows hold."""
        regions = [rows.choice.region for rows in self._composed]
        pieces = [[np.empty(0, np.int64)] for _ in regions]
        if not any(region.empty for region in regions):
            # The ts of a combination is the least of its rows' ts, so it is before all ends.
            end = min(region.end for region in regions)
            for part in self.plan.stem.probe(self._begin, end, self.plan.mark.high):
                for number, ids in enumerate(self._ids(part)):
                    pieces[number].append(ids)
        return [np.concatenate(leg_pieces) for leg_pieces in pieces]

    def _ids(self, part: Part, among: Int64s | None = None) -> list[Int64s]:
        """Return the row ids of each leg, in the order of the composite, of the combinations of a
        part that the windows hold; only of the places `among`, which must ascend, if given."""
        places = part.find(self.matcher.match(part, part.first, part.stop))
        if among is not None and len(among) < len(part.ids):
            places = np.intersect1d(places, among, assume_unique=True)
        places = self._permitted(part, places[self._in_windows(part, places)])
        return [part_ids(part, number)[places] for number in range(len(self.legs))]

    def _permitted(self, part: Part, places: Int64s) -> Int64s:
        """Return the places, of some combinations of a part, all of whose rows are permitted."""
        for number, rows in enumerate(self._composed):
            if (permitted := rows.matcher.permitted) is not None:
                ids = part_ids(part, number)[places]
                permitted_ids = permitted_among(permitted, rows.leg.stem, distinct(ids))
                places = places[member(ids, permitted_ids)]
        return places

    def _in_windows(self, part: Part, places: Int64s) -> Mask:
        """Return a mask of some combinations of a part: true if each leg's window holds its row."""
        legs = self._composed
        mask = np.ones(len(places), np.bool_)
        for number, rows in enumerate(legs):
            # Ids are compared first: the combinations have them, so no row of a leg is read.
            region, ids = rows.choice.region, part_ids(part, number)[places]
            mask &= (ids >= region.lo) & (ids < region.hi)
            if rows.choice.ids is not None:
                mask &= member(ids, rows.choice.ids)
        for number, rows in enumerate(legs):
            if rows.choice.ids is None:
                sure = _all_inside(part, places, rows.choice.region)
                if self._has_one_window:
                    return mask & sure
                # Only the rows of these have to be read for their ts.
                unsure = np.flatnonzero(mask & ~sure)
                mask[unsure] = _in_region(rows, part_ids(part, number)[places[unsure]])
        return mask

    @cached_property
    def _has_one_window(self) -> bool:
        """Whether all legs have one interval of time, so that the first and the last ts of a
        combination decide for all its rows."""
        regions = [rows.choice.region for rows in self.legs]
        same = len({(region.since, region.until) for region in regions}) == 1
        timed = all(rows.choice.ids is None for rows in self.legs)
        return same and timed and regions[0].instants_only

    # ---- what is not

    def _boxes(self) -> Iterator[list[tuple[LegRows, Picked]]]:
        """Yield what is not stored as disjoint boxes: the rows of every leg, in the order of the
        query."""
        since, highs = self.plan.mark.since, self.plan.mark.highs
        assert since is not None, "a plan has a composite with a box"
        # By leg of the composite: `inside` has the ids `[low, high)` of the stored box. `outside`
        # has what lies beyond it as (leg, low, high), for the first leg on both sides.
        inside = [(since, highs[0]), *((0, high) for high in highs[1:])]
        outside = [(0, 0, since), *((number, high, None) for number, high in enumerate(highs))]
        for number, low, high in outside:
            picked = self._picked(number, low, high)
            if not any(len(places) for _, places in picked[1]):
                continue
            box = [self._picked(before, *inside[before]) for before in range(number)]
            box += [
                picked,
                *(self._picked(later, 0, None) for later in range(number + 1, len(highs))),
            ]
            yield [box[self.plan.places.index(place)] for place in range(len(highs))]

    def _picked(self, number: int, low: int, high: int | None) -> tuple[LegRows, Picked]:
        """Return the rows of a leg of the composite with ids in `[low, high)`."""
        rows = self.legs[self.plan.places[number]]
        region, ids = rows.choice.region, rows.choice.ids
        top = region.hi if high is None else min(high, region.hi)
        region = replace(region, lo=max(low, region.lo), hi=top)
        if ids is not None:
            ids = ids[slice(*np.searchsorted(ids, [region.lo, region.hi]))]
        narrow = replace(rows, choice=Choice(region, ids))
        return narrow, narrow.picked()


def _all_inside(part: Part, places: Int64s, region: Region) -> Mask:
    """Return a mask of combinations: true if the first and the last of their rows, and so all of
    them, are within the instants of a region."""
    inside = np.asarray(part.numbers("_until")[places] < region.until[0])
    if region.since is not None:
        # A `since` with a row id splits the rows of its instant: only later instants are sure.
        inside &= part.ts[places] >= region.since[0] + (region.since[1] > 0)
    return inside


def _in_region(rows: LegRows, ids: Int64s) -> Mask:
    """Return a mask of rows of a leg, by id: true if the region of its window holds them."""
    part_rows = PartRows.of(rows.leg, ids)
    # The place of a row that is gone is −1, which is the appended False.
    mask = np.append(rows.choice.region.holds(part_rows.instants(), part_rows.ids), False)
    return np.asarray(mask[part_rows.places(ids)])
