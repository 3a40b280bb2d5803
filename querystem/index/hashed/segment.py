"""Segments: many predicates as columns, found by the key that each asks for.

A segment is built once and only loses predicates. New hashed predicates come in new segments, which
are merged as they become alike in size: so each predicate is moved a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Array, Int64s
from querystem.expressions import Expression
from querystem.index.formula import Formula
from querystem.index.formula_text import read_formula
from querystem.index.hashed.coded_texts import NO_TEXT, CodedTexts
from querystem.index.hashed.combinations import Combinations, take
from querystem.index.hashed.conjunction import LikeKey
from querystem.index.hashed.entries import Entries
from querystem.index.hashed.ladders import KeyRange, Ladder, ladders_of
from querystem.index.like.pairs import PairMatcher
from querystem.index.structures import Runs


@dataclass(frozen=True, slots=True)
class EntryChecks:
    """What entries ask for besides their key: `ranges`, `likes` and `residuals` of `Entries`."""

    ranges: Mapping[Expression, KeyRange]
    likes: Mapping[LikeKey, CodedTexts]
    residuals: CodedTexts


class Segment:
    """Entries by the place of their key; a slot is the place of an entry.

    Entries ascend by predicate, and each is in one of the `ladders`. Two entries of one predicate
    must not have keys that one row can have. `live` is the number of predicates that were not
    removed; the others' slots are `dead`.
    """

    def __init__(
        self, ids: Int64s, place: Array, checks: EntryChecks, ladders: Sequence[Ladder]
    ) -> None:
        """Take entries that ascend by predicate: entry i has the key at `place[i]`."""
        self.ids, self.place, self.checks, self.ladders = ids, place, checks, ladders
        self._formulas: dict[int, Formula] = {}
        self._matchers: dict[LikeKey, PairMatcher] = {}
        is_next = ids[1:] != ids[:-1]
        self.repeats = not is_next.all()
        # The number of the predicate of each slot, and the predicate of each number.
        self._numbers = np.append(0, np.cumsum(is_next)) if self.repeats else None
        self.predicate_ids = ids[np.append(True, is_next)] if self.repeats else ids
        self.has_dead = False
        self.dead = np.zeros(len(self.ids), np.bool_)
        self.live = len(self.predicate_ids)

    @classmethod
    def of_places(cls, entries: Entries, place: Array, key_count: int) -> Segment:
        """Return a segment of entries that ascend by predicate."""
        likes = {key: patterns.compact() for key, patterns in entries.likes.items()}
        checks = EntryChecks(entries.ranges, likes, entries.residuals.compact())
        return cls(entries.ids, place, checks, ladders_of(place, entries.ranges, key_count))

    @property
    def has_conditions(self) -> bool:
        """Whether an entry asks for more than its key and ranges."""
        return bool(self.checks.likes) or len(self.checks.residuals.texts) > 0

    def residual(self, code: int) -> Formula:
        """Return a residual condition, which is read at its first use."""
        if code not in self._formulas:
            self._formulas[code] = read_formula(self.checks.residuals.texts[code].as_py())
        return self._formulas[code]

    def matcher(self, key: LikeKey) -> PairMatcher:
        """Return the matcher of the patterns of `likes`, which is made at its first use."""
        if key not in self._matchers:
            self._matchers[key] = PairMatcher.of(self.checks.likes[key].texts)
        return self._matchers[key]

    def entry_count(self, places: Int64s) -> int:
        """Return how many entries have these keys, whatever else they ask for."""
        begins = [ladder.begins for ladder in self.ladders]
        return sum(int((edges.take(places + 1) - edges.take(places)).sum()) for edges in begins)

    def numbers(self, slots: Array) -> Array:
        """Return numbers for the predicates of slots, which ascend as the predicates do."""
        return slots if self._numbers is None else self._numbers.take(slots)

    def ids_of(self, numbers: Array) -> Int64s:
        """Return the predicates with these numbers."""
        return self.predicate_ids.take(numbers)

    def find(self, id_: int) -> Int64s:
        """Return the slots of a predicate, none if it is not here."""
        first, last = np.searchsorted(self.ids, [id_, id_ + 1])
        slots = np.arange(first, last)
        return slots[~self.dead[slots]]

    def runs(self, slot: int) -> Runs:
        """Return how the entries of one key are kept beside the entry of a slot."""
        ladder = next(ladder for ladder in self.ladders if slot in ladder.slots)
        codes = [self.checks.residuals, *self.checks.likes.values()]
        is_checked = bool(ladder.others) or any(texts.codes[slot] != NO_TEXT for texts in codes)
        return Runs(None if ladder.side is None else ladder.side.operand, is_checked)

    def remove(self, slots: Int64s) -> None:
        """Remove a predicate, given all its slots."""
        self.dead[slots] = True
        self.live -= 1
        self.has_dead = True

    def _check(self) -> None:
        assert (np.diff(self.ids) >= 0).all()
        assert self.live == len(np.unique(self.ids[~self.dead]))
        slots = np.concatenate([ladder.slots for ladder in self.ladders])
        assert (np.sort(slots) == np.arange(len(self.ids))).all()
        for ladder in self.ladders:
            ladder._check(self.place)


class HashedSegment(Segment):
    """Entries that are looked up by their combination of values."""

    def __init__(
        self,
        ids: Int64s,
        combinations: Combinations,
        place: Array,
        checks: EntryChecks,
        ladders: Sequence[Ladder],
    ) -> None:
        super().__init__(ids, place, checks, ladders)
        self.combinations = combinations

    @classmethod
    def of(cls, entries: Entries) -> HashedSegment:
        """Return a segment of these entries."""
        entries = entries.take(np.argsort(entries.ids, kind="stable"))
        combinations, places = Combinations.of(entries.fixed)
        plain = Segment.of_places(entries, places.astype(np.int32), len(combinations))
        return cls(plain.ids, combinations, plain.place, plain.checks, plain.ladders)

    def entries(self) -> Entries:
        """Return the entries of the predicates that were not removed."""
        whole = Entries(
            self.ids,
            [take(column, self.place) for column in self.combinations.columns],
            dict(self.checks.ranges),
            dict(self.checks.likes),
            self.checks.residuals,
        )
        return whole.take(np.flatnonzero(~self.dead)) if self.has_dead else whole

    def _check(self) -> None:
        super()._check()
        self.combinations._check()
