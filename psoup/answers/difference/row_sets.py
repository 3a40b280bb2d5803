"""Sets of rows, as a copy of an answer has them: the rows of one mark that match.

A set is a few regions of (ts, row id), or ids. So the difference of two sets is told before any row
is looked at, and costs as much as it holds. The total of a set, its count and its digest, is put
together from totals of runs of rows, so that only the edges of a window are counted anew.

In a keyed stream a row stops being current only because another row of its key came. So the keys of
the new rows say all that came and went, and the total of the copy follows from its total before,
where that is remembered. Elsewhere all current rows are looked at.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import groupby

import numpy as np

from datastem.arrays import Int64s
from datastem.blocks import Part
from datastem.keyed_rows import KeyedRows
from psoup.answers.caches import Memo
from psoup.answers.matching.shown_rows import MatchSource
from psoup.answers.planning.plan import LegPlan
from psoup.answers.rows.folds import Fold
from psoup.answers.rows.leg_rows import LegRows
from psoup.answers.rows.windows import Choice
from results.checksum import Digest
from results.id_sets import common_ids, member
from results.region import Region

_NO_IDS = np.empty(0, np.int64)


@dataclass(frozen=True)
class Total:
    """A total tells how many rows there are, and the digest of their ids."""

    rows: int = 0
    digest: Digest = field(default_factory=Digest)
    nbytes: int = 200

    @classmethod
    def of(cls, ids: Int64s) -> Total:
        return cls(len(ids), Digest().add(ids.view(np.uint64)))

    def plus(self, other: Total) -> Total:
        return Total(self.rows + other.rows, self.digest.plus(other.digest))

    def minus(self, other: Total) -> Total:
        """The total without the rows of `other`, which are among these."""
        return Total(self.rows - other.rows, self.digest.minus(other.digest))

    @classmethod
    def together(cls, totals: Sequence[Total]) -> Total:
        found = cls()
        for total in totals:
            found = found.plus(total)
        return found


@dataclass(frozen=True)
class RowSet:
    """The matching rows of disjoint choices."""

    leg: LegPlan
    matcher: MatchSource
    memo: Memo
    choices: tuple[Choice, ...]

    def walk(self, low: int = 0) -> Iterator[tuple[Part, Int64s]]:
        """The places of the rows with ids from `low` on, part by part, by ascending id."""
        runs = [self._walk(choice, low) for choice in self.choices]
        if len(runs) == 1:
            yield from runs[0]
            return
        for _, same in groupby(merge(*runs, key=_first), key=_first):
            found = list(same)
            part = max((part for part, _ in found), key=lambda part: part.stop)
            yield part, np.sort(np.concatenate([places for _, places in found]))

    @property
    def ids(self) -> Int64s:
        """The ids of the rows, ascending."""
        return np.concatenate([_NO_IDS, *(part.ids[places] for part, places in self.walk())])

    def minus(self, other: RowSet) -> RowSet:
        """The rows that `other`, which has one choice, lacks."""
        (theirs,) = other.choices
        found = [left for choice in self.choices for left in _minus(choice, theirs)]
        return replace(self, choices=tuple(found))

    def common(self, other: RowSet) -> RowSet:
        """The rows that are in both sets, each of which has one choice."""
        (ours,), (theirs,) = self.choices, other.choices
        region = ours.region.common(theirs.region)
        if ours.ids is None or theirs.ids is None:
            return replace(self, choices=(Choice(region),))
        return replace(self, choices=(Choice(region, common_ids(ours.ids, theirs.ids)),))

    def total(self) -> Total:
        return Total.together([self._total(choice) for choice in self.choices])

    def _walk(self, choice: Choice, low: int) -> Iterator[tuple[Part, Int64s]]:
        ids = choice.ids
        left = None if ids is None else ids[np.searchsorted(ids, low) :]
        region = replace(choice.region, lo=max(choice.region.lo, low))
        rows = LegRows(self.leg, self.matcher, Choice(region, left))
        for part in rows.parts():
            places = rows.places(part)
            if len(places):
                yield part, places

    def _total(self, choice: Choice) -> Total:
        if choice.ids is not None:
            return Total.together([Total.of(p.ids[places]) for p, places in self._walk(choice, 0)])
        rows = LegRows(self.leg, self.matcher, choice)

        def of(part: Part, places: Int64s) -> Total:
            return Total.of(part.ids[rows.places(part, places)])

        subject = ("rows", self.leg.subject)
        fold = Fold(self.memo, subject, self.leg.stem, choice.region, of, Total.together)
        return Total.together(fold.values())


def _first(run: tuple[Part, Int64s]) -> int:
    return run[0].first


def _minus(choice: Choice, other: Choice) -> list[Choice]:
    if choice.region.empty or other.region.empty:
        return [] if choice.region.empty else [choice]
    if choice.ids is None or other.ids is None:
        assert choice.ids is other.ids, "both by id, or neither"
        return [Choice(region) for region in choice.region.minus(other.region)]
    ids = choice.ids[~member(choice.ids, other.ids)]
    return [replace(choice, ids=ids)] if len(ids) else []


# ---- keyed streams


@dataclass(frozen=True)
class KeptTotals:
    """The totals of the current matching rows of regions, each when nothing later was known."""

    memo: Memo
    subject: Hashable

    def find(self, region: Region) -> Total | None:
        found = self.memo.get(("current", self.subject, region))
        return found if isinstance(found, Total) else None

    def keep(self, region: Region, total: Total) -> None:
        self.memo.put(("current", self.subject, region), total, total.nbytes)


@dataclass(frozen=True)
class RowChange:
    """The rows a copy lacks, and the rows it has too many.

    `old` is the region of the copy, where the two sets are all there is between it and the target.
    """

    come: RowSet
    gone: RowSet
    old: Region | None

    def total(self, kept: KeptTotals) -> Total | None:
        """The total of the target, where that of the copy is remembered."""
        before = None if self.old is None else kept.find(self.old)
        if before is None:
            return None
        return before.plus(Total.of(self.come.ids)).minus(Total.of(self.gone.ids))


def keyed_change(
    leg: LegPlan,
    matcher: MatchSource,
    memo: Memo,
    regions: tuple[Region, Region],
    rows: tuple[KeyedRows, KeyedRows],
) -> RowChange:
    """The change between two regions of a keyed stream, the old one and the new one.

    `rows` are those that are no longer current, and those that newly are.
    """
    gone, come = (
        Choice(region, some.ids[region.holds(some.ts, some.ids)])
        for region, some in zip(regions, rows, strict=True)
    )
    return RowChange(
        RowSet(leg, matcher, memo, (come,)), RowSet(leg, matcher, memo, (gone,)), regions[0]
    )
