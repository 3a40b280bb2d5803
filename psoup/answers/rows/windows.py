"""Windows: which rows one holds at (position, NOW), before WHERE is asked.

The rows are a region of (ts, row id), or a set of row ids in it: the newest of each partition, or
those of a keyed stream that are current. Where policies show only some rows, which are current is
told from all of them, and rows are counted among those that are shown; so is a region chosen that
holds hidden rows too, which matching leaves out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS, Part
from datastem.equality import canonical, codes
from datastem.instants import FOR_EVER, SINCE_EVER
from datastem.keyed_rows import KeyedRows
from datastem.stem import StemView
from psoup.answers.caches import Memo
from psoup.answers.matching.shown_rows import ShownRows
from psoup.answers.replicas.keyed_history import KeyedView
from psoup.answers.rows.folds import Fold, FoldedRun
from results.id_sets import common_ids, member
from results.region import (
    Region,
    count_region,
    deciding_rows,
    row_region,
    slid_region,
    time_region,
)
from results.row_order import TimedRows, newest_of_each
from results.window import UNBOUNDED, CountWindow, RowWindow, TimeWindow, Window


@dataclass(frozen=True, slots=True)
class Choice:
    """The rows a window holds: all of the region, or of those the ones in `ids`, which ascend."""

    region: Region
    ids: Int64s | None = None

    def span(self, part: Part) -> tuple[int, int]:
        """Ids `[lo, hi)` outside of which no row of the part is chosen."""
        if self.ids is None:
            return part.first, part.stop
        low, high = np.searchsorted(self.ids, [part.first, part.stop])
        return (
            (int(self.ids[low]), int(self.ids[high - 1]) + 1) if low < high else (part.first,) * 2
        )

    def places(self, part: Part, ids: Int64s, inside: bool = False) -> Int64s:
        """The places in a part of the chosen rows among those with the given ascending ids.

        `inside` says that all of the given rows are in the region.
        """
        if self.ids is not None:
            low, high = np.searchsorted(self.ids, [part.first, part.stop])
            ids = common_ids(ids, self.ids[low:high])
        places = part.find(ids)
        if inside:
            return places
        held = self.region.holds(part.ts[places], part.ids[places])
        return places if held.all() else places[held]


@dataclass(frozen=True, slots=True)
class Horizon:
    """An answer's place in time and in the log: NOW, the least ts retained then, the next row
    id."""

    now: int
    oldest: int | None
    high: int


NO_ROWS = Choice(Region(None, (0, 0), 0, 0))


def choose(
    window: Window,
    stem: StemView,
    horizon: Horizon,
    memo: Memo,
    stream_id: int,
    shown: ShownRows | None = None,
) -> Choice:
    """The rows of a window over a stream without a key."""
    now, oldest, high = horizon.now, horizon.oldest, horizon.high
    match window:
        case TimeWindow():
            return Choice(time_region(window, now, oldest, high))
        case RowWindow():
            return Choice(row_region(window, now, oldest, high))
        case CountWindow():
            past = time_region(UNBOUNDED, now, oldest, high)
            total = _total(stem, horizon) if window.slide is not None else 0
            region = _counted(window, stem, past, total, shown)
            if not window.partition_by:
                return Choice(region)
            subject = (stream_id,) if shown is None else (stream_id, shown.subject)
            return Choice(*newest_of_partitions(window, stem, region, memo, subject, shown))


def _counted(
    window: CountWindow, stem: StemView, past: Region, total: int, shown: ShownRows | None
) -> Region:
    """The region of a window that counts rows. SLIDE goes by all rows of the stream."""
    if shown is None:
        runs = _newest_runs(stem, past, deciding_rows(window, total))
        return count_region(window, past, runs, total)
    if window.slide is not None:
        past = slid_region(window, past, _newest_runs(stem, past, total % window.slide), total)
    still = replace(window, slide=None)
    return count_region(still, past, _newest_runs(stem, past, deciding_rows(still, 0), shown), 0)


def _total(stem: StemView, horizon: Horizon) -> int:
    """How many rows with ts up to NOW there ever were: row ids count them."""
    waiting = sum(
        int((part.ts > horizon.now).sum())
        for part in stem.probe(horizon.now + 1, FOR_EVER, horizon.high)
    )
    return horizon.high - waiting


def _newest_runs(
    stem: StemView, past: Region, count: int, shown: ShownRows | None = None
) -> list[TimedRows]:
    """Runs of rows, newest blocks first: the newest `count` rows of the region and few others, of
    those that are shown."""
    if not count or past.empty:
        return []
    numbers = stem.numbers(past.begin, past.end, past.hi)
    tops = {number: stem.latest(number) for number in numbers}
    numbers.sort(key=lambda number: -tops[number])
    runs: list[TimedRows] = []
    for place, number in enumerate(numbers):
        if shown is None or not shown.lacks(number, past.hi):
            parts = stem.parts(number, past.hi)
            runs += [run for part in parts if (run := _run(part, past, shown))]
        next_top = tops[numbers[place + 1]] if place + 1 < len(numbers) else SINCE_EVER
        if _rows_after(runs, next_top, count):
            break
    return runs


def _rows_after(runs: Sequence[TimedRows], instant: int, count: int) -> bool:
    """Tells whether at least `count` rows of the runs are later than the instant."""
    if sum(len(run.ts) for run in runs if run.high > instant) < count:
        return False
    return count <= sum(
        len(run.ts) if run.low > instant else int((run.ts > instant).sum())
        for run in runs
        if run.high > instant
    )


def _run(part: Part, past: Region, shown: ShownRows | None) -> TimedRows | None:
    ts, ids = part.ts, part.ids
    if shown is None and past.contains(*part.bounds, part.first, part.stop):
        return TimedRows(ts, ids, *part.bounds)
    if shown is not None:
        places = shown.places(part)
        ts, ids = ts[places], ids[places]
    kept = past.holds(ts, ids)
    ts, ids = ts[kept], ids[kept]
    return TimedRows(ts, ids, int(ts.min()), int(ts.max())) if len(ts) else None


# ---- keyed streams


def choose_current(
    window: Window, keyed: KeyedView, horizon: Horizon, shown: ShownRows | None = None
) -> Choice:
    """The rows of a window over a keyed stream: of those that are current at NOW, or at the instant
    that SLIDE sets NOW back to."""
    now, high = horizon.now, horizon.high
    instant = window.present(now) if isinstance(window, TimeWindow) else now
    cut = None if horizon.oldest is None else horizon.oldest - 1
    rows = keyed.current(high, instant, cut)
    match window:
        case TimeWindow():
            region = time_region(window, now, None, high)
        case RowWindow():
            region = row_region(window, now, None, high)
        case CountWindow():
            region = time_region(UNBOUNDED, now, None, high)
            if shown is not None:
                ids = shown_among(shown, keyed.stem, rows.ids)
                rows = rows.take(member(rows.ids, ids))
            return Choice(region, _newest_current(window, keyed.stem, rows, high))
    return Choice(region, rows.ids[region.holds(rows.ts, rows.ids)])


def parts_of(stem: StemView, ids: Int64s, high: int) -> Iterator[Part]:
    """The parts that hold rows with these ascending ids, all below `high`."""
    blocks = ids >> BLOCK_BITS
    for number in blocks[np.flatnonzero(np.diff(blocks, prepend=-1))].tolist():
        for part in stem.parts(number, high):
            first, last = np.searchsorted(ids, [part.first, part.stop])
            if first < last:
                yield part


def shown_among(shown: ShownRows, stem: StemView, ids: Int64s) -> Int64s:
    """The ids, of some that ascend, whose rows are shown."""
    found = [ids[:0]]
    for part in parts_of(stem, ids, stem.high):
        low, high = np.searchsorted(ids, [part.first, part.stop])
        some = ids[low:high]
        found.append(common_ids(shown.match(part, int(some[0]), int(some[-1]) + 1), some))
    return np.concatenate(found)


def _newest_current(window: CountWindow, stem: StemView, rows: KeyedRows, high: int) -> Int64s:
    if not window.partition_by:
        order = np.lexsort((rows.ids, rows.ts))
        return np.sort(rows.ids[order[-window.rows :]])
    ids, ts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    keys: list[pa.RecordBatch] = []
    for part in parts_of(stem, rows.ids, high):
        places = part.find(rows.ids)
        ids.append(part.ids[places])
        ts.append(part.ts[places])
        keys.append(part.rows.select(list(window.partition_by)).take(pa.array(places)))
    if not keys:
        return ids[0]
    found, times = np.concatenate(ids), np.concatenate(ts)
    together = pa.concat_batches(keys)
    code, _ = codes([canonical(column) for column in together.columns], len(found))
    return found[newest_of_each(code, times, found, window.rows)]


# ---- ROWS n PARTITION BY


def newest_of_partitions(
    window: CountWindow,
    stem: StemView,
    region: Region,
    memo: Memo,
    rows: Hashable,
    shown: ShownRows | None = None,
) -> tuple[Region, Int64s]:
    """The ids of the region's rows that are chosen, ascending, and a region just around them.
    `rows` names the rows that are chosen from: those of the stem that are shown."""
    subject = ("newest", rows, window.partition_by, window.rows)
    kept = _seen(memo, subject)
    seen = kept if kept is not None and _holds_seen(region, kept) else None
    rest = region if seen is None else replace(region, lo=max(region.lo, seen.stop))
    later = _newest(window, stem, rest, memo, subject, shown)
    found = _later(seen.value if seen else None, later, window.rows)
    if found is None:
        return Region(None, (0, 0), 0, 0), np.empty(0, np.int64)
    if rest.lo < rest.hi and (kept is None or kept.stop <= rest.hi):
        top = max(_top(stem, rest), seen.high if seen else SINCE_EVER)
        if top < region.until[0]:
            entry = FoldedRun(0, region.hi, _begin(region), top, found)
            memo.put((subject, "seen"), entry, found.nbytes)
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
        """These rows and later ones, whose ids are greater.

        Only the partitions that have later rows are looked at again.
        """
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


def _seen(memo: Memo, subject: Hashable) -> FoldedRun[Newest] | None:
    kept = memo.get((subject, "seen"))
    return kept if isinstance(kept, FoldedRun) else None


def _holds_seen(region: Region, seen: FoldedRun[Newest]) -> bool:
    """Tells whether a region has all the rows that were seen, but for some that left the
    retention."""
    within = seen.stop <= region.hi and seen.high < region.until[0]
    return within and seen.low <= _begin(region)


def _top(stem: StemView, region: Region) -> int:
    """No row from the region's first id on has a greater ts."""
    numbers = range(region.lo >> BLOCK_BITS, ((region.hi - 1) >> BLOCK_BITS) + 1)
    return max((stem.latest(number) for number in numbers), default=SINCE_EVER)


def _newest(
    window: CountWindow,
    stem: StemView,
    region: Region,
    memo: Memo,
    subject: Hashable,
    shown: ShownRows | None,
) -> Newest | None:
    def of(part: Part, places: Int64s) -> Newest:
        places = places if shown is None else shown.places(part, places)
        places = places[region.holds(part.ts[places], part.ids[places])]
        rows = part.rows.select(list(window.partition_by)).take(pa.array(places))
        keys = tuple(canonical(rows.column(name)) for name in window.partition_by)
        return Newest(part.ids[places], part.ts[places], keys).cut(window.rows)

    def merge(parts: Sequence[Newest]) -> Newest:
        return parts[0] if len(parts) == 1 else Newest.joined(parts).cut(window.rows)

    found = Fold(memo, subject, stem, region, of, merge).values()
    return merge(found) if found else None
