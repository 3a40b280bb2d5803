"""Which rows of a keyed stream a window holds: some of those that are current, by their ids."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS, Part
from datastem.equality import canonical, codes
from datastem.keyed_rows import KeyedRows
from datastem.stem import StemView
from psoup.server.choosing import Choice, Horizon
from psoup.server.keyed import KeyedView
from results.region import row_region, time_region
from results.row_order import newest_of_each
from results.window import UNBOUNDED, CountWindow, RowWindow, TimeWindow, Window


def choose_current(window: Window, keyed: KeyedView, horizon: Horizon) -> Choice:
    """The rows current at NOW, or at the instant SLIDE sets it back to, that the window holds."""
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
            return Choice(region, _newest(window, keyed.stem, rows, high))
    return Choice(region, rows.ids[region.holds(rows.ts, rows.ids)])


def parts_of(stem: StemView, ids: Int64s, high: int) -> Iterator[Part]:
    """The parts that hold rows with these ascending ids, all below `high`."""
    for number in np.unique(ids >> BLOCK_BITS).tolist():
        for part in stem.parts(number, high):
            first, last = np.searchsorted(ids, [part.first, part.stop])
            if first < last:
                yield part


def _newest(window: CountWindow, stem: StemView, rows: KeyedRows, high: int) -> Int64s:
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
