"""Which rows a window holds, before WHERE is asked: a region, or a set of row ids in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s
from datastem.blocks import Part
from datastem.instants import FOR_EVER, SINCE_EVER
from datastem.stem import StemView
from psoup.server.partitions import newest_of_partitions
from psoup.server.summaries import Summaries
from results.id_sets import common_ids
from results.region import Region, count_region, deciding_rows, row_region, time_region
from results.row_order import TimedRows
from results.window import UNBOUNDED, CountWindow, RowWindow, TimeWindow, Window


@dataclass(frozen=True, slots=True)
class Choice:
    """The rows of the region; where there are `ids`, only those, ascending."""

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
        """Where in the part the chosen ones of its rows with these ascending ids stand.

        `inside` says that they are all in the region.
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
    """When and how far: NOW, the least ts retained then, and the next row id."""

    now: int
    oldest: int | None
    high: int


def choose(
    window: Window, stem: StemView, horizon: Horizon, summaries: Summaries, stream_id: int
) -> Choice:
    now, oldest, high = horizon.now, horizon.oldest, horizon.high
    match window:
        case TimeWindow():
            return Choice(time_region(window, now, oldest, high))
        case RowWindow():
            return Choice(row_region(window, now, oldest, high))
        case CountWindow():
            past = time_region(UNBOUNDED, now, oldest, high)
            total = _total(stem, horizon) if window.slide is not None else 0
            runs = _newest_runs(stem, past, deciding_rows(window, total))
            region = count_region(window, past, runs, total)
            if not window.partition_by:
                return Choice(region)
            return Choice(*newest_of_partitions(window, stem, region, summaries, stream_id))


def _total(stem: StemView, horizon: Horizon) -> int:
    """How many rows with ts up to NOW there ever were: row ids count them."""
    waiting = sum(
        int((part.ts > horizon.now).sum())
        for part in stem.probe(horizon.now + 1, FOR_EVER, horizon.high)
    )
    return horizon.high - waiting


def _newest_runs(stem: StemView, past: Region, count: int) -> list[TimedRows]:
    """Runs that hold the newest `count` rows of the region, newest blocks first, and few others."""
    if not count or past.empty:
        return []
    numbers = stem.numbers(past.begin, past.end, past.hi)
    tops = {number: stem.latest(number) for number in numbers}
    numbers.sort(key=lambda number: -tops[number])
    runs: list[TimedRows] = []
    for place, number in enumerate(numbers):
        runs += [run for part in stem.parts(number, past.hi) if (run := _run(part, past))]
        next_top = tops[numbers[place + 1]] if place + 1 < len(numbers) else SINCE_EVER
        if _rows_after(runs, next_top, count):
            break
    return runs


def _rows_after(runs: Sequence[TimedRows], instant: int, count: int) -> bool:
    """Whether at least `count` of the rows are later than the instant."""
    if sum(len(run.ts) for run in runs if run.high > instant) < count:
        return False
    return count <= sum(
        len(run.ts) if run.low > instant else int((run.ts > instant).sum())
        for run in runs
        if run.high > instant
    )


def _run(part: Part, past: Region) -> TimedRows | None:
    if past.contains(*part.bounds, part.first, part.stop):
        return TimedRows(part.ts, part.ids, *part.bounds)
    kept = past.holds(part.ts, part.ids)
    ts, ids = part.ts[kept], part.ids[kept]
    return TimedRows(ts, ids, int(ts.min()), int(ts.max())) if len(ts) else None
