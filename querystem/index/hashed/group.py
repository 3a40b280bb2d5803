"""A group: all hashed predicates that fix the same operands."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from querystem.expressions import Expression
from querystem.index.batch import EVERYTHING, ProbeBatch
from querystem.index.hashed.coded_texts import CodedTexts
from querystem.index.hashed.combinations import column_of
from querystem.index.hashed.conjunction import FixedConjunction
from querystem.index.hashed.entries import Entries, join_entries
from querystem.index.hashed.search import CodedRows, search
from querystem.index.hashed.segment import HashedSegment
from querystem.index.matches import RowSets
from querystem.index.structures import HashTable

# A segment is merged into the previous one unless that is this many times as large.
_SEGMENT_SIZE_RATIO = 4


class HashedGroup:
    """The predicates in segments; new ones wait until the next probe, which makes a segment of
    them."""

    def __init__(self, fixed: tuple[Expression, ...]) -> None:
        self.fixed = fixed
        self._waiting: dict[int, FixedConjunction] = {}
        self._segments: list[HashedSegment] = []

    def __len__(self) -> int:
        return len(self._waiting) + sum(segment.live for segment in self._segments)

    def __contains__(self, id_: int) -> bool:
        return id_ in self._waiting or any(len(segment.find(id_)) for segment in self._segments)

    def insert(self, id_: int, conjunction: FixedConjunction) -> None:
        """Insert a predicate, whose id must not be here."""
        self._waiting[id_] = conjunction

    def insert_many(self, entries: Entries) -> None:
        """Insert many predicates, none of whose ids may be here."""
        waiting = [self._entries(self._waiting)] if self._waiting else []
        self._waiting = {}
        self._append(join_entries([entries, *waiting]))

    def remove(self, id_: int) -> bool:
        """Remove a predicate, and return whether it was here."""
        if self._waiting.pop(id_, None) is not None:
            return True
        for place, segment in enumerate(self._segments):
            slots = segment.find(id_)
            if len(slots):
                segment.remove(slots)
                self._shrink(place)
                return True
        return False

    def probe(self, batch: ProbeBatch) -> Iterator[RowSets]:
        """Yield the matches of the predicates; no predicate is in two of the lists."""
        self._settle()
        rows = CodedRows(batch, self.fixed)
        for segment in self._segments:
            yield from search(segment, batch, *rows.find(segment))

    def structure(self, id_: int) -> HashTable:
        """Return how a predicate of this group is found."""
        places = ((segment, segment.find(id_)) for segment in self.segments())
        runs = next(segment.runs(int(slots[0])) for segment, slots in places if len(slots))
        return HashTable(len(self), self.fixed, runs)

    def segments(self) -> list[HashedSegment]:
        """Return the segments, with all predicates."""
        self._settle()
        return self._segments

    def restore(self, segments: list[HashedSegment]) -> None:
        """Take the segments of a group that was stored; this one must be empty."""
        self._segments = segments

    def _settle(self) -> None:
        if self._waiting:
            self._append(self._entries(self._waiting))
            self._waiting = {}

    def _append(self, entries: Entries) -> None:
        self._segments.append(HashedSegment.of(entries))
        while len(self._segments) > 1 and (
            self._segments[-2].live < _SEGMENT_SIZE_RATIO * self._segments[-1].live
        ):
            last, previous = self._segments.pop(), self._segments.pop()
            joined = join_entries([previous.entries(), last.entries()])
            self._segments.append(HashedSegment.of(joined))

    def _shrink(self, place: int) -> None:
        segment = self._segments[place]
        if not segment.live:
            del self._segments[place]
        elif segment.live < len(segment.ids) // 2:
            self._segments[place] = HashedSegment.of(segment.entries())

    def _entries(self, conjunctions: dict[int, FixedConjunction]) -> Entries:
        ids, values, sources = [], [], []
        for id_, conjunction in conjunctions.items():
            for combination in conjunction.combinations(self.fixed):
                ids.append(id_)
                values.append(combination)
                sources.append(conjunction)
        columns = [
            column_of(list(column), operand.type)
            for operand, column in zip(self.fixed, zip(*values, strict=True), strict=True)
        ]
        ranges = {}
        for operand in dict.fromkeys(operand for source in sources for operand in source.ranges):
            bounds = [source.ranges.get(operand, EVERYTHING) for source in sources]
            table = np.array(bounds, np.int64)
            ranges[operand] = table[:, 0].copy(), table[:, 1].copy()
        likes = {
            key: CodedTexts.of(pa.array([source.likes.get(key) for source in sources], pa.string()))
            for key in dict.fromkeys(key for source in sources for key in source.likes)
        }
        residuals = pa.array([source.residual_text for source in sources], pa.string())
        return Entries(np.array(ids, np.int64), columns, ranges, likes, CodedTexts.of(residuals))

    def _check(self) -> None:
        checked_ids: set[int] = set(self._waiting)
        for segment in self._segments:
            segment._check()
            assert segment.live > 0
            live = segment.entries()
            assert checked_ids.isdisjoint(live.ids.tolist())
            checked_ids.update(live.ids.tolist())
