"""Predicates that consist of a single LIKE, found without lines of bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s, Mask
from querystem.index.batch import ProbeBatch
from querystem.index.like.axis import LikeAxis
from querystem.index.like.byte_slices import expand
from querystem.index.matches import RowLists

# Fewer predicates than this are matched as others are, by bitmaps.
_MIN_ROOTS = 64
_LOW = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class LikeRoots:
    """Predicates that hold if the operand of `axis` matches a pattern. The pattern at place p has
    the predicates `ids[numbers[begins[p]:begins[p + 1]]]`; `ids` ascend."""

    axis: LikeAxis
    ids: Int64s
    begins: Int64s
    numbers: Int64s

    @classmethod
    def of(cls, axis: LikeAxis, ids: Int64s, nodes: Int64s) -> tuple[LikeRoots | None, Mask]:
        """Return the predicates among these, with their nodes, that are on the axis, or None if
        they are few; and a mask of them."""
        first = int(axis.nodes[0])
        # The nodes of an axis are consecutive.
        is_root = (nodes >= first) & (nodes < first + len(axis.nodes))
        is_root[is_root] = axis.is_match[nodes[is_root] - first]
        if is_root.sum() < _MIN_ROOTS:
            return None, np.zeros(len(ids), np.bool_)
        places = axis.places[nodes[is_root] - first]
        counts = np.bincount(places, minlength=len(axis.patterns))
        begins = np.append(0, np.cumsum(counts))
        return cls(axis, ids[is_root], begins, np.argsort(places, kind="stable")), is_root

    def probe(self, batch: ProbeBatch) -> RowLists | None:
        """Return the matches with a batch that has rows; None if they are too many for lists."""
        pairs = self.axis.pairs(batch)
        if pairs is None:
            return None
        rows, places = pairs
        begins = self.begins[places]
        matches, entries = expand(begins, self.begins[places + 1] - begins)
        # Both the number of a predicate and that of a row are below 2^32.
        packed = np.sort(self.numbers[entries] << 32 | rows[matches])
        numbers = packed >> 32
        firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
        counts = np.diff(firsts, append=len(numbers))
        matching_rows = ((packed & _LOW) + batch.first).astype(np.uint32)
        return RowLists(self.ids[numbers[firsts]], counts, matching_rows)
