"""`ROWS n PARTITION BY`: the newest rows of each partition of a stream.

Those of all rows seen so far are kept, so that an answer looks at later rows only. What is kept
stays right as rows leave the retention, because the oldest of a partition leave first.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS, Part
from datastem.equality import canonical, codes
from datastem.instants import SINCE_EVER
from datastem.stem import StemView
from psoup.server.folding import Fold
from psoup.server.summaries import Entry, Summaries
from results.region import Region
from results.row_order import newest_of_each
from results.window import CountWindow

_NOTHING = Entry(0, 0, SINCE_EVER, SINCE_EVER, None, 0)


def newest_of_partitions(
    window: CountWindow, stem: StemView, region: Region, summaries: Summaries, stream_id: int
) -> tuple[Region, Int64s]:
    """The ids of the region's rows that are chosen, ascending, and a region just around them."""
    subject = ("newest", stream_id, window.partition_by, window.rows)
    kept = summaries.probe((subject, "seen"))
    seen = kept if kept is not None and _holds_seen(region, kept) else _NOTHING
    rest = replace(region, lo=max(region.lo, seen.stop))
    found = _later(seen.value, _newest(window, stem, rest, summaries, subject), window.rows)
    if found is None:
        return Region(None, (0, 0), 0, 0), np.empty(0, np.int64)
    if rest.lo < rest.hi and (kept is None or kept.stop <= rest.hi):
        top = max(_top(stem, rest), seen.high)
        if top < region.until[0]:
            entry = Entry(0, region.hi, _begin(region), top, found, found.nbytes)
            summaries.insert((subject, "seen"), entry)
    chosen = found.inside(region)
    around = region.narrowed(since=(int(chosen.ts.min()), 0)) if len(chosen.ids) else region
    return around, chosen.ids


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest rows of each partition of some run, by ascending id."""

    ids: Int64s
    ts: Int64s
    keys: tuple[pa.Array, ...]

    @property
    def nbytes(self) -> int:
        return int(self.ids.nbytes + self.ts.nbytes + sum(key.nbytes for key in self.keys))

    @classmethod
    def joined(cls, parts: Sequence[Newest]) -> Newest:
        ids = np.concatenate([part.ids for part in parts])
        ts = np.concatenate([part.ts for part in parts])
        keys = [pa.concat_arrays(k) for k in zip(*(part.keys for part in parts), strict=True)]
        every = cls(ids, ts, tuple(keys))
        return every if (ids[1:] > ids[:-1]).all() else every.take(np.argsort(ids))

    def take(self, places: Int64s) -> Newest:
        keys = tuple(key.take(pa.array(places)) for key in self.keys)
        return Newest(self.ids[places], self.ts[places], keys)

    def cut(self, count: int) -> Newest:
        code, _ = codes(self.keys, len(self.ids))
        places = newest_of_each(code, self.ts, self.ids, count)
        return self if len(places) == len(self.ids) else self.take(places)

    def inside(self, region: Region) -> Newest:
        held = region.holds(self.ts, self.ids)
        return self if held.all() else self.take(np.flatnonzero(held))

    def extended(self, later: Newest, count: int) -> Newest:
        """With rows whose ids are greater; looks again only at the partitions those are of."""
        both = Newest.joined([self, later])
        code, firsts = codes(both.keys, len(both.ids))
        touched = np.zeros(len(firsts), np.bool_)
        touched[code[len(self.ids) :]] = True
        changing = np.flatnonzero(touched[code])
        newest = newest_of_each(code[changing], both.ts[changing], both.ids[changing], count)
        kept = ~touched[code]
        kept[changing[newest]] = True
        return both.take(np.flatnonzero(kept))


def _later(old: Newest | None, later: Newest | None, count: int) -> Newest | None:
    if old is None or later is None:
        return old or later
    return old.extended(later, count)


def _begin(region: Region) -> int:
    return SINCE_EVER if region.begin is None else region.begin


def _holds_seen(region: Region, seen: Entry) -> bool:
    """Whether it has all the rows that were seen, but for some that have left the retention."""
    within = seen.stop <= region.hi and seen.high < region.until[0]
    return within and seen.low <= _begin(region)


def _top(stem: StemView, region: Region) -> int:
    """No row from the region's first id on has a greater ts."""
    numbers = range(region.lo >> BLOCK_BITS, ((region.hi - 1) >> BLOCK_BITS) + 1)
    return max((stem.latest(number) for number in numbers), default=SINCE_EVER)


def _newest(
    window: CountWindow, stem: StemView, region: Region, summaries: Summaries, subject: Hashable
) -> Newest | None:
    def of(part: Part, places: Int64s) -> Newest:
        places = places[region.holds(part.ts[places], part.ids[places])]
        rows = part.rows.select(list(window.partition_by)).take(pa.array(places))
        keys = tuple(canonical(rows.column(name)) for name in window.partition_by)
        return Newest(part.ids[places], part.ts[places], keys).cut(window.rows)

    def merge(parts: Sequence[Newest]) -> Newest:
        return parts[0] if len(parts) == 1 else Newest.joined(parts).cut(window.rows)

    found = Fold(summaries, subject, stem, region, of, merge).values()
    return merge(found) if found else None
