"""The newest rows by (ts, row_id), of a stream or of each partition of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s
from results.region import Moment


@dataclass(frozen=True, slots=True)
class Run:
    """Some rows, at least one: their ts, their ids, and the least and the greatest ts."""

    ts: Int64s
    ids: Int64s
    low: int
    high: int


def nth_newest(runs: Sequence[Run], count: int) -> Moment | None:
    """The `count`-th newest row of all, None where there are fewer. `count` is 1 or more.

    Looks only into those runs that their bounds leave in doubt, and sorts none.
    """
    sizes = np.array([len(run.ts) for run in runs], np.int64)
    if sizes.sum() < count:
        return None
    lows = np.array([run.low for run in runs], np.int64)
    highs = np.array([run.high for run in runs], np.int64)
    floor = _reached(lows, sizes, count)
    ceiling = _reached(highs, sizes, count)
    need = count - int(sizes[lows > ceiling].sum())
    doubtful = [run for run in runs if run.low <= ceiling and run.high >= floor]
    ts = np.concatenate([run.ts for run in doubtful])
    ids = np.concatenate([run.ids for run in doubtful])
    instant = int(np.partition(ts, len(ts) - need)[len(ts) - need])
    level = ids[ts == instant]
    need -= int((ts > instant).sum())
    return instant, int(np.partition(level, len(level) - need)[len(level) - need])


def newest_of_each(codes: Int64s, ts: Int64s, ids: Int64s, count: int) -> Int64s:
    """The places of the newest `count` rows of each partition, ascending.

    `codes` number the partitions from 0.
    """
    if not len(codes):
        return np.empty(0, np.int64)
    order = _by_code(codes) if _rising(ts, ids) else np.lexsort((ids, ts, codes))
    ends = np.cumsum(np.bincount(codes))
    from_end = ends[codes[order]] - np.arange(len(order))
    return np.sort(order[from_end <= count])


def _rising(ts: Int64s, ids: Int64s) -> bool:
    after = (ts[1:] > ts[:-1]) | ((ts[1:] == ts[:-1]) & (ids[1:] > ids[:-1]))
    return bool(after.all())


def _by_code(codes: Int64s) -> Int64s:
    # numpy sorts 16 bits by their digits, many times faster than it compares.
    narrow = codes.astype(np.uint16) if int(codes.max()) < 1 << 16 else codes
    return np.argsort(narrow, kind="stable")


def _reached(bounds: Int64s, sizes: Int64s, count: int) -> int:
    """The greatest bound such that the runs whose bound is no less have `count` rows together."""
    order = np.argsort(-bounds)
    place = int(np.searchsorted(np.cumsum(sizes[order]), count))
    return int(bounds[order[place]])
