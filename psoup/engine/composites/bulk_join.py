"""Spark's join of a slice of leg 0, beside the loop.

The join is computed from the rows of leg 0 in `[low, since)` and the rows of the other legs below
`highs`. Steps go on while it runs: rows that arrive later are not in the result. So the loop takes
the result in parts of leg 0, newest first, and joins the rows of each part with the later ones
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import SparkSession

from psoup.engine.composites.boxes import CompositeBox
from psoup.engine.composites.legs import LegPredicates
from psoup.engine.composites.spark_join import Drafts, SparkJoin
from psoup.engine.spark.bulk import BulkJob
from psoup.store.state.losses import Hole


@dataclass(frozen=True, slots=True)
class BoxBasis:
    """The part of a box from which combinations were computed."""

    since: int
    highs: tuple[int, ...]
    admitted: LegPredicates
    holes: tuple[Hole, ...]

    @classmethod
    def of(cls, box: CompositeBox) -> BoxBasis:
        mark = box.mark
        assert mark.since is not None
        return cls(mark.since, mark.highs, mark.admitted, _holes(box))

    def holds(self, box: CompositeBox) -> bool:
        """Return True if combinations of rows below `since` are still those to be found. Marks may
        have gone back after a failure, a box may have begun again, predicates may have ended, and
        files may have been lost or restored. Rows may have arrived."""
        mark = box.mark
        return (
            mark.since == self.since
            and mark.admitted == self.admitted
            and not any(box.measured.unadmitted)
            and all(now >= then for now, then in zip(mark.highs, self.highs, strict=True))
            and _holes(box) == self.holes
        )


@dataclass(slots=True)
class BulkJoin:
    """A join that runs, or whose result is taken part by part: parts of `part_rows` rows from `low`
    on. `basis.since` is the end of the part to be taken next; `is_untouched` before the first."""

    composite_id: int
    low: int
    part_rows: int
    # Rows of all legs.
    rows: int
    basis: BoxBasis
    job: BulkJob[Drafts] = field(repr=False)
    is_untouched: bool = True

    @classmethod
    def start(
        cls, spark: SparkSession, box: CompositeBox, join: SparkJoin, part_rows: int
    ) -> BulkJoin:
        """Start the join of the rows that arrive at leg 0, just below the box."""
        work = partial(_find, join, part_rows)
        job = BulkJob(spark, work, f"join of composite {box.id}")
        rows = sum(arrival.hi - arrival.lo for arrival in join.arrivals)
        return cls(box.id, join.arrivals[0].lo, part_rows, rows, BoxBasis.of(box), job)

    def move(self, since: int) -> None:
        """Note that the part down to row id `since` was taken."""
        self.basis = replace(self.basis, since=since)
        self.is_untouched = False

    @property
    def part_low(self) -> int:
        """The first row id of leg 0 in the next part."""
        return self.low + (self.basis.since - 1 - self.low) // self.part_rows * self.part_rows

    def later(self, highs: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Return the ids by leg of the rows that arrived since the join was started."""
        return tuple(zip(self.basis.highs, highs, strict=True))


def _find(join: SparkJoin, part_rows: int, spark: SparkSession) -> Drafts:
    return join.find(spark, part_rows)


def _holes(box: CompositeBox) -> tuple[Hole, ...]:
    legs = set(box.composite.legs)
    return tuple(hole for hole in box.ledger.state.losses.holes if hole.stream_id in legs)
