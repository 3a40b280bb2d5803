"""Passes over the rows of a box for predicates that came after it began, and how their slices are
divided into tasks. A pass is in memory only: a new engine starts it again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s
from psoup.engine.composites.legs import LegPredicates

# Rows that are worth a separate task.
TASK_ROWS = 1 << 14


@dataclass(slots=True)
class AdmissionPass:
    """The admission of local predicates, in slices: rows of leg k have entered up to `reached[k]`,
    in a box that begins at `since`. `predicates` are the new ones of each leg."""

    predicates: LegPredicates
    since: int
    reached: list[int]


@dataclass(slots=True)
class CompletionPass:
    """The search for combinations of predicates over a composite that are not stored, in slices:
    `legs[k]` are the predicates for which rows of leg k below `highs[k]` are joined, which was done
    up to `reached[k]`, in a box that begins at `since`."""

    predicates: Int64s
    legs: list[Int64s]
    since: int
    reached: list[int]
    highs: tuple[int, ...]

    def is_among(self, predicates: Int64s) -> bool:
        """Return True if these are predicates of the pass, and perhaps others."""
        return bool(np.isin(self.predicates, predicates).all())


def task_ranges(low: int, high: int, parallelism: int) -> Iterator[tuple[int, int]]:
    """Yield the row ranges of the tasks of a slice."""
    count = max(1, min(parallelism, 1 + (high - low) // TASK_ROWS)) if high > low else 0
    edges = [low + (high - low) * task // max(count, 1) for task in range(count + 1)]
    yield from zip(edges[:-1], edges[1:], strict=True)
