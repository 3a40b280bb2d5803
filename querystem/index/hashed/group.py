"""All hashed predicates that fix the same operands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from querystem.expressions import Expression
from querystem.index.batch import Batch
from querystem.index.formula import Formula
from querystem.index.hashed.columns import column_of
from querystem.index.hashed.formulas import formulas_of
from querystem.index.hashed.rests import Rests
from querystem.index.hashed.search import Rows, search
from querystem.index.hashed.segment import Entries, Segment, join
from querystem.index.hashed.split import Split
from querystem.index.keys import EVERYTHING
from querystem.index.matches import Lists

# A segment is merged into the one before it unless that is so many times as large.
_APART = 4


class Group:
    """New predicates wait until the next probe, which makes a segment of them."""

    def __init__(self, fixed: tuple[Expression, ...]) -> None:
        self.fixed = fixed
        self._rests = Rests()
        self._waiting: dict[int, Split] = {}
        self._segments: list[Segment] = []

    def __len__(self) -> int:
        return len(self._waiting) + sum(segment.live for segment in self._segments)

    def __contains__(self, id_: int) -> bool:
        return id_ in self._waiting or any(len(each.find(id_)) for each in self._segments)

    def insert(self, id_: int, split: Split) -> None:
        """The id must not be here."""
        self._waiting[id_] = split

    def insert_many(self, entries: Entries) -> None:
        """The ids must not be here, and none may have a rest."""
        self._settle()
        if len(entries):
            self._append(entries)

    def remove(self, id_: int) -> bool:
        """Whether it was here."""
        if self._waiting.pop(id_, None) is not None:
            return True
        for place, segment in enumerate(self._segments):
            slots = segment.find(id_)
            if len(slots):
                for number in segment.rest[slots].tolist():
                    self._rests.release(number)
                segment.remove(slots)
                self._shrink(place)
                return True
        return False

    def probe(self, batch: Batch) -> Iterator[Lists]:
        self._settle()
        rows = Rows(batch, self.fixed)
        for segment in self._segments:
            yield from search(segment, rows, self._rests)

    def formulas(self) -> Iterator[tuple[int, Formula]]:
        """Every predicate here."""
        self._settle()
        for segment in self._segments:
            yield from formulas_of(segment.entries(), self.fixed, self._rests)

    def _settle(self) -> None:
        if self._waiting:
            self._append(self._entries(self._waiting))
            self._waiting = {}

    def _append(self, entries: Entries) -> None:
        self._segments.append(Segment(entries))
        while len(self._segments) > 1 and (
            self._segments[-2].live < _APART * self._segments[-1].live
        ):
            last, before = self._segments.pop(), self._segments.pop()
            self._segments.append(Segment(join([before.entries(), last.entries()])))

    def _shrink(self, place: int) -> None:
        segment = self._segments[place]
        if not segment.live:
            del self._segments[place]
        elif segment.live < len(segment.ids) // 2:
            self._segments[place] = Segment(segment.entries())

    def _entries(self, splits: dict[int, Split]) -> Entries:
        ids, rest, values, sources = [], [], [], []
        for id_, split in splits.items():
            for combination in split.combinations(self.fixed):
                ids.append(id_)
                rest.append(self._rests.acquire(split.rest))
                values.append(combination)
                sources.append(split.ranges)
        columns = [
            column_of(list(column), operand.type)
            for operand, column in zip(self.fixed, zip(*values, strict=True), strict=True)
        ]
        ranges = {}
        for operand in dict.fromkeys(operand for source in sources for operand in source):
            bounds = np.array([source.get(operand, EVERYTHING) for source in sources], np.int64)
            ranges[operand] = bounds[:, 0].copy(), bounds[:, 1].copy()
        return Entries(np.array(ids, np.int64), columns, ranges, np.array(rest, np.int32))

    def _check(self) -> None:
        users: Counter[int] = Counter()
        seen: set[int] = set(self._waiting)
        for segment in self._segments:
            segment._check()
            left = segment.entries()
            users.update(number for number in left.rest.tolist() if number >= 0)
            assert seen.isdisjoint(left.ids.tolist())
            seen.update(left.ids.tolist())
        self._rests._check(dict(users))
