"""Matches that a condition on NOW leaves: of the rows that match a predicate, those for which the
condition is true at an instant, or will or may be at a later one.

The predicate is matched once. What depends on NOW is evaluated for matching rows, at each answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.blocks import Part
from datastem.codec import query_view
from psoup.answers.matching.matcher import Work
from psoup.answers.matching.permitted_rows import MatchSource, PermittedRows
from querystem.expressions import Expression, at_instant, columns_of
from querystem.kernel import matches
from querystem.visibility import Visibility


@dataclass(frozen=True)
class PresentMatches:
    """The rows of `matcher` that `keeps` returns true for, given batches with the columns
    `reads`."""

    matcher: MatchSource
    reads: frozenset[str]
    keeps: Callable[[pa.RecordBatch], Mask]

    @property
    def work(self) -> Work:
        return self.matcher.work

    @property
    def permitted(self) -> PermittedRows | None:
        return self.matcher.permitted

    def match(self, part: Part, lo: int, hi: int) -> Int64s:
        # Stored matches may have ids of rows that have left the part.
        places = part.find(self.matcher.match(part, lo, hi))
        if not len(places):
            return places
        read = {*self.reads, "_ts", "_row_id"}
        names = [name for name in part.rows.schema.names if name in read]
        rows = part.rows.select(names)
        if len(places) < rows.num_rows:
            rows = rows.take(pa.array(places))
        return part.ids[places[self.keeps(query_view(rows))]]

    def cached(self, part: Part, lo: int, hi: int) -> Int64s | None:
        """Return None: rows must be read to evaluate the condition."""
        return None

    def lacks(self, block: int, high: int) -> bool:
        return self.matcher.lacks(block, high)


def matches_at(matcher: MatchSource, when: Expression, now: int | None) -> PresentMatches:
    """Return the matches for which a condition is true at an instant."""
    present = at_instant(when, now)
    return PresentMatches(matcher, frozenset(columns_of(when)), lambda rows: matches(present, rows))


def remaining_matches(matcher: MatchSource, visibility: Visibility, now: int) -> PresentMatches:
    """Return the matches that are visible at an instant or may be later."""
    return PresentMatches(matcher, visibility.reads, lambda rows: visibility.remaining(rows, now))
