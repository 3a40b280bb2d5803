"""Units of work over composites: everything that the driver passes to a task."""

from __future__ import annotations

from dataclasses import dataclass

from psoup.engine.composites.combining import JoinPlan
from psoup.engine.matching.predicates import Ranges
from psoup.store.delta.files import DataFile


@dataclass(frozen=True, slots=True)
class CompositeLeg:
    """The stream of a leg, and the files of its stem. If `closures` are given, the ends of rows
    count that rows with ids below `closed_by` have caused."""

    stream_id: int
    files: tuple[DataFile, ...]
    closures: tuple[DataFile, ...] = ()
    closed_by: int = 0


@dataclass(frozen=True, slots=True)
class CompositeWork:
    """The part that all units over a composite share. Combinations are stored if a predicate
    matches them; `wants_all` is True if one matches all. `budget` is the size of a process's cache
    in bytes, `max_candidates` the candidates that one unit may examine."""

    id: int
    plan: JoinPlan
    legs: tuple[CompositeLeg, ...]
    joins: tuple[DataFile, ...] = ()
    wants_all: bool = False
    budget: int = 256 << 20
    max_candidates: int = 1 << 26


@dataclass(frozen=True, slots=True)
class Arrival:
    """The arrival of rows `[lo, hi)` of a leg that the `predicates` match, by the files `pieces` of
    the matches table. With `again`, rows that are in `joins/<id>` already are left out."""

    lo: int
    hi: int
    predicates: tuple[int, ...] = ()
    pieces: tuple[DataFile, ...] = ()
    again: bool = False


NO_ROWS = Arrival(0, 0)


@dataclass(frozen=True, slots=True)
class Missing:
    """The combinations that predicates in these ranges match, without those in `files` of the
    composite's stem."""

    predicates: Ranges
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class CombineUnit:
    """The join of arriving rows: `arrivals[k]` arrive at leg k. The first combination gets the id
    `first`; if it is None, they become a draft.

    Rows that arrive at several legs are partners of each other. If several units share them, all of
    them are in the files `entered` of `joins/<id>`, which no epoch names yet; otherwise that is
    None.

    If `buckets` are given, the rows that arrive at a leg are those that have entered by one of
    these buckets `[low, high)` of the side by which they find their first partner.

    If `later` is given, all rows arrive at leg 0, and only combinations count of which the row of
    a leg k > 0 has an id in the range `later[k]`: Spark's join has found the others.

    If `missing` is given, only those combinations count, and all rows arrive at one leg."""

    work: CompositeWork
    arrivals: tuple[Arrival, ...]
    first: int | None
    entered: tuple[DataFile, ...] | None = None
    buckets: tuple[int, int] | None = None
    later: tuple[tuple[int, int], ...] = ()
    missing: Missing | None = None


@dataclass(frozen=True, slots=True)
class EnterUnit:
    """The arrival of rows at a leg that are stored without a join."""

    work: CompositeWork
    leg: int
    arrival: Arrival


@dataclass(frozen=True, slots=True)
class StoreUnit:
    """The combinations in a draft, to be stored with ids from `first` on."""

    work: CompositeWork
    draft: str
    first: int


@dataclass(frozen=True, slots=True)
class CombinationSlice:
    """The combinations `[lo, hi)`, in these files, to be matched with the predicates in these
    ranges."""

    work: CompositeWork
    predicates: Ranges
    lo: int
    hi: int
    files: tuple[DataFile, ...]
