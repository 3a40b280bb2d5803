"""Windows: which rows a window holds at (position, NOW), before WHERE is applied.

The rows are a region of (ts, row id), or a set of row ids in it: the newest of each partition, or
the current rows of a keyed stream. If policies permit only some rows, all rows decide which are
current, but only permitted rows are counted. A region may hold rows that are not permitted;
matching leaves them out.
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
from datastem.stem_view import StemView
from psoup.answers.caches import Memo
from psoup.answers.matching.permitted_rows import PermittedRows
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
    """The rows that a window holds: all of the region, or only those in `ids`, which ascend."""

    region: Region
    ids: Int64s | None = None

    def span(self, part: Part) -> tuple[int, int]:
        """Return ids `[lo, hi)` outside of which no row of the part is chosen."""
        if self.ids is None:
            return part.first, part.stop
        low, high = np.searchsorted(self.ids, [part.first, part.stop])
        return (
            (int(self.ids[low]), int(self.ids[high - 1]) + 1) if low < high else (part.first,) * 2
        )

    def places(self, part: Part, ids: Int64s, inside: bool = False) -> Int64s:
        """Return the places in a part of the chosen rows among those with these ascending ids.

        `inside` says that all of these rows are in the region.
        """
        if self.ids is not None:
            low, high = np.searchsorted(self.ids, [part.first, part.stop])
            ids = common_ids(ids, self.ids[low:high])
        places = part.find(ids)
        if inside:
            return places
        mask = self.region.holds(part.ts[places], part.ids[places])
        return places if mask.all() else places[mask]


@dataclass(frozen=True, slots=True)
class Horizon:
    """The moment of an answer: NOW, the least ts retained then, and the next row id."""

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
    permitted: PermittedRows | None = None,
) -> Choice:
    """Return the rows of a window over a stream without a stream key."""
    now, oldest, high = horizon.now, horizon.oldest, horizon.high
    match window:
        case TimeWindow():
            return Choice(time_region(window, now, oldest, high))
        case RowWindow():
            return Choice(row_region(window, now, oldest, high))
        case CountWindow():
            past = time_region(UNBOUNDED, now, oldest, high)
            total = _total(stem, horizon) if window.slide is not None else 0
            region = _counted(window, stem, past, total, permitted)
            if not window.partition_by:
                return Choice(region)
            rows = stream_id, stem.erased_rows
            subject = rows if permitted is None else (*rows, permitted.subject)
            return Choice(*newest_of_partitions(window, stem, region, memo, subject, permitted))


def _counted(
    window: CountWindow, stem: StemView, past: Region, total: int, permitted: PermittedRows | None
) -> Region:
    """Return the region of a window that counts rows. SLIDE counts all rows of the stream, also
    those that are not permitted."""
    if permitted is None:
        runs = _newest_runs(stem, past, deciding_rows(window, total))
        return count_region(window, past, runs, total)
    if window.slide is not None:
        past = slid_region(window, past, _newest_runs(stem, past, total % window.slide), total)
    # `past` has SLIDE applied to it, by all rows; from here on only permitted rows count.
    unslid = replace(window, slide=None)
    runs = _newest_runs(stem, past, deciding_rows(unslid, 0), permitted)
    return count_region(unslid, past, runs, 0)


def _total(stem: StemView, horizon: Horizon) -> int:
    """Return how many rows with ts up to NOW there ever were: row ids count them."""
    waiting = sum(
        int((part.ts > horizon.now).sum())
        for part in stem.probe(horizon.now + 1, FOR_EVER, horizon.high)
    )
    return horizon.high - waiting


def _newest_runs(
    stem: StemView, past: Region, count: int, permitted: PermittedRows | None = None
) -> list[TimedRows]:
    """Return runs of permitted rows, newest blocks first, that have the newest `count` rows of the
    region and few others."""
    if not count or past.empty:
        return []
    numbers = stem.numbers(past.begin, past.end, past.hi)
    # Upper bounds of the ts in each block, known without reading it. Blocks are read in this order,
    # so that the newest rows come first.
    tops = {number: stem.latest(number) for number in numbers}
    numbers.sort(key=lambda number: -tops[number])
    runs: list[TimedRows] = []
    for place, number in enumerate(numbers):
        if permitted is None or not permitted.lacks(number, past.hi):
            parts = stem.parts(number, past.hi)
            runs += [run for part in parts if (run := _run(part, past, permitted))]
        next_top = tops[numbers[place + 1]] if place + 1 < len(numbers) else SINCE_EVER
        # No block that is left has a row later than `next_top`.
        if _rows_after(runs, next_top, count):
            break
    return runs


def _rows_after(runs: Sequence[TimedRows], instant: int, count: int) -> bool:
    """Return True if at least `count` rows of the runs are later than the instant."""
    if sum(len(run.ts) for run in runs if run.high > instant) < count:
        return False
    return count <= sum(
        len(run.ts) if run.low > instant else int((run.ts > instant).sum())
        for run in runs
        if run.high > instant
    )


def _run(part: Part, past: Region, permitted: PermittedRows | None) -> TimedRows | None:
    """Return the permitted rows of a part in a region; None if there are none."""
    ts, ids = part.ts, part.ids
    if permitted is None and past.contains(*part.bounds, part.first, part.stop):
        return TimedRows(ts, ids, *part.bounds)
    if permitted is not None:
        places = permitted.places(part)
        ts, ids = ts[places], ids[places]
    inside = past.holds(ts, ids)
    ts, ids = ts[inside], ids[inside]
    return TimedRows(ts, ids, int(ts.min()), int(ts.max())) if len(ts) else None


# ---- keyed streams


def choose_current(
    window: Window, keyed: KeyedView, horizon: Horizon, permitted: PermittedRows | None = None
) -> Choice:
    """Return the rows of a window over a keyed stream, of those that are current at NOW, or at the
    instant that SLIDE sets NOW back to."""
    now, high = horizon.now, horizon.high
    instant = window.present(now) if isinstance(window, TimeWindow) else now
    # The retention of a keyed stream counts from the end of a row, not from its ts. So `cut`
    # applies to the ends, and the regions below get no oldest ts.
    cut = None if horizon.oldest is None else horizon.oldest - 1
    rows = keyed.current(high, instant, cut)
    match window:
        case TimeWindow():
            region = time_region(window, now, None, high)
        case RowWindow():
            region = row_region(window, now, None, high)
        case CountWindow():
            region = time_region(UNBOUNDED, now, None, high)
            if permitted is not None:
                ids = permitted_among(permitted, keyed.stem, rows.ids)
                rows = rows.take(member(rows.ids, ids))
            return Choice(region, _newest_current(window, keyed.stem, rows, high))
    return Choice(region, rows.ids[region.holds(rows.ts, rows.ids)])


def parts_of(stem: StemView, ids: Int64s, high: int) -> Iterator[Part]:
    """Yield the parts that hold rows with these ascending ids, all below `high`."""
    blocks = ids >> BLOCK_BITS
    # The distinct blocks: an id counts if its block differs from that of the id before it.
    for number in blocks[np.flatnonzero(np.diff(blocks, prepend=-1))].tolist():
        for part in stem.parts(number, high):
            first, last = np.searchsorted(ids, [part.first, part.stop])
            if first < last:
                yield part


def permitted_among(permitted: PermittedRows, stem: StemView, ids: Int64s) -> Int64s:
    """Return the ids, of some that ascend, whose rows are permitted."""
    pieces = [ids[:0]]
    for part in parts_of(stem, ids, stem.high):
        low, high = np.searchsorted(ids, [part.first, part.stop])
        # Never empty: `parts_of` yields only parts with at least one of the ids in their range.
        inside = ids[low:high]
        matches = permitted.match(part, int(inside[0]), int(inside[-1]) + 1)
        pieces.append(common_ids(matches, inside))
    return np.concatenate(pieces)


def _newest_current(window: CountWindow, stem: StemView, rows: KeyedRows, high: int) -> Int64s:
    """Return the ascending ids of the newest current rows, in all or of each partition."""
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
    # The id and the ts of each current row, by ascending id, parallel to `partitions`.
    row_ids, instants = np.concatenate(ids), np.concatenate(ts)
    partitions = pa.concat_batches(keys)
    # The number of each row's partition, in the order of `row_ids`.
    code, _ = codes([canonical(column) for column in partitions.columns], len(row_ids))
    return row_ids[newest_of_each(code, instants, row_ids, window.rows)]


# ---- ROWS n PARTITION BY


def newest_of_partitions(
    window: CountWindow,
    stem: StemView,
    region: Region,
    memo: Memo,
    rows: Hashable,
    permitted: PermittedRows | None = None,
) -> tuple[Region, Int64s]:
    """Return a region just around the newest rows of each partition, and their ascending ids.

    `rows` names the rows that are chosen from: those of the stem that are permitted. The result for
    all rows up to the newest is cached, so that the next answer only adds the rows since then.
    """
    subject = ("newest", rows, window.partition_by, window.rows)
    cached = _cached_newest(memo, subject)
    # An answer as of an earlier moment can't use what later rows have decided.
    usable = cached if cached is not None and _covers(region, cached) else None
    since = region if usable is None else replace(region, lo=max(region.lo, usable.stop))
    later = _newest(window, stem, since, memo, subject, permitted)
    newest = _extended(usable.value if usable else None, later, window.rows)
    if newest is None:
        return Region(None, (0, 0), 0, 0), np.empty(0, np.int64)
    # An entry of a later answer is not replaced. A row that waits for NOW is not in `newest`, so an
    # entry that ends after such a row would lose it.
    if since.lo < since.hi and (cached is None or cached.stop <= since.hi):
        top = max(_top(stem, since), usable.high if usable else SINCE_EVER)
        if top < region.until[0]:
            entry = FoldedRun(0, region.hi, _begin(region), top, newest)
            memo.put((subject, "seen"), entry, newest.nbytes)
    # A cached result may have rows that have left the retention since.
    chosen = newest.inside(region)
    around = region.narrowed(since=(int(chosen.ts.min()), 0)) if len(chosen.ids) else region
    return around, chosen.ids


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest rows of each partition of a run of rows, by ascending id. `keys` are the
    partitions' columns."""

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
        # Chunks that are cut by time may interleave their ids.
        return every if (ids[1:] > ids[:-1]).all() else every.take(np.argsort(ids))

    def take(self, places: Int64s) -> Newest:
        keys = tuple(key.take(pa.array(places)) for key in self.keys)
        return Newest(self.ids[places], self.ts[places], keys)

    def cut(self, count: int) -> Newest:
        code, _ = codes(self.keys, len(self.ids))
        places = newest_of_each(code, self.ts, self.ids, count)
        return self if len(places) == len(self.ids) else self.take(places)

    def inside(self, region: Region) -> Newest:
        mask = region.holds(self.ts, self.ids)
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def extended(self, later: Newest, count: int) -> Newest:
        """Return the newest of these rows and later ones, whose ids must be greater.

        Only the partitions that have later rows are computed again.
        """
        both = Newest.joined([self, later])
        # `code` has the number of each row's partition; `touched` is a mask of partitions.
        code, firsts = codes(both.keys, len(both.ids))
        touched = np.zeros(len(firsts), np.bool_)
        # Later rows have greater ids, so they come last in `both`.
        touched[code[len(self.ids) :]] = True
        changing = np.flatnonzero(touched[code])
        newest = newest_of_each(code[changing], both.ts[changing], both.ids[changing], count)
        # A mask of `both`: all rows of untouched partitions, and the newest of the others.
        chosen = ~touched[code]
        chosen[changing[newest]] = True
        return both.take(np.flatnonzero(chosen))


