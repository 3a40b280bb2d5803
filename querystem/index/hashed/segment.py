"""Predicates with the same fixed operands, as columns.

A segment is built once and only loses predicates. New ones come in new segments, and segments are
merged as they become alike in size, so that a change costs what it changes and now and then a
merge: each predicate is moved a number of times that follows the logarithm of their count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s
from querystem.expressions import Expression
from querystem.index.hashed.codes import Combinations
from querystem.index.hashed.columns import Column, concat, take
from querystem.index.keys import EVERYTHING

Range = tuple[Int64s, Int64s]
NO_REST = -1


@dataclass(frozen=True, slots=True)
class Entries:
    """A row for each predicate and combination of its values; equal ids stand together.

    `fixed` has a column for each fixed operand, `ranges` the least and the greatest key, `rest`
    a number of the rests or `NO_REST`.
    """

    ids: Int64s
    fixed: list[Column]
    ranges: dict[Expression, Range]
    rest: Int64s

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, places: Int64s) -> Entries:
        return Entries(
            self.ids[places],
            [take(column, places) for column in self.fixed],
            {operand: (lo[places], hi[places]) for operand, (lo, hi) in self.ranges.items()},
            self.rest[places],
        )


def join(parts: Sequence[Entries]) -> Entries:
    operands = dict.fromkeys(operand for part in parts for operand in part.ranges)
    return Entries(
        np.concatenate([part.ids for part in parts]),
        [concat(columns) for columns in zip(*[part.fixed for part in parts], strict=True)],
        {operand: _join_range(parts, operand) for operand in operands},
        np.concatenate([part.rest for part in parts]),
    )


def _join_range(parts: Sequence[Entries], operand: Expression) -> Range:
    sides = [part.ranges.get(operand) or _unbounded(len(part)) for part in parts]
    return np.concatenate([lo for lo, _ in sides]), np.concatenate([hi for _, hi in sides])


def _unbounded(count: int) -> Range:
    return np.full(count, EVERYTHING[0]), np.full(count, EVERYTHING[1])


class Segment:
    """A slot is an entry; slots ascend by predicate.

    `slots[begins[c]:begins[c + 1]]` are those of combination c. `live` predicates are left.
    """

    def __init__(self, entries: Entries) -> None:
        entries = entries.take(np.argsort(entries.ids, kind="stable"))
        self.ids, self.rest = entries.ids, entries.rest
        self.ranges = entries.ranges
        self.combinations, places = Combinations.of(entries.fixed)
        self.place = places.astype(np.int32)
        self.slots = np.argsort(self.place, kind="stable").astype(np.int32)
        counts = np.bincount(self.place, minlength=len(self.combinations))
        self.begins = np.append(0, np.cumsum(counts))
        self.has_rest = bool((self.rest != NO_REST).any())
        self.repeats = bool((self.ids[1:] == self.ids[:-1]).any())
        self.has_dead = False
        self.dead = np.zeros(len(self.ids), np.bool_)
        self.live = len(np.unique(self.ids)) if self.repeats else len(self.ids)

    def find(self, id_: int) -> Int64s:
        """The slots of a predicate; none where it is not here."""
        first, last = np.searchsorted(self.ids, [id_, id_ + 1])
        slots = np.arange(first, last)
        return slots[~self.dead[slots]]

    def remove(self, slots: Int64s) -> None:
        """All slots of one predicate."""
        self.dead[slots] = True
        self.live -= 1
        self.has_dead = True

    def entries(self) -> Entries:
        """Those that are left."""
        whole = Entries(
            self.ids,
            [take(column, self.place) for column in self.combinations.columns],
            self.ranges,
            self.rest,
        )
        return whole.take(np.flatnonzero(~self.dead)) if self.has_dead else whole

    def _check(self) -> None:
        self.combinations._check()
        assert (np.diff(self.ids) >= 0).all()
        assert self.live == len(np.unique(self.ids[~self.dead])) > 0
        assert (np.sort(self.slots) == np.arange(len(self.ids))).all()
        for place, slot in enumerate(self.slots):
            assert self.begins[self.place[slot]] <= place < self.begins[self.place[slot] + 1]
