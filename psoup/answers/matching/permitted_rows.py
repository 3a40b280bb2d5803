"""Matches of a query's predicate among the rows that policies permit the reader to see.

Rows that no policy permits are left out of the matches. So everything that is computed from matches
is computed without them: answers, copies, joins, refresh points.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
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
class PermittedRows:
    """The rows of a stream that at least one of the policies permits.

    `subject` names their conditions: with equal subjects, equal rows are permitted.
    """

    matchers: Sequence[MatchSource]
    subject: Hashable

    def match(self, part: Part, lo: int, hi: int) -> Int64s:
        """Return the permitted ids in `[lo, hi)` of a part."""
        return reduce(all_ids, (matcher.match(part, lo, hi) for matcher in self.matchers), _NO_IDS)

    def cached(self, part: Part, lo: int, hi: int) -> Int64s | None:
        """Return the ids that `match` gives; None if a file or a row must be read for them."""
        permitted = _NO_IDS
        for matcher in self.matchers:
            ids = matcher.cached(part, lo, hi)
            # A union without the matches of one policy would hide rows that it permits.
            if ids is None:
                return None
            permitted = all_ids(permitted, ids)
        return permitted

    def lacks(self, block: int, high: int) -> bool:
        """Return True if it is known, without reading rows, that no row of a block below `high` is
        permitted."""
        return all(matcher.lacks(block, high) for matcher in self.matchers)

    def places(self, part: Part, among: Int64s | None = None) -> Int64s:
        """Return the places of the permitted rows in a part; only of `among`, which must ascend, if
        given."""
        if among is None:
            return part.find(self.match(part, part.first, part.stop))
        if not len(among):
            return among
        ids = part.ids[among]
        permitted = part.find(self.match(part, int(ids[0]), int(ids[-1]) + 1))
        return np.intersect1d(among, permitted, assume_unique=True)


class MatchSource(Protocol):
    """A source of matches: a Matcher, one restricted to permitted rows, or one that measures
    another. `permitted` is None if all rows are."""

    @property
    def work(self) -> Work: ...

    @property
    def permitted(self) -> PermittedRows | None: ...

    def match(self, part: Part, lo: int, hi: int) -> Int64s: ...

    def cached(self, part: Part, lo: int, hi: int) -> Int64s | None: ...

    def lacks(self, block: int, high: int) -> bool: ...


@dataclass(frozen=True)
class PermittedMatches:
    """The matches of a predicate among the permitted rows."""

    matcher: Matcher
    permitted: PermittedRows

    @property
    def work(self) -> Work:
        return self.matcher.work

    def match(self, part: Part, lo: int, hi: int) -> Int64s:
        return common_ids(self.matcher.match(part, lo, hi), self.permitted.match(part, lo, hi))

    def cached(self, part: Part, lo: int, hi: int) -> Int64s | None:
        matches = self.matcher.cached(part, lo, hi)
        permitted = None if matches is None else self.permitted.cached(part, lo, hi)
        return None if matches is None or permitted is None else common_ids(matches, permitted)

    def lacks(self, block: int, high: int) -> bool:
        return self.matcher.lacks(block, high) or self.permitted.lacks(block, high)
