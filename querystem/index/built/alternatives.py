"""Predicates that are found by a pattern, or by one of the parts of a disjunction.

They are nodes of a graph as well, which is cheaper for a batch with very many candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow.compute as pc

from datastem.arrays import Int64s, Mask
from querystem.expressions import Expression
from querystem.index.batch import ProbeBatch
from querystem.index.built.limits import most_pairs
from querystem.index.hashed.entries import Entries
from querystem.index.hashed.search import CodedRows, search_within
from querystem.index.hashed.segment import HashedSegment, Segment
from querystem.index.like.axis import LikeAxis
from querystem.index.matches import RowLists, RowSets
from querystem.index.regroup import regroup
from querystem.index.structures import AnyOf, HashTable, LookUp, PatternTable

# Fewer predicates than this are matched as others are, by bitmaps.
MIN_PREDICATES = 64


@dataclass(frozen=True, slots=True)
class EqualityAccess:
    """Predicates that are found by the values of the `fixed` operands."""

    fixed: tuple[Expression, ...]
    segment: HashedSegment

    def find(self, batch: ProbeBatch) -> tuple[Int64s, Int64s] | None:
        """Return rows, ascending, and the place of the key that each has."""
        return CodedRows(batch, self.fixed).find(self.segment)

    def structure(self, slot: int) -> HashTable:
        """Return how the predicate of a slot is found."""
        return HashTable(self.segment.live, self.fixed, self.segment.runs(slot))


@dataclass(frozen=True, slots=True)
class PatternAccess:
    """Predicates that are found by the patterns of an axis: a key is a pattern's place."""

    axis: LikeAxis
    segment: Segment

    @classmethod
    def of(cls, axis: LikeAxis, entries: Entries) -> PatternAccess:
        """Return the access of entries whose key is a pattern of the axis."""
        entries = entries.take(np.argsort(entries.ids, kind="stable"))
        places = pc.index_in(entries.fixed[0], value_set=axis.patterns.texts).to_numpy()
        return cls(axis, Segment.of_places(entries, places.astype(np.int32), len(axis.patterns)))

    def find(self, batch: ProbeBatch) -> tuple[Int64s, Int64s] | None:
        """Return rows, ascending, and the places of the patterns that they match; None if they are
        too many."""
        return self.axis.pairs(batch)

    def structure(self, slot: int) -> PatternTable:
        """Return how the predicate of a slot is found."""
        place = self.axis.patterns.anchor_place(int(self.segment.place[slot]))
        operands, runs = (self.axis.operand,), self.segment.runs(slot)
        return PatternTable(self.segment.live, operands, place, runs)


Access = EqualityAccess | PatternAccess


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Predicates `ids`, which ascend; what one of the accesses finds are their matches."""

    ids: Int64s
    accesses: Sequence[Access]

    @classmethod
    def of(cls, accesses: Sequence[Access]) -> Alternatives:
        """Return the predicates of accesses."""
        ids = reduce(np.union1d, [access.segment.ids for access in accesses])
        return cls(np.unique(ids), accesses)

    def probe(self, batch: ProbeBatch, chosen: Mask | None) -> list[RowSets] | None:
        """Return the matches with a batch that has rows, at least those of the chosen predicates
        (None: all); None if bitmaps are cheaper."""
        remaining = most_pairs(len(self.ids), batch.length)
        lists: list[RowSets] = []
        for access in self.accesses:
            keys = access.find(batch)
            matches = None
            if keys is not None:
                matches = search_within(access.segment, batch, *keys, remaining)
            if matches is None:
                return None
            lists += matches
            remaining -= sum(int(part.counts.sum()) for part in matches)
        if len(self.accesses) == 1 or not lists:
            return lists
        return [united([part.lists() for part in lists])]

    def structure(self, predicate_id: int) -> LookUp | AnyOf:
        """Return how a predicate is found."""
        places = ((access, access.segment.find(predicate_id)) for access in self.accesses)
        parts = [access.structure(int(slots[0])) for access, slots in places if len(slots)]
        return parts[0] if len(parts) == 1 else AnyOf(len(self.ids), parts)

    def remove(self, predicate_id: int) -> None:
        """Remove a predicate, if it is here."""
        for access in self.accesses:
            slots = access.segment.find(predicate_id)
            if len(slots):
                access.segment.remove(slots)

    def _check(self) -> None:
        assert (np.diff(self.ids) > 0).all()
        for access in self.accesses:
            access.segment._check()
            assert np.isin(access.segment.ids, self.ids).all()


def united(parts: Sequence[RowLists]) -> RowLists:
    """Return the matches of lists in which a predicate may come several times, even with the same
    row."""
    # The ids of predicates may be large, so numbers stand for them.
    ids, numbers = np.unique(np.concatenate([part.ids for part in parts]), return_inverse=True)
    pair_numbers = numbers.repeat(np.concatenate([part.counts for part in parts]))
    # Sorted by row, then by predicate, equal pairs are next to each other.
    by_row = regroup(np.concatenate([part.rows for part in parts]), pair_numbers)
    grouped = regroup(by_row.rows, by_row.numbers.repeat(by_row.counts))
    owners = grouped.numbers.repeat(grouped.counts)
    is_new = np.ones(len(owners), np.bool_)
    is_new[1:] = (owners[1:] != owners[:-1]) | (grouped.rows[1:] != grouped.rows[:-1])
    counts = np.bincount(owners[is_new], minlength=len(ids))
    return RowLists(ids, counts, grouped.rows[is_new].astype(np.uint32))
