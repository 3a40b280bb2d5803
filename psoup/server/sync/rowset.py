"""Sets of rows, as a copy of an answer has them: the rows of one mark that match.

A set is a few regions of (ts, row id), or ids. So the difference of two sets is told before any row
is looked at, and costs as much as it holds; and what a set comes to, its count and its digest, is
put together from summaries of runs of rows, so that only the edges of a window are counted anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import groupby

import numpy as np

from datastem.arrays import Int64s
from datastem.blocks import Part
from psoup.server.choosing import Choice
from psoup.server.folding import Fold
from psoup.server.invoke import Plan, Selection
from psoup.server.matcher import Matcher
from psoup.server.summaries import Summaries
from results.checksum import Digest
from results.id_sets import member

_NO_IDS = np.empty(0, np.int64)


@dataclass(frozen=True)
class Total:
    """How many rows, and the digest of their ids."""

    rows: int = 0
    digest: Digest = field(default_factory=Digest)
    nbytes: int = 200

    @classmethod
    def of(cls, ids: Int64s) -> Total:
        return cls(len(ids), Digest().add(ids.view(np.uint64)))

    def plus(self, other: Total) -> Total:
        return Total(self.rows + other.rows, self.digest.plus(other.digest))

    def minus(self, other: Total) -> Total:
        """The other's rows are among these."""
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

    plan: Plan
    matcher: Matcher
    choices: tuple[Choice, ...]

    def walk(self, low: int = 0) -> Iterator[tuple[Part, Int64s]]:
        """Where the rows with ids from `low` on stand, by ascending id."""
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
        """Ascending."""
        return np.concatenate([_NO_IDS, *(part.ids[places] for part, places in self.walk())])

    def minus(self, other: RowSet) -> RowSet:
        """What the other, of one choice, lacks."""
        (theirs,) = other.choices
        found = [left for choice in self.choices for left in _minus(choice, theirs)]
        return replace(self, choices=tuple(found))

    def total(self, summaries: Summaries) -> Total:
        totals = [self._total(choice, summaries) for choice in self.choices]
        return Total.together(totals)

    def _walk(self, choice: Choice, low: int) -> Iterator[tuple[Part, Int64s]]:
        ids = choice.ids
        left = None if ids is None else ids[np.searchsorted(ids, low) :]
        region = replace(choice.region, lo=max(choice.region.lo, low))
        selection = Selection(self.plan, self.matcher, Choice(region, left))
        for part in selection.parts():
            places = selection.places(part)
            if len(places):
                yield part, places

    def _total(self, choice: Choice, summaries: Summaries) -> Total:
        if choice.ids is not None:
            return Total.together([Total.of(p.ids[places]) for p, places in self._walk(choice, 0)])
        selection = Selection(self.plan, self.matcher, choice)

        def of(part: Part, places: Int64s) -> Total:
            return Total.of(part.ids[selection.places(part, places)])

        subject = ("rows", self.plan.predicate_id)
        fold = Fold(summaries, subject, self.plan.stem, choice.region, of, Total.together)
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
