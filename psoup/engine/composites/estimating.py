"""The estimate of how many combinations a new row brings, from the newest rows of each leg.

A composite begins only if they are few enough, and one that is suspended begins again once they
are. Equal keys are counted; for inequalities pairs of some rows are tried. Only combinations that a
query wants are stored: their share is that of some combinations of the sampled rows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from psoup.engine.composites.combining import LegJoin
from psoup.engine.composites.lookup.edges import KeyEdge
from psoup.engine.composites.lookup.hashes import HashKey
from psoup.engine.composites.reading import LegReading
from psoup.engine.composites.runs import LegBatch, key_rows
from psoup.engine.composites.units import Arrival, CompositeWork
from psoup.engine.composites.worker import wanted
from psoup.engine.spark.jobs import Estimated, Outcome, SparkJob
from querystem.expressions import Expression
from querystem.join.sides import Side, true_pairs

# The newest rows of a leg that are looked at, and those of them whose pairs are tried.
SAMPLE_ROWS = 1 << 16
_PAIRED_ROWS = 1 << 10
# The combinations that are tried by the predicates over the composite, at least.
_TRIED_COMBINATIONS = 1 << 12


@dataclass(frozen=True, slots=True)
class EstimateUnit:
    """The newest rows of each leg, of `rows[k]` rows that leg k has."""

    work: CompositeWork
    arrivals: tuple[Arrival, ...]
    rows: tuple[int, ...]


def estimate(job: SparkJob, unit: EstimateUnit) -> list[Outcome]:
    """Estimate the combinations that a new row brings on average."""
    reading = LegReading(job, unit.work)
    batches = [reading.arrived(leg, arrival) for leg, arrival in enumerate(unit.arrivals)]
    sampled = [arrival.hi - arrival.lo for arrival in unit.arrivals]
    plan = unit.work.plan
    combinations = per_row(plan.edges, plan.span, batches, sampled, unit.rows)
    return [Estimated(unit.work.id, *combinations, _wanted_share(job, reading, batches))]


def _wanted_share(job: SparkJob, reading: LegReading, batches: Sequence[LegBatch]) -> float:
    """Return the share of combinations that a predicate over the composite matches, by those of
    some rows of the first leg."""
    work, first = reading.work, batches[0]
    if work.wants_all or not all(len(batch.ids) for batch in batches):
        return 1.0
    keyed = (key_rows(work.plan.edges, leg, batch) for leg, batch in enumerate(batches))
    runs = [reading.runs(rows) for rows in keyed]
    join = LegJoin(work.plan, runs, reading.key_columns, sys.maxsize)
    # In any order, because the first rows may have combinations enough.
    places = np.random.default_rng(0).permutation(_spread(len(first.ids)))
    tried = matching = 0
    for combinations in join.combinations(0, first.take(places)):
        tried += len(combinations)
        matching += len(wanted(job, reading, combinations))
        if tried >= _TRIED_COMBINATIONS:
            break
    return matching / tried if tried else 1.0


def per_row(
    edges: Sequence[KeyEdge],
    span: int | None,
    batches: Sequence[LegBatch],
    sampled: Sequence[int],
    rows: Sequence[int],
) -> tuple[float, float]:
    """Return the combinations of an average new row, and of an average admitted one. `batches` are
    the admitted ones of the newest `sampled` rows of each leg, of all its `rows`."""
    if not all(len(batch.ids) for batch in batches):
        return 0.0, 0.0
    latest = max(int(batch.ts.max()) for batch in batches)
    samples = [_Sample.of(*leg, latest, span) for leg in zip(batches, sampled, rows, strict=True)]
    share = 1.0
    for edge in edges:
        first, second = (samples[leg].batch for leg in edge.legs)
        share *= min(1.0, _pair_share(edge, first, second))
    # A row of each leg meets the partners of all other legs.
    arriving = sum(sample.rate for sample in samples)
    combinations = 0.0
    for leg, sample in enumerate(samples):
        partners = [other.partners for number, other in enumerate(samples) if number != leg]
        combinations += sample.rate * sample.admitted * float(np.prod(partners)) * share
    admitted = sum(sample.rate * sample.admitted for sample in samples)
    return combinations / arriving, combinations / admitted


@dataclass(frozen=True, slots=True)
class _Sample:
    """Rows of a leg: the admitted ones within a span of the latest row, how many of them a new row
    of another leg may meet, the share of rows that is admitted, and how many rows come in a
    span."""

    batch: LegBatch
    partners: float
    admitted: float
    rate: float

    @classmethod
    def of(cls, batch: LegBatch, sampled: int, rows: int, latest: int, span: int | None) -> _Sample:
        admitted = len(batch.ids) / sampled
        if span is None:
            return cls(batch, admitted * rows, admitted, rows)
        recent = batch.take(np.flatnonzero(batch.ts >= latest - span))
        # If the newest rows cover less than a span, as many come in each part of it.
        covered = max(1, latest - int(batch.ts.min()))
        factor = span / covered if sampled < rows and covered < span else 1.0
        partners = len(recent.ids) * factor
        return cls(recent, partners, admitted, partners / admitted)


def _pair_share(edge: KeyEdge, first: LegBatch, second: LegBatch) -> float:
    """Return the share of pairs of rows of the two legs that a link of the edge connects."""
    if not len(first.ids) or not len(second.ids):
        return 0.0
    total = 0.0
    for key, link in zip(edge.keys, edge.edge.links, strict=True):
        if isinstance(key, HashKey):
            total += _equal_share(key, first.columns, second.columns)
        else:
            total += _true_share(edge.legs, link.condition, first.columns, second.columns)
    return total


def _equal_share(key: HashKey, first: pa.RecordBatch, second: pa.RecordBatch) -> float:
    (hashes, counts), (other_hashes, other_counts) = (
        _counted(*key.keys(end, rows)) for end, rows in enumerate((first, second))
    )
    _, places, other_places = np.intersect1d(
        hashes, other_hashes, assume_unique=True, return_indices=True
    )
    pairs = int((counts[places] * other_counts[other_places]).sum())
    return float(pairs / (first.num_rows * second.num_rows))


def _counted(hashes: Int64s, valid: Mask) -> tuple[Int64s, Int64s]:
    distinct, counts = np.unique(hashes[valid], return_counts=True)
    return distinct, counts


def _true_share(
    legs: tuple[int, int], condition: Expression, first: pa.RecordBatch, second: pa.RecordBatch
) -> float:
    sides = [
        Side.of_item(leg, rows.take(pa.array(_spread(rows.num_rows))))
        for leg, rows in zip(legs, (first, second), strict=True)
    ]
    lengths = [side.length for side in sides]
    pairs = (
        np.repeat(np.arange(lengths[0]), lengths[1]),
        np.tile(np.arange(lengths[1]), lengths[0]),
    )
    true_count = len(true_pairs(sides[0], sides[1], pairs, condition)[0])
    return true_count / len(pairs[0])


def _spread(count: int) -> Int64s:
    """Return at most _PAIRED_ROWS places of `count`, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, _PAIRED_ROWS)).astype(np.int64))
