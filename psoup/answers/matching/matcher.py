"""Matching: which rows a predicate matches, from a cache, the engine's files, or computed here.

The source of matches does not matter for the answer: the engine's files were made by the same
kernel over the same rows.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask, UInt16s
from datastem.blocks import BLOCK_BITS, BLOCK_MASK, Part
from datastem.codec import are_rows, query_view
from datastem.schema import OP
from datastem.stem_view import StemView
from psoup.answers.matching.match_files import MatchFileCache
from psoup.answers.planning.plan import Neighbours
from psoup.answers.replicas.epoch_files import EpochView
from psoup.answers.stages import Stages, timed
from psoup.errors import ConditionFails, TooMuchWork
from psoup.store import CorruptStore
from psoup.store.state.quarantine import MACHINE_ERRORS, PREDICATE
from querystem.expressions import TRUE, Expression, columns_of, weight_of
from querystem.kernel import matches
from querystem.pace import spending
from results.id_sets import Range, intersect, size
from results.match_cache import BlockMatches, MatchCache

# The greatest weight of a predicate (`weight_of`) for which a row counts once.
_USUAL_WEIGHT = 64
# A step computes this many rows of a block, times the weight of the predicate; but at least a few
# rows.
_STEP_WEIGHT, _MIN_STEP_ROWS = 1 << 26, 4096
# Candidates are computed one by one if they are at most one row in this many.
_CANDIDATE_SPARSITY = 4
# If fewer rows are missing, computing them is as fast as looking up matches of another predicate.
MIN_LOOKUP_ROWS = 4096
# If a predicate weighs less, computing it is as fast as reading the matches of another from a file.
_MIN_READ_WEIGHT = 8
# Units (`querystem.pace`) to match a part, whatever the result.
_PART_UNITS = 20_000


class Uncovered(Exception):
    """The caller wants to wait for the engine, which has not matched all rows yet."""


@dataclass(slots=True)
class Work:
    """The budget of one answer: how many rows it may compute, and how many it has computed.

    A row counts once for a predicate of the usual weight, and more often for a heavier one. `rows`
    were computed; `remaining` may still be counted. With a `limit` of None no row may be computed:
    Uncovered is raised instead. With `bound`, error messages don't say how many rows were computed.
    Unless it `reads_files`, rows that the engine has matched are computed if they are not cached.
    The time of each stage goes to `stages`, if somebody wants to know.
    """

    limit: int | None
    rows: int = 0
    bound: bool = False
    reads_files: bool = True
    stages: Stages | None = None
    remaining: int = field(init=False)

    def __post_init__(self) -> None:
        self.remaining = self.limit or 0

    def stage(self, name: str) -> AbstractContextManager[None]:
        return timed(self.stages, name)

    def take(self, rows: int, weight: int) -> int:
        """Count as many of the rows as may be computed, at least one, and return how many.

        Raises TooMuchWork, Uncovered.
        """
        if self.limit is None:
            raise Uncovered
        row_cost = max(1, weight // _USUAL_WEIGHT)
        # Fewer rows than requested are fine: their matches are cached before the next call raises.
        count = min(rows, self.remaining // row_cost)
        if not count:
            raise self._too_much(row_cost)
        self.rows += count
        self.remaining -= count * row_cost
        return count

    def _too_much(self, row_cost: int) -> TooMuchWork:
        heavy = f", and a row of a condition this long counts {row_cost:,} times"
        done = "some" if self.bound else f"{self.rows:,}"
        return TooMuchWork(
            f"the engine has not matched this query yet, and this server computes at most "
            f"{self.limit:,} rows for one answer{heavy if row_cost > 1 else ''}; it did {done} and "
            f"will go on from there when asked again",
            expected=f"at most {self.limit} rows",
            got="more" if self.bound else f"{self.rows} rows done, more next",
            hint="ask again, ask with wait_for_engine, or choose a shorter window",
        )


@dataclass
class Matcher:
    """Matches one predicate over the rows of one stream, for one answer.

    If it implies one of its neighbours, only rows that `wider` has are computed. `cache` and
    `stored` are shared by all answers.
    """

    predicate: int
    stream_id: int
    where: Expression
    epoch: EpochView
    cache: MatchCache
    stored: MatchFileCache
    work: Work
    neighbours: Neighbours | None = field(default=None, kw_only=True)
    wider: WiderMatches | None = field(default=None, kw_only=True)

    @property
    def permitted(self) -> None:
        """None: a predicate alone does not restrict which rows are permitted."""
        return None

    @cached_property
    def covered(self) -> list[Range]:
        return self.epoch.covering(self.stream_id).ranges(self.predicate)

    def match(self, part: Part, lo: int, hi: int) -> Int64s:
        """Return the matching ids in `[lo, hi)` of a part, which lies in one block."""
        spending()(_PART_UNITS + hi - lo)
        cached = self.cached(part, lo, hi)
        return self._search(part, lo, hi) if cached is None else cached

    def cached(self, part: Part, lo: int, hi: int) -> Int64s | None:
        """Return the ids that `match` gives; None if a file or a row must be read for them."""
        if self.where == TRUE:
            # Without a condition all ids match, also those of deletes.
            return part.ids[part.ids.searchsorted(lo) : part.ids.searchsorted(hi)]
        return self.cache.probe(self.predicate, part.first >> BLOCK_BITS).find(lo, hi)

    def _search(self, part: Part, lo: int, hi: int) -> Int64s:
        block = part.first >> BLOCK_BITS
        piece = self._without_rows(block, lo, hi)
        while missing := piece.missing(lo, hi):
            # In steps, so that matches are cached even if the work limit is reached later.
            ranges, lows = self._narrow_step(part, block, missing) or self._step(part, missing)
            piece = self.cache.insert(self.predicate, block, ranges, lows)
        return piece.between(lo, hi)

    def _step(self, part: Part, missing: list[Range]) -> tuple[list[Range], UInt16s]:
        """Return the next of the missing ranges, and the low bits of the matching ids in them."""
        count = self.work.take(min(size(missing), self._step_rows), self._weight)
        ranges = _first_of(missing, count)
        return ranges, np.concatenate([self._computed(part, *gap) for gap in ranges])

    def _narrow_step(
        self, part: Part, block: int, missing: list[Range]
    ) -> tuple[list[Range], UInt16s] | None:
        """Return what `_step` does, found among the matches of a predicate that this one implies;
        None if there is no such predicate, or too little to gain."""
        wider = self._wider(block, missing)
        candidates = None if wider is None else wider.candidates(block, missing, self._is_heavy)
        if wider is None or candidates is None:
            return None
        ranges, ids = candidates
        if not ranges or len(ids) * _CANDIDATE_SPARSITY > size(ranges):
            return None
        # Ranges without candidates have no matches, so they cost no work.
        if len(ids):
            count = self.work.take(min(len(ids), self._step_rows), self._weight)
            # If some are left, matches are known only below the first of those.
            if count < len(ids):
                ranges, ids = _below(ranges, int(ids[count])), ids[:count]
        assert self.neighbours is not None
        self.neighbours.note(self.predicate, wider.predicate, size(ranges), len(ids))
        return ranges, self._computed_at(part, part.find(ids))

    def _wider(self, block: int, missing: list[Range]) -> WiderMatches | None:
        """Return the matches of the predicate that this one implies; of several, the one with the
        most matched rows and the fewest matches in the first block that is needed."""
        if self.wider is None and self._implied and size(missing) >= MIN_LOOKUP_ROWS:
            counts: dict[int, tuple[int, int]] = {}
            for place, implied in enumerate(self._implied):
                candidates = implied.candidates(block, missing, self._is_heavy)
                if candidates is not None and candidates[0]:
                    ranges, ids = candidates
                    counts[place] = -size(ranges), len(ids)
            if counts:
                self.wider = self._implied[min(counts, key=counts.__getitem__)]
        return self.wider

    @cached_property
    def _implied(self) -> list[WiderMatches]:
        if self.neighbours is None:
            return []
        # These matchers get no neighbours, so that a search follows one implication only.
        sources = self.epoch, self.cache, self.stored, self.work
        return [
            WiderMatches(Matcher(id_, self.stream_id, where, *sources))
            for id_, where in self.neighbours.implied(self.predicate, self.where)
        ]

    @cached_property
    def _weight(self) -> int:
        return weight_of(self.where)

    @property
    def _is_heavy(self) -> bool:
        """Whether computing a block takes longer than reading the matches of another predicate from
        a file."""
        return self._weight >= _MIN_READ_WEIGHT

    @property
    def _step_rows(self) -> int:
        """How many rows are computed before their matches are cached."""
        return max(_MIN_STEP_ROWS, _STEP_WEIGHT // self._weight)

    def lacks(self, block: int, high: int) -> bool:
        """Return True if it is known, without reading rows, that no row of a block below `high`
        matches."""
        if self.where == TRUE:
            return False
        lo, hi = block << BLOCK_BITS, min((block + 1) << BLOCK_BITS, high)
        piece = self._without_rows(block, lo, hi)
        return not piece.missing(lo, hi) and not len(piece.between(lo, hi))

    def _without_rows(self, block: int, lo: int, hi: int) -> BlockMatches:
        """Return the matches of a block that are cached or stored; some of `[lo, hi)` may be
        missing."""
        piece = self.cache.probe(self.predicate, block)
        if piece.missing(lo, hi) and self.work.reads_files:
            # The engine's ranges of the whole block, also outside of `[lo, hi)`: the files have the
            # matches of all of them, and are read once.
            stored = intersect(block << BLOCK_BITS, (block + 1) << BLOCK_BITS, self.covered)
            if any(intersect(*gap, stored) for gap in piece.missing(lo, hi)):
                lows = self._stored(block)
                if lows is not None:
                    piece = self.cache.insert(self.predicate, block, stored, lows)
        return piece

    def _stored(self, block: int) -> UInt16s | None:
        """Return the low bits of all ids that match in the block, as stored by the engine,
        ascending; None if a file is damaged."""
        epoch, predicate = self.epoch, self.predicate
        try:
            pieces = [
                lows
                for file in epoch.files_for(self.stream_id, block, predicate)
                for lows in self.stored.find(file, predicate, block, epoch.version)
            ]
        except CorruptStore:
            return None
        # The pieces of several files are in no common order, and `insert` takes ascending lows.
        return np.unique(np.concatenate(pieces)) if pieces else np.empty(0, np.uint16)

    def stored_in(self, block: int, lo: int, hi: int, read: bool) -> Int64s | None:
        """Return the matching ids in `[lo, hi)` of a block that the engine has matched; None if
        they are lost, or if they are not cached and `read` does not allow to read a file."""
        cached = self.cache.probe(self.predicate, block)
        piece = self._without_rows(block, lo, hi) if read else cached
        return piece.find(lo, hi)

    def match_block(self, stem: StemView, block: int, lo: int, hi: int) -> Int64s:
        """Return the matching ids in `[lo, hi)` of a block. Rows are read only if the engine has
        not matched them; some of the ids may have no row then."""
        spending()(_PART_UNITS)
        if self.where == TRUE:
            return np.arange(lo, hi)
        stored = self.stored_in(block, lo, hi, read=True)
        if stored is not None:
            return stored
        parts = [part for part in stem.parts(block, hi) if part.stop > lo]
        pieces = [self.match(part, max(lo, part.first), min(hi, part.stop)) for part in parts]
        return np.concatenate([np.empty(0, np.int64), *pieces])

    def _computed_at(self, part: Part, places: Int64s) -> UInt16s:
        """Return the low bits of the matching ids among the rows at some places."""
        read = {*columns_of(self.where), "_ts", "_row_id", OP}
        names = [name for name in part.rows.schema.names if name in read]
        rows = part.rows.select(names).take(pa.array(places))
        return (part.ids[places][self._matches(rows)] & BLOCK_MASK).astype(np.uint16)

    def _computed(self, part: Part, lo: int, hi: int) -> UInt16s:
        """Return the low bits of the matching ids in `[lo, hi)` of a part."""
        # The rows at places `[first, last)` have the ids in `[lo, hi)`; some ids may have no row.
        first, last = np.searchsorted(part.ids, [lo, hi])
        rows = part.rows.slice(first, last - first)
        return (part.ids[first:last][self._matches(rows)] & BLOCK_MASK).astype(np.uint16)

    def _matches(self, rows: pa.RecordBatch) -> Mask:
        """Return a mask of the rows that match. Raises ConditionFails for a predicate that fails
        here as it did in the engine, which has set it aside."""
        try:
            return matches(self.where, query_view(rows)) & are_rows(rows)
        except MACHINE_ERRORS:
            raise
        except Exception as error:
            # If the engine has not failed on this condition, the cause may be another.
            if self.epoch.epoch.quarantine.find(PREDICATE, self.predicate) is None:
                raise
            raise ConditionFails(
                "a condition of this query can't be evaluated; the engine has set it aside",
                hint="ask with another condition; `psoup status` shows an operator the reason",
            ) from error


@dataclass(frozen=True, slots=True)
class WiderMatches:
    """The stored matches of a predicate that another one implies: no other row can match the
    other one."""

    matcher: Matcher

    @property
    def predicate(self) -> int:
        return self.matcher.predicate

    def candidates(
        self, block: int, missing: list[Range], read: bool
    ) -> tuple[list[Range], Int64s] | None:
        """Return those of the missing ranges of a block that the engine has matched, and the ids
        that match there; None if they are lost, or if a file would have to be read and `read` does
        not allow it."""
        covered = self.matcher.covered
        ranges = [overlap for gap in missing for overlap in intersect(*gap, covered)]
        results = [self.matcher.stored_in(block, *gap, read) for gap in ranges]
        ids = [result for result in results if result is not None]
        if len(ids) < len(results):
            return None
        return ranges, np.concatenate([np.empty(0, np.int64), *ids])


def _below(ranges: list[Range], stop: int) -> list[Range]:
    """Return the part of ascending ranges below an id."""
    return [(lo, min(hi, stop)) for lo, hi in ranges if lo < stop]


def _first_of(gaps: list[Range], count: int) -> list[Range]:
    """Return the first `count` ids of the gaps."""
    ranges: list[Range] = []
    for lo, hi in gaps:
        if count > 0:
            ranges.append((lo, min(hi, lo + count)))
            count -= hi - lo
    return ranges
