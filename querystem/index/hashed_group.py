"""A group: all hashed predicates that fix the same operands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from datastem.types import Kind
from querystem.expressions import Expression
from querystem.index.batch import EVERYTHING, ProbeBatch, interval_of
from querystem.index.combinations import column_of
from querystem.index.formula import Formula, Member, every, some
from querystem.index.hashed_search import CodedRows, ResidualConditions, search
from querystem.index.hashed_segment import (
    NO_RESIDUAL,
    Entries,
    FixedConjunction,
    HashedSegment,
    join_entries,
)
from querystem.index.matches import RowLists


def _formulas_of(
    entries: Entries, fixed: tuple[Expression, ...], residuals: ResidualConditions
) -> Iterator[tuple[int, Formula]]:
    """Each predicate of some entries, and its formula."""
    found: dict[int, list[Formula]] = {}
    for place, id_ in enumerate(entries.ids.tolist()):
        found.setdefault(id_, []).append(_formula(entries, place, fixed, residuals))
    for id_, parts in found.items():
        yield id_, some(parts)


def _formula(
    entries: Entries, place: int, fixed: tuple[Expression, ...], residuals: ResidualConditions
) -> Formula:
    parts: list[Formula] = []
    for operand, column in zip(fixed, entries.fixed, strict=True):
        if operand.type.kind is Kind.TEXT:
            parts.append(Member(operand, column[place].as_py()))
        else:
            parts.append(interval_of(operand, int(column[place]), int(column[place])))
    for operand, (lo, hi) in entries.ranges.items():
        bounds = int(lo[place]), int(hi[place])
        if bounds != EVERYTHING:
            parts.append(interval_of(operand, *bounds))
    if entries.residual[place] != NO_RESIDUAL:
        parts.append(residuals.formula(int(entries.residual[place])))
    return every(parts)


# A segment is merged into the one before it unless that is so many times as large.
_APART = 4


class HashedGroup:
    """The predicates in segments; new ones wait until the next probe, which makes a segment of
    them."""

    def __init__(self, fixed: tuple[Expression, ...]) -> None:
        self.fixed = fixed
        self._residuals = ResidualConditions()
        self._waiting: dict[int, FixedConjunction] = {}
        self._segments: list[HashedSegment] = []

    def __len__(self) -> int:
        return len(self._waiting) + sum(segment.live for segment in self._segments)

    def __contains__(self, id_: int) -> bool:
        return id_ in self._waiting or any(len(each.find(id_)) for each in self._segments)

    def insert(self, id_: int, conjunction: FixedConjunction) -> None:
        """Inserts a predicate, whose id must not be here."""
        self._waiting[id_] = conjunction

    def insert_many(self, entries: Entries) -> None:
        """Inserts many predicates; no id may be here, and no entry may have a residual."""
        self._settle()
        if len(entries):
            self._append(entries)

    def remove(self, id_: int) -> bool:
        """Removes a predicate, and says whether it was here."""
        if self._waiting.pop(id_, None) is not None:
            return True
        for place, segment in enumerate(self._segments):
            slots = segment.find(id_)
            if len(slots):
                for number in segment.residual[slots].tolist():
                    self._residuals.release(number)
                segment.remove(slots)
                self._shrink(place)
                return True
        return False

    def probe(self, batch: ProbeBatch) -> Iterator[RowLists]:
        self._settle()
        rows = CodedRows(batch, self.fixed)
        for segment in self._segments:
            yield from search(segment, rows, self._residuals)

    def formulas(self) -> Iterator[tuple[int, Formula]]:
        """Every predicate of the group, and its formula."""
        self._settle()
        for segment in self._segments:
            yield from _formulas_of(segment.entries(), self.fixed, self._residuals)

    def _settle(self) -> None:
        if self._waiting:
            self._append(self._entries(self._waiting))
            self._waiting = {}

    def _append(self, entries: Entries) -> None:
        self._segments.append(HashedSegment(entries))
        while len(self._segments) > 1 and (
            self._segments[-2].live < _APART * self._segments[-1].live
        ):
            last, before = self._segments.pop(), self._segments.pop()
            self._segments.append(HashedSegment(join_entries([before.entries(), last.entries()])))

    def _shrink(self, place: int) -> None:
        segment = self._segments[place]
        if not segment.live:
            del self._segments[place]
        elif segment.live < len(segment.ids) // 2:
            self._segments[place] = HashedSegment(segment.entries())

    def _entries(self, conjunctions: dict[int, FixedConjunction]) -> Entries:
        ids, residual, values, sources = [], [], [], []
        for id_, conjunction in conjunctions.items():
            for combination in conjunction.combinations(self.fixed):
                ids.append(id_)
                residual.append(self._residuals.acquire(conjunction.residual))
                values.append(combination)
                sources.append(conjunction.ranges)
        columns = [
            column_of(list(column), operand.type)
            for operand, column in zip(self.fixed, zip(*values, strict=True), strict=True)
        ]
        ranges = {}
        for operand in dict.fromkeys(operand for source in sources for operand in source):
            bounds = np.array([source.get(operand, EVERYTHING) for source in sources], np.int64)
            ranges[operand] = bounds[:, 0].copy(), bounds[:, 1].copy()
        return Entries(np.array(ids, np.int64), columns, ranges, np.array(residual, np.int32))

    def _check(self) -> None:
        users: Counter[int] = Counter()
        seen: set[int] = set(self._waiting)
        for segment in self._segments:
            segment._check()
            left = segment.entries()
            users.update(number for number in left.residual.tolist() if number >= 0)
            assert seen.isdisjoint(left.ids.tolist())
            seen.update(left.ids.tolist())
        self._residuals._check(dict(users))
