"""The predicates over a composite: which are live, what they admit, and what is stored for them.

A combination is stored if a predicate over the composite matches it. A query's predicate includes
the conditions on its legs, so rows that different queries admit are not combined without need.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from datastem.arrays import Int64s
from psoup.engine.composites.boxes import CompositeBox
from psoup.engine.composites.legs import LegPredicates
from psoup.engine.matching.predicates import Ranges
from psoup.store.composite_marks import CompositeMark
from querystem.expressions import TRUE, predicate_key

_TRUE_KEY = predicate_key(TRUE)


@dataclass(frozen=True)
class CompositePredicates:
    """The live predicates over a composite that are not in quarantine. `legs` has the columns
    (predicate, stream, local predicate), ascending by the first, with a row for each leg of a
    registration."""

    legs: Int64s
    quarantined: Collection[int]

    @classmethod
    def of(cls, box: CompositeBox) -> CompositePredicates:
        legs = box.ledger.joined_legs
        return cls(legs.of(box.id), legs.quarantined)

    @cached_property
    def live(self) -> Int64s:
        """The ids of all live predicates, ascending."""
        predicates = self.legs[0]
        distinct: Int64s = predicates[np.diff(predicates, prepend=-1) > 0]
        return distinct

    @cached_property
    def ids(self) -> Int64s:
        """The ids of those that are not in quarantine, ascending."""
        if not self.quarantined:
            return self.live
        return self.live[~np.isin(self.live, list(self.quarantined))]

    def pending(self, mark: CompositeMark) -> Int64s:
        """Return the predicates whose combinations are not all stored."""
        is_stored = np.zeros(len(self.ids), np.bool_)
        for low, high in mark.predicates:
            is_stored |= (self.ids >= low) & (self.ids < high)
        return self.ids[~is_stored]

    def admitted(self, legs: Sequence[int], admitted: LegPredicates) -> Int64s:
        """Return the predicates whose local predicates are all admitted, given the streams
        of the legs and the admitted predicates of each."""
        by_stream = dict(zip(legs, admitted, strict=True))
        predicates, streams, local = self.legs
        is_admitted = np.zeros(len(local), np.bool_)
        for stream, local_ids in by_stream.items():
            is_admitted |= (streams == stream) & np.isin(local, local_ids)
        return self.ids[~np.isin(self.ids, predicates[~is_admitted])]

    def ranges(self, predicate_ids: Int64s) -> Ranges:
        """Return few ranges that hold these predicates, and no others that are live."""
        inside = np.isin(self.live, predicate_ids)
        # A range begins after a predicate that is not inside, and ends before the next such one.
        edges = np.flatnonzero(np.diff(np.concatenate([[False], inside, [False]])))
        firsts, lasts = self.live[edges[::2]], self.live[edges[1::2] - 1]
        return tuple(zip(firsts.tolist(), (lasts + 1).tolist(), strict=True))

    def local(self, predicate_ids: Int64s, stream: int) -> tuple[int, ...]:
        """Return the local predicates of a stream that some of the predicates have, ascending."""
        predicates, streams, local = self.legs
        chosen = np.isin(predicates, predicate_ids) & (streams == stream)
        return tuple(np.unique(local[chosen]).tolist())

    def by_leg(self, box: CompositeBox, predicate_ids: Int64s) -> list[Int64s]:
        """Return the predicates by the leg whose rows find their combinations: the first with a
        condition, since that has fewer rows, or else the first."""
        state, remaining = box.ledger.state, predicate_ids
        legs = list[Int64s]()
        for stream in box.composite.legs:
            every_row = state.predicates.find(stream, _TRUE_KEY)
            predicates, streams, local = self.legs
            without_condition = predicates[(streams == stream) & (local == (every_row or -1))]
            is_whole = np.isin(remaining, without_condition)
            legs.append(remaining[~is_whole])
            remaining = remaining[is_whole]
        legs[0] = np.union1d(legs[0], remaining)
        return legs
