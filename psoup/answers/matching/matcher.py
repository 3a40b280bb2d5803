"""Matching: which rows a predicate matches, remembered, else stored by the engine, else computed.

Where matches come from does not matter for the answer: the engine's files were made by the same
kernel over the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask, UInt16s
from datastem.blocks import BLOCK_BITS, BLOCK_MASK, Part
from datastem.codec import are_rows, query_view
from datastem.schema import OP
from psoup.answers.matching.match_files import MatchFileCache
from psoup.answers.planning.plan import Neighbours
from psoup.answers.replicas.epoch_files import EpochView
from psoup.errors import ConditionFails, TooMuchWork
from psoup.store import CorruptStore
from psoup.store.state.quarantine import MACHINE_ERRORS, PREDICATE
from querystem.expressions import TRUE, Expression, columns_of, weight_of
from querystem.kernel import matches
from querystem.pace import spending
from results.id_sets import Range, intersect, size
from results.match_cache import BlockMatches, MatchCache

# What a predicate may weigh for a row of it to count once.
_USUAL_WEIGHT = 64
# What is computed of a block at a time: rows times weight, but some rows at least.
_STEP_WEIGHT, _LEAST_STEP = 1 << 26, 4096


# Rows are looked at one by one where at most one in so many has to be.
_WORTH_TAKING = 4
# Fewer rows of a block are computed as fast as matches of others are looked up; and a predicate of
# less weight as fast as they are read.
WORTH_LOOKING, _HEAVY = 4096, 8

# Units (`querystem.pace`) of a look at a part, whatever is found.
_PART_UNITS = 20_000


class Uncovered(Exception):
    """Somebody who wants to wait for the engine asks for rows it has not matched."""


@dataclass(slots=True)
class Work:
    """How many rows one answer may compute, and how many it has computed.

    A row counts once for a predicate of the usual weight, and more often for a heavier one. `rows`
    were computed, `left` may still be counted. With a `limit` of None no row may be computed:
    Uncovered is raised instead. With `bound` errors say no number of rows that were looked at.
    """

    limit: int | None
    rows: int = 0
    bound: bool = False
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.limit or 0

    def take(self, rows: int, weight: int) -> int:
        """Counts as many of the rows as may be computed, at least one, and returns how many.

        Raises TooMuchWork, Uncovered.
        """
        if self.limit is None:
            raise Uncovered
        each = max(1, weight // _USUAL_WEIGHT)
        taken = min(rows, self.left // each)
        if not taken:
            raise self._too_much(each)
        self.rows += taken
        self.left -= taken * each
        return taken

    def _too_much(self, each: int) -> TooMuchWork:
        heavy = f", and a row of so long a condition counts {each:,} times" if each > 1 else ""
        done = "some" if self.bound else f"{self.rows:,}"
        return TooMuchWork(
            f"the engine has not matched this query yet, and this server computes at most "
            f"{self.limit:,} rows for one answer{heavy}; it did {done} and will go on from "
            f"there when asked again",
            expected=f"at most {self.limit} rows",
            got="more" if self.bound else f"{self.rows} rows done, more next",
            hint="ask again, ask with wait_for_engine, or choose a shorter window",
        )


@dataclass
class Matcher:
    """Matches one predicate over the rows of one stream, for one answer.

    Where it implies one of its neighbours, only rows that `wider` has are looked at.
    """

    predicate: int
    stream_id: int
    where: Expression
    epoch: EpochView
    known: MatchCache
    stored: MatchFileCache
    work: Work
    neighbours: Neighbours | None = field(default=None, kw_only=True)
    wider: WiderMatches | None = field(default=None, kw_only=True)

    @property
    def shown(self) -> None:
        """The rows that are shown: all of them, as far as a predicate alone tells."""
        return None

    @cached_property
    def covered(self) -> list[Range]:
        return self.epoch.covering(self.stream_id).ranges(self.predicate)

    def match(self, part: Part, lo: int, hi: int) -> Int64s:
        """The matching ids in `[lo, hi)` of a part, which lies in one block."""
        spending()(_PART_UNITS + hi - lo)
        known = self.remembered(part, lo, hi)
        return self._found(part, lo, hi) if known is None else known

    def remembered(self, part: Part, lo: int, hi: int) -> Int64s | None:
        """The ids that `match` gives, where no file and no row has to be looked at; else None."""
        if self.where == TRUE:
            return part.ids[part.ids.searchsorted(lo) : part.ids.searchsorted(hi)]
        piece = self.known.probe(self.predicate, part.first >> BLOCK_BITS)
        return None if piece.missing(lo, hi) else piece.between(lo, hi)

    def _found(self, part: Part, lo: int, hi: int) -> Int64s:
        block = part.first >> BLOCK_BITS
        piece = self._without_rows(block, lo, hi)
        while missing := piece.missing(lo, hi):
            # Some rows at a time, so that their matches are remembered where the rest is too much.
            ranges, lows = self._narrowed(part, block, missing) or self._taken(part, missing)
            piece = self.known.insert(self.predicate, block, ranges, lows)
        return piece.between(lo, hi)

    def _taken(self, part: Part, missing: list[Range]) -> tuple[list[Range], UInt16s]:
        """The next ranges of what is missing, and the matches in them."""
        count = self.work.take(min(size(missing), self._step), self._weight)
        allowed = _first_of(missing, count)
        return allowed, np.concatenate([self._computed(part, *gap) for gap in allowed])

    def _narrowed(
        self, part: Part, block: int, missing: list[Range]
    ) -> tuple[list[Range], UInt16s] | None:
        """The next ranges of what is missing, and the matches in them, found among the matches of a
        predicate that this one implies; None where there is none, or too little to gain."""
        wider = self._wider(block, missing)
        candidates = None if wider is None else wider.candidates(block, missing, self._is_heavy)
        if wider is None or candidates is None:
            return None
        ranges, ids = candidates
        if not ranges or len(ids) * _WORTH_TAKING > size(ranges):
            return None
        if len(ids):
            count = self.work.take(min(len(ids), self._step), self._weight)
            if count < len(ids):
                ranges, ids = _below(ranges, int(ids[count])), ids[:count]
        assert self.neighbours is not None
        self.neighbours.note(self.predicate, wider.predicate, size(ranges), len(ids))
        return ranges, self._computed_at(part, part.find(ids))

    def _wider(self, block: int, missing: list[Range]) -> WiderMatches | None:
        """The matches of the predicate that this one implies: of several, the one with the fewest
        in the first block that is asked for."""
        if self.wider is None and self._implied and size(missing) >= WORTH_LOOKING:
            found = {
                one.predicate: one.candidates(block, missing, self._is_heavy)
                for one in self._implied
            }
            counts = {
                id_: (-size(one[0]), len(one[1])) for id_, one in found.items() if one and one[0]
            }
            if counts:
                best = min(counts, key=counts.__getitem__)
                self.wider = next(one for one in self._implied if one.predicate == best)
        return self.wider

    @cached_property
    def _implied(self) -> list[WiderMatches]:
        if self.neighbours is None:
            return []
        sources = self.epoch, self.known, self.stored, self.work
        return [
            WiderMatches(Matcher(id_, self.stream_id, where, *sources))
            for id_, where in self.neighbours.implied(self.predicate, self.where)
        ]

    @cached_property
    def _weight(self) -> int:
        return weight_of(self.where)

    @property
    def _is_heavy(self) -> bool:
        """True where to compute a block takes longer than to read the matches of another predicate
        from a file."""
        return self._weight >= _HEAVY

    @property
    def _step(self) -> int:
        """How many rows are computed before their matches are remembered."""
        return max(_LEAST_STEP, _STEP_WEIGHT // self._weight)

    def lacks(self, block: int, high: int) -> bool:
        """Tells whether no row of a block below `high` matches, if that can be said without its
        rows."""
        if self.where == TRUE:
            return False
        lo, hi = block << BLOCK_BITS, min((block + 1) << BLOCK_BITS, high)
        piece = self._without_rows(block, lo, hi)
        return not piece.missing(lo, hi) and not len(piece.between(lo, hi))

    def _without_rows(self, block: int, lo: int, hi: int) -> BlockMatches:
        """The matches of a block that are remembered or stored; some of `[lo, hi)` may be
        missing."""
        piece = self.known.probe(self.predicate, block)
        if piece.missing(lo, hi):
            stored = intersect(block << BLOCK_BITS, (block + 1) << BLOCK_BITS, self.covered)
            if any(intersect(*gap, stored) for gap in piece.missing(lo, hi)):
                found = self._stored(block)
                if found is not None:
                    piece = self.known.insert(self.predicate, block, stored, found)
        return piece

    def _stored(self, block: int) -> UInt16s | None:
        """All stored matches of the block, in whatever pieces; None where some are lost."""
        epoch, predicate = self.epoch, self.predicate
        try:
            found = [
                lows
                for file in epoch.files_for(self.stream_id, block, predicate)
                for lows in self.stored.find(file, predicate, block, epoch.version)
            ]
        except CorruptStore:
            return None
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.uint16)

    def stored_in(self, block: int, lo: int, hi: int, read: bool) -> Int64s | None:
        """The matching ids in `[lo, hi)` of a block that the engine has matched; None where they
        are lost, or unless `read` where they are not remembered."""
        known = self.known.probe(self.predicate, block)
        piece = self._without_rows(block, lo, hi) if read else known
        return None if piece.missing(lo, hi) else piece.between(lo, hi)

    def _computed_at(self, part: Part, places: Int64s) -> UInt16s:
        """The matches among the rows of some places."""
        read = {*columns_of(self.where), "_ts", "_row_id", OP}
        names = [name for name in part.rows.schema.names if name in read]
        rows = part.rows.select(names).take(pa.array(places))
        return (part.ids[places][self._matches(rows)] & BLOCK_MASK).astype(np.uint16)

    def _computed(self, part: Part, lo: int, hi: int) -> UInt16s:
        first, last = np.searchsorted(part.ids, [lo, hi])
        rows = part.rows.slice(first, last - first)
        return (part.ids[first:last][self._matches(rows)] & BLOCK_MASK).astype(np.uint16)

    def _matches(self, rows: pa.RecordBatch) -> Mask:
        """Tell which of some rows match. Raise ConditionFails for a predicate that fails here as it
        did in the engine, which has set it aside."""
        try:
            return matches(self.where, query_view(rows)) & are_rows(rows)
        except MACHINE_ERRORS:
            raise
        except Exception as error:
            if self.epoch.epoch.quarantine.find(PREDICATE, self.predicate) is None:
                raise
            raise ConditionFails(
                "a condition of this query can't be evaluated; the engine has set it aside",
                hint="ask with another condition; `psoup status` tells an operator the reason",
            ) from error


@dataclass(frozen=True, slots=True)
class WiderMatches:
    """The stored matches of a predicate that another one implies: no other row can match that."""

    matcher: Matcher

    @property
    def predicate(self) -> int:
        return self.matcher.predicate

    def candidates(
        self, block: int, missing: list[Range], read: bool
    ) -> tuple[list[Range], Int64s] | None:
        """The parts of some ranges of a block that the engine has matched, and the ids that match
        there; None where they are lost, or unless `read` where a file would have to be read."""
        ranges = [one for gap in missing for one in intersect(*gap, self.matcher.covered)]
        found = [self.matcher.stored_in(block, *gap, read) for gap in ranges]
        ids = [one for one in found if one is not None]
        if len(ids) < len(found):
            return None
        return ranges, np.concatenate([np.empty(0, np.int64), *ids])


def _below(ranges: list[Range], stop: int) -> list[Range]:
    """The part of ascending ranges below an id."""
    return [(lo, min(hi, stop)) for lo, hi in ranges if lo < stop]


def _first_of(gaps: list[Range], count: int) -> list[Range]:
    """The first `count` ids of the gaps."""
    found: list[Range] = []
    for lo, hi in gaps:
        if count > 0:
            found.append((lo, min(hi, lo + count)))
            count -= hi - lo
    return found
