"""Units of work over composites: what the driver tells a task, and all that it tells."""

from __future__ import annotations

from dataclasses import dataclass

from psoup.engine.composites.combining import JoinPlan
from psoup.engine.predicates import Ranges
from psoup.store.delta.files import DataFile


@dataclass(frozen=True, slots=True)
class CompositeLeg:
    """The stream of a leg, and the files of its stem. Where `closures` are given, the ends count
    that were caused by rows with ids below `closed_by`."""

    stream_id: int
    files: tuple[DataFile, ...]
    closures: tuple[DataFile, ...] = ()
    closed_by: int = 0


@dataclass(frozen=True, slots=True)
class CompositeWork:
    """What all units over a composite have in common. `budget` is what a process may keep of what
    it has read, in bytes; `most` the candidates that one unit may look at."""

    id: int
    plan: JoinPlan
    legs: tuple[CompositeLeg, ...]
    joins: tuple[DataFile, ...] = ()
    budget: int = 256 << 20
    most: int = 1 << 26


@dataclass(frozen=True, slots=True)
class Arrival:
    """The rows `[lo, hi)` of a leg that some `predicates` match, as the files `pieces` of the
    matches table say. Where they come `again`, those that are in `joins/<id>` are left out."""

    lo: int
    hi: int
    predicates: tuple[int, ...] = ()
    pieces: tuple[DataFile, ...] = ()
    again: bool = False


NOBODY = Arrival(0, 0)


@dataclass(frozen=True, slots=True)
class CombineUnit:
    """Rows come to legs: `arrivals[k]` to leg k. This unit is about those in `own[k]`. The first
    combination gets the id `first`; without it they are kept as a draft."""

    work: CompositeWork
    arrivals: tuple[Arrival, ...]
    own: tuple[tuple[int, int], ...]
    first: int | None


@dataclass(frozen=True, slots=True)
class EnterUnit:
    """Rows come to a leg that need not be combined."""

    work: CompositeWork
    leg: int
    arrival: Arrival


@dataclass(frozen=True, slots=True)
class StoreUnit:
    """Combinations in a draft that get ids from `first` on."""

    work: CompositeWork
    draft: str
    first: int


@dataclass(frozen=True, slots=True)
class CombinationSlice:
    """Old combinations `[lo, hi)`, in these files, for the predicates in these ranges."""

    work: CompositeWork
    predicates: Ranges
    lo: int
    hi: int
    files: tuple[DataFile, ...]
