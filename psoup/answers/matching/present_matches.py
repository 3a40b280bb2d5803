"""Matches that a condition on NOW leaves: of the rows that match a predicate, those for which the
condition is true at an instant, or will or may be at a later one.

The predicate is matched once. What depends on NOW is evaluated for matching rows, at each answer.
If many rows of a part match, the instants between which any row of it is visible are cached: then
later answers pass over parts all of whose rows have yet to begin, or are over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.blocks import Part
from datastem.codec import query_view
from psoup.answers.caches import Memo
from psoup.answers.matching.matcher import Work
from psoup.answers.matching.permitted_rows import MatchSource, PermittedRows
from querystem.expressions import Expression, at_instant, columns_of
from querystem.kernel import matches
from querystem.visibility import Visibility

# A part's span is computed from all its rows, so only if this share of them is looked at anyway.
_CACHED_SHARE = 0.25
_SPAN_BYTES = 500


@dataclass(frozen=True)
class PresentMatches:
    """The rows of `matcher` that `keeps` returns true for, given batches with the columns
    `reads`. Parts that `spans` excludes have none."""

    matcher: MatchSource
    reads: frozenset[str]
    keeps: Callable[[pa.RecordBatch], Mask]
    spans: PartSpans | None = None

    @property
    def work(self) -> Work:
        return self.matcher.work

    @property
    def permitted(self) -> PermittedRows | None:
        return self.matcher.permitted

    def match(self, part: Part, lo: int, hi: int) -> Int64s:
        if self.spans is not None and self.spans.excludes(part):
            return part.ids[:0]
        # Stored matches may have ids of rows that have left the part.
        places = part.find(self.matcher.match(part, lo, hi))
        if not len(places):
            return places
        read = {*self.reads, "_ts", "_row_id"}
        names = [name for name in part.rows.schema.names if name in read]
        rows = part.rows.select(names)
        if self.spans is not None and len(places) >= rows.num_rows * _CACHED_SHARE:
            self.spans.note(part, query_view(rows))
        if len(places) < rows.num_rows:
            rows = rows.take(pa.array(places))
        return part.ids[places[self.keeps(query_view(rows))]]

    def cached(self, part: Part, lo: int, hi: int) -> Int64s | None:
        """Return None: rows must be read to evaluate the condition."""
        return None

    def lacks(self, block: int, high: int) -> bool:
        return self.matcher.lacks(block, high)


@dataclass(frozen=True)
class PartSpans:
    """The instants between which any row of a part of a stream satisfies a condition on NOW, as far
    as they are cached in `memo`. Parts are compared with `now`; with `or_later` only those are
    excluded all of whose rows are over."""

    memo: Memo
    stream_id: int
    visibility: Visibility
    now: int
    or_later: bool = False

    def excludes(self, part: Part) -> bool:
        """Return True if it is known that no row of the part satisfies the condition at `now`."""
        span = self.memo.get(self._key(part))
        if not isinstance(span, _Span):
            return False
        return self.now >= span.end or (not self.or_later and self.now < span.first)

    def note(self, part: Part, rows: pa.RecordBatch) -> None:
        """Cache the span of a part, whose rows these are."""
        key = self._key(part)
        if self.memo.get(key) is None:
            self.memo.put(key, _Span(*self.visibility.span(rows)), _SPAN_BYTES)

    def _key(self, part: Part) -> tuple[object, ...]:
        # Rows of a part never change. Some may be removed: then the span is only too long.
        return "span", self.stream_id, part.first, part.stop, self.visibility


@dataclass(frozen=True, slots=True)
class _Span:
    first: int
    end: int


def matches_at(
    matcher: MatchSource, when: Expression, now: int | None, spans: PartSpans | None = None
) -> PresentMatches:
    """Return the matches for which a condition is true at an instant. `spans` may be those of a
    part of the condition."""
    present = at_instant(when, now)
    reads = frozenset(columns_of(when))
    return PresentMatches(matcher, reads, lambda rows: matches(present, rows), spans)


def remaining_matches(
    matcher: MatchSource, visibility: Visibility, now: int, spans: PartSpans | None = None
) -> PresentMatches:
    """Return the matches that are visible at an instant or may be later."""
    return PresentMatches(
        matcher, visibility.reads, lambda rows: visibility.remaining(rows, now), spans
    )