def _extended(old: Newest | None, later: Newest | None, count: int) -> Newest | None:
    if old is None or later is None:
        return old or later
    return old.extended(later, count)


def _begin(region: Region) -> int:
    return SINCE_EVER if region.begin is None else region.begin


def _cached_newest(memo: Memo, subject: Hashable) -> FoldedRun[Newest] | None:
    cached = memo.get((subject, "seen"))
    return cached if isinstance(cached, FoldedRun) else None


def _covers(region: Region, run: FoldedRun[Newest]) -> bool:
    """Return True if a region has all rows of a run, except some that left the retention."""
    within = run.stop <= region.hi and run.high < region.until[0]
    return within and run.low <= _begin(region)


def _top(stem: StemView, region: Region) -> int:
    """Return a ts that no row from the region's first id on exceeds."""
    numbers = range(region.lo >> BLOCK_BITS, ((region.hi - 1) >> BLOCK_BITS) + 1)
    return max((stem.latest(number) for number in numbers), default=SINCE_EVER)


def _newest(
    window: CountWindow,
    stem: StemView,
    region: Region,
    memo: Memo,
    subject: Hashable,
    permitted: PermittedRows | None,
) -> Newest | None:
    def of(part: Part, places: Int64s) -> Newest:
        places = places if permitted is None else permitted.places(part, places)
        places = places[region.holds(part.ts[places], part.ids[places])]
        rows = part.rows.select(list(window.partition_by)).take(pa.array(places))
        keys = tuple(canonical(rows.column(name)) for name in window.partition_by)
        return Newest(part.ids[places], part.ts[places], keys).cut(window.rows)

    def merge(parts: Sequence[Newest]) -> Newest:
        return parts[0] if len(parts) == 1 else Newest.joined(parts).cut(window.rows)

    values = Fold(memo, subject, stem, region, of, merge).values()
    return merge(values) if values else None
