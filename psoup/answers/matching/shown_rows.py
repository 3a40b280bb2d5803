"""Matches of a query's predicate among the rows that policies show.

Rows that no policy shows are left out where matches are told, so that whatever is made of rows is
made without them: answers, copies, joins, refresh points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np

from datastem.arrays import Int64s
from datastem.blocks import Part
from psoup.answers.matching.matcher import Matcher, Work
from results.id_sets import all_ids, common_ids

_NO_IDS: Int64s = np.empty(0, np.int64)


@dataclass(frozen=True)
class ShownRows:
    """The rows of a stream that are shown: those that one of some predicates matches, none without
    any. `subject` names the predicates: under equal ones, equal rows are shown."""

    matchers: Sequence[Matcher]

    @property
    def subject(self) -> tuple[int, ...]:
        return tuple(sorted(matcher.predicate for matcher in self.matchers))

    def match(self, part: Part, lo: int, hi: int) -> Int64s:
        """The ids in `[lo, hi)` of a part that are shown."""
        return reduce(all_ids, (one.match(part, lo, hi) for one in self.matchers), _NO_IDS)

    def remembered(self, part: Part, lo: int, hi: int) -> Int64s | None:
        """The ids that `match` gives, where no file and no row has to be looked at; else None."""
        shown = _NO_IDS
        for matcher in self.matchers:
            found = matcher.remembered(part, lo, hi)
            if found is None:
                return None
            shown = all_ids(shown, found)
        return shown

    def lacks(self, block: int, high: int) -> bool:
        """Tells whether no row of a block below `high` is shown, if that can be said without its
        rows."""
        return all(matcher.lacks(block, high) for matcher in self.matchers)

    def places(self, part: Part, among: Int64s | None = None) -> Int64s:
        """The places in a part of the rows that are shown; of `among`, which ascend, if given."""
        if among is None:
            return part.find(self.match(part, part.first, part.stop))
        if not len(among):
            return among
        ids = part.ids[among]
        shown = part.find(self.match(part, int(ids[0]), int(ids[-1]) + 1))
        return np.intersect1d(among, shown, assume_unique=True)


class MatchSource(Protocol):
    """Whatever tells which rows match: a Matcher, one among the rows that are shown, or somebody
    who watches one. `shown` is None where all rows are."""

    @property
    def work(self) -> Work: ...

    @property
    def shown(self) -> ShownRows | None: ...

    def match(self, part: Part, lo: int, hi: int) -> Int64s: ...

    def remembered(self, part: Part, lo: int, hi: int) -> Int64s | None: ...

    def lacks(self, block: int, high: int) -> bool: ...


@dataclass(frozen=True)
class ShownMatches:
    """The matches of a predicate among the rows that are shown."""

    matcher: Matcher
    shown: ShownRows

    @property
    def work(self) -> Work:
        return self.matcher.work

    def match(self, part: Part, lo: int, hi: int) -> Int64s:
        return common_ids(self.matcher.match(part, lo, hi), self.shown.match(part, lo, hi))

    def remembered(self, part: Part, lo: int, hi: int) -> Int64s | None:
        found = self.matcher.remembered(part, lo, hi)
        shown = None if found is None else self.shown.remembered(part, lo, hi)
        return None if found is None or shown is None else common_ids(found, shown)

    def lacks(self, block: int, high: int) -> bool:
        return self.matcher.lacks(block, high) or self.shown.lacks(block, high)
