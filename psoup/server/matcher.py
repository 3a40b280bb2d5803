"""Which rows match a predicate: from what is known, else from the files, else computed here.

The order does not matter for the answer: the engine's files and this server's kernel are the same
code over the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from datastem.arrays import Int64s, UInt16s
from datastem.blocks import BLOCK_BITS, BLOCK_MASK, Part
from datastem.codec import are_rows, query_view
from psoup.server.errors import TooMuchWork
from psoup.server.matchfiles import MatchFileCache
from psoup.server.view import EpochView
from querystem.expressions import TRUE, Expression, weight_of
from querystem.kernel import matches
from querystem.pace import spending
from results.id_sets import Range, intersect, size
from results.match_cache import BlockMatches, MatchCache

# What a predicate may weigh for a row of it to count once.
_USUAL_WEIGHT = 64
# What is computed of a block at a time: rows times weight, but some rows at least.
_STEP_WEIGHT, _LEAST_STEP = 1 << 26, 4096


# Units (`querystem.pace`) of a look at a part, whatever is found.
_PART_UNITS = 20_000


class Uncovered(Exception):
    """Rows the engine has not matched, asked for by someone who wants to wait for it."""


@dataclass(slots=True)
class Work:
    """How many rows one answer may compute, and has; None: not one, raise Uncovered.

    A row counts once for a predicate of the usual weight, and more often for a heavier one.
    `rows` are those that were computed, `left` what may still be counted.
    """

    limit: int | None
    rows: int = 0
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.limit or 0

    def take(self, rows: int, weight: int) -> int:
        """Counts as many of the rows as may be computed; at least one. Raises TooMuchWork."""
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
        return TooMuchWork(
            f"the engine has not matched this query yet, and this server computes at most "
            f"{self.limit:,} rows for one answer{heavy}; it did {self.rows:,} and will go on from "
            f"there when asked again",
            expected=f"at most {self.limit} rows",
            got=f"{self.rows} rows done, more next",
            hint="ask again, ask with wait_for_engine, or choose a shorter window",
        )


@dataclass
class Matcher:
    """One predicate over one stream, for one answer."""

    predicate: int
    stream_id: int
    where: Expression
    view: EpochView
    files: Path
    known: MatchCache
    cache: MatchFileCache
    work: Work

    @cached_property
    def covered(self) -> list[Range]:
        return self.view.covering(self.stream_id).ranges(self.predicate)

    def match(self, part: Part, lo: int, hi: int) -> Int64s:
        """The ids in `[lo, hi)` of a part, which lies in one block, that match."""
        spending()(_PART_UNITS + hi - lo)
        known = self.remembered(part, lo, hi)
        return self._found(part, lo, hi) if known is None else known

    def remembered(self, part: Part, lo: int, hi: int) -> Int64s | None:
        """The same where no file and no row has to be looked at; None elsewhere."""
        if self.where == TRUE:
            return part.ids[part.ids.searchsorted(lo) : part.ids.searchsorted(hi)]
        piece = self.known.probe(self.predicate, part.first >> BLOCK_BITS)
        return None if piece.missing(lo, hi) else piece.between(lo, hi)

    def _found(self, part: Part, lo: int, hi: int) -> Int64s:
        block = part.first >> BLOCK_BITS
        piece = self._without_rows(block, lo, hi)
        while missing := piece.missing(lo, hi):
            # Some at a time, so that what is computed stays known where the rest is too much.
            allowed = _first_of(
                missing, self.work.take(min(size(missing), self._step), self._weight)
            )
            lows = np.concatenate([self._computed(part, *gap) for gap in allowed])
            piece = self.known.insert(self.predicate, block, allowed, lows)
        return piece.between(lo, hi)

    @cached_property
    def _weight(self) -> int:
        return weight_of(self.where)

    @property
    def _step(self) -> int:
        """Rows that are computed before they are known."""
        return max(_LEAST_STEP, _STEP_WEIGHT // self._weight)

    def lacks(self, block: int, high: int) -> bool:
        """Whether no row of a block below `high` matches, if that can be said without its rows."""
        if self.where == TRUE:
            return False
        lo, hi = block << BLOCK_BITS, min((block + 1) << BLOCK_BITS, high)
        piece = self._without_rows(block, lo, hi)
        return not piece.missing(lo, hi) and not len(piece.between(lo, hi))

    def _without_rows(self, block: int, lo: int, hi: int) -> BlockMatches:
        """What is known or stored of a block; some of `[lo, hi)` may be missing."""
        piece = self.known.probe(self.predicate, block)
        if piece.missing(lo, hi):
            stored = intersect(block << BLOCK_BITS, (block + 1) << BLOCK_BITS, self.covered)
            if any(intersect(*gap, stored) for gap in piece.missing(lo, hi)):
                piece = self.known.insert(self.predicate, block, stored, self._stored(block))
        return piece

    def _stored(self, block: int) -> UInt16s:
        """All stored matches of the block, in whatever pieces."""
        found = [
            lows
            for file in self.view.files_for(self.stream_id, block, self.predicate)
            for lows in self.cache.find(self.files, file, self.predicate, block)
        ]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.uint16)

    def _computed(self, part: Part, lo: int, hi: int) -> UInt16s:
        first, last = np.searchsorted(part.ids, [lo, hi])
        rows = part.rows.slice(first, last - first)
        found = matches(self.where, query_view(rows)) & are_rows(rows)
        return (part.ids[first:last][found] & BLOCK_MASK).astype(np.uint16)


def _first_of(gaps: list[Range], count: int) -> list[Range]:
    """The first `count` ids of the gaps."""
    found: list[Range] = []
    for lo, hi in gaps:
        if count > 0:
            found.append((lo, min(hi, lo + count)))
            count -= hi - lo
    return found
