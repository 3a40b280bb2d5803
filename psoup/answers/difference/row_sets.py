"""Sets of rows, as a copy of an answer has them: the rows of one mark that match.

A set is a few regions of (ts, row id), or ids. So the difference of two sets is known before any
row is read, and costs as much as it holds. The total of a set, its count and its digest, is put
together from totals of runs of rows, so that only the edges of a window are counted again.

In a keyed stream a row stops being current only because another row of its stream key came. So the
stream keys of the new rows say what was added and removed. The total of the copy then follows from
its previous total, if that is cached. Otherwise all current rows are read.
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
from psoup.answers.matching.permitted_rows import MatchSource
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
    """The number of some rows, and the digest of their ids."""

    rows: int = 0
    digest: Digest = field(default_factory=Digest)
    nbytes: int = 200

    @classmethod
    def of(cls, ids: Int64s) -> Total:
        return cls(len(ids), Digest().add(ids.view(np.uint64)))

    def plus(self, addend: Total) -> Total:
        """Return the total of these rows and others, which are not among these."""
        return Total(self.rows + addend.rows, self.digest.plus(addend.digest))

    def minus(self, subtrahend: Total) -> Total:
        """Return the total without some rows, which are among these."""
        return Total(self.rows - subtrahend.rows, self.digest.minus(subtrahend.digest))

    @classmethod
    def sum_of(cls, totals: Sequence[Total]) -> Total:
        total = cls()
        for addend in totals:
            total = total.plus(addend)
        return total


@dataclass(frozen=True)
class RowSet:
    """The matching rows of disjoint choices."""

    leg: LegPlan
    matcher: MatchSource
    memo: Memo
    choices: tuple[Choice, ...]

    def walk(self, low: int = 0) -> Iterator[tuple[Part, Int64s]]:
        """Yield the places of the rows with ids from `low` on, part by part, by ascending id."""
        runs = [self._walk(choice, low) for choice in self.choices]
        if len(runs) == 1:
            yield from runs[0]
            return
        # Several choices may have rows of one part: their places are put together.
        for _, group in groupby(merge(*runs, key=_first), key=_first):
            pieces = list(group)
            # Choices with different highs have the same part cut off at different ids. The longest
            # one has the rows of all, at the same places.
            part = max((part for part, _ in pieces), key=lambda part: part.stop)
            yield part, np.sort(np.concatenate([places for _, places in pieces]))

    @property
    def ids(self) -> Int64s:
        """The ids of the rows, ascending."""
        return np.concatenate([_NO_IDS, *(part.ids[places] for part, places in self.walk())])

    def minus(self, subtrahend: RowSet) -> RowSet:
        """Return the rows that the subtrahend, which must have one choice, lacks."""
        (excluded,) = subtrahend.choices
        choices = [piece for choice in self.choices for piece in _minus(choice, excluded)]
        return replace(self, choices=tuple(choices))

    def common(self, rows: RowSet) -> RowSet:
        """Return the rows that are in both sets, each of which must have one choice."""
        (first,), (second,) = self.choices, rows.choices
        region = first.region.common(second.region)
        if first.ids is None or second.ids is None:
            return replace(self, choices=(Choice(region),))
        return replace(self, choices=(Choice(region, common_ids(first.ids, second.ids)),))

    def total(self) -> Total:
        return Total.sum_of([self._total(choice) for choice in self.choices])

    def _walk(self, choice: Choice, low: int) -> Iterator[tuple[Part, Int64s]]:
        ids = choice.ids
        remaining = None if ids is None else ids[np.searchsorted(ids, low) :]
        region = replace(choice.region, lo=max(choice.region.lo, low))
        rows = LegRows(self.leg, self.matcher, Choice(region, remaining))
        for part in rows.parts():
            places = rows.places(part)
            if len(places):
                yield part, places

    def _total(self, choice: Choice) -> Total:
        if choice.ids is not None:
            return Total.sum_of([Total.of(p.ids[places]) for p, places in self._walk(choice, 0)])
        rows = LegRows(self.leg, self.matcher, choice)

        def of(part: Part, places: Int64s) -> Total:
            return Total.of(part.ids[rows.places(part, places)])

        subject = ("rows", self.leg.subject)
        fold = Fold(self.memo, subject, self.leg.stem, choice.region, of, Total.sum_of)
        return Total.sum_of(fold.values())


def _first(run: tuple[Part, Int64s]) -> int:
    return run[0].first


def _minus(choice: Choice, excluded: Choice) -> list[Choice]:
    """Return the rows of a choice without those of another, as disjoint choices."""
    if choice.region.empty or excluded.region.empty:
        return [] if choice.region.empty else [choice]
    if choice.ids is None or excluded.ids is None:
        assert choice.ids is excluded.ids, "both by id, or neither"
        return [Choice(region) for region in choice.region.minus(excluded.region)]
    ids = choice.ids[~member(choice.ids, excluded.ids)]
    return [replace(choice, ids=ids)] if len(ids) else []


# ---- keyed streams


@dataclass(frozen=True)
class CachedTotals:
    """A cache of totals of matching rows by region; in a keyed stream of the current ones, each as
    of when nothing later was known."""

    memo: Memo
    subject: Hashable

    def find(self, region: Region) -> Total | None:
        cached = self.memo.get(("current", self.subject, region))
        return cached if isinstance(cached, Total) else None

    def insert(self, region: Region, total: Total) -> None:
        self.memo.put(("current", self.subject, region), total, total.nbytes)


@dataclass(frozen=True)
class RowChange:
    """The rows that a copy lacks, and those that it must remove, which together are all that
    differs between it and the target. `copy_region` is the region of the copy."""

    added: RowSet
    removed: RowSet
    copy_region: Region

    def total(self, totals: CachedTotals) -> Total | None:
        """Return the total of the target; None if that of the copy is not cached."""
        total = totals.find(self.copy_region)
        if total is None:
            return None
        return total.plus(Total.of(self.added.ids)).minus(Total.of(self.removed.ids))


def keyed_change(
    leg: LegPlan,
    matcher: MatchSource,
    memo: Memo,
    regions: tuple[Region, Region],
    rows: tuple[KeyedRows, KeyedRows],
) -> RowChange:
    """Return the change between two regions of a keyed stream, the old one and the new one.

    `rows` are those that are no longer current, and those that newly are.
    """
    removed, added = (
        Choice(region, keyed.ids[region.holds(keyed.ts, keyed.ids)])
        for region, keyed in zip(regions, rows, strict=True)
    )
    return RowChange(
        RowSet(leg, matcher, memo, (added,)), RowSet(leg, matcher, memo, (removed,)), regions[0]
    )
