"""The legs of registered joins: the local predicates of each composite, kept until they change."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from datastem.arrays import Int64s
from psoup.engine.matching.coverage import OPEN, Cohort
from psoup.store.state.registrations import ComposedLegs

# The ids of local predicates for each leg of a composite, ascending.
LegPredicates: TypeAlias = tuple[tuple[int, ...], ...]

_NO_LEGS: Int64s = np.empty((3, 0), np.int64)


@dataclass(frozen=True)
class JoinedLegs:
    """The legs of all registrations that have a composite, and the predicates in quarantine."""

    composed: ComposedLegs
    quarantined: frozenset[int]

    @cached_property
    def _by_composite(self) -> dict[int, Int64s]:
        # Columns (composite, predicate over it, stream, local predicate), sorted by the first two.
        columns = np.stack(self.composed)
        columns = columns[:, np.lexsort(columns[1::-1])]
        edges = np.flatnonzero(np.diff(columns[0])) + 1
        parts = np.split(columns, edges, axis=1) if columns.shape[1] else []
        return {int(part[0, 0]): part[1:] for part in parts}

    @cached_property
    def _local(self) -> dict[tuple[int, int], tuple[int, ...]]:
        return {}

    def of(self, composite_id: int) -> Int64s:
        """Return the legs of the registrations of a composite as columns (predicate over it,
        stream, local predicate), ascending by the first."""
        return self._by_composite.get(composite_id, _NO_LEGS)

    def local(self, composite_id: int, streams: Sequence[int]) -> LegPredicates:
        """Return the local predicates of registrations for each leg of a composite, given the
        streams of its legs, without those in quarantine.

        Legs that read one stream share their predicates: which leg of a query is which of the
        composite's is not known here, and rows that are admitted without need do no harm.
        """
        return tuple(self._local_of(composite_id, stream) for stream in streams)

    def _local_of(self, composite_id: int, stream: int) -> tuple[int, ...]:
        key = composite_id, stream
        if key not in self._local:
            _, streams, local = self.of(composite_id)
            ids = np.unique(local[streams == stream]).tolist()
            self._local[key] = tuple(id_ for id_ in ids if id_ not in self.quarantined)
        return self._local[key]


def without(predicates: LegPredicates, excluded: LegPredicates) -> LegPredicates:
    """Return the predicates of each leg that are not excluded."""
    return tuple(map(_without, predicates, excluded))


def _without(ids: tuple[int, ...], excluded: tuple[int, ...]) -> tuple[int, ...]:
    # Mostly both are equal, and there may be very many.
    if ids == excluded:
        return ()
    excluded_ids = set(excluded)
    return tuple(id_ for id_ in ids if id_ not in excluded_ids)


def covered(predicates: tuple[int, ...], cohorts: Sequence[Cohort], floor: int) -> tuple[int, ...]:
    """Return those of a stream's predicates that were matched with all its rows, given its cohorts
    and its least row id."""
    # Cohorts are ascending ranges of ids: each has a run of the predicates.
    runs = [
        (bisect_left(predicates, cohort.lo), bisect_left(predicates, cohort.hi))
        for cohort in cohorts
        if cohort.covers(floor, OPEN)
    ]
    if runs == [(0, len(predicates))]:
        return predicates
    return tuple(id_ for first, last in runs for id_ in predicates[first:last])
