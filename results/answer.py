"""An answer's order: by (ts, row_id)."""

from __future__ import annotations

import numpy as np

from datastem.arrays import Int64s


def order(ts: Int64s, ids: Int64s) -> Int64s | None:
    """The permutation that sorts by (ts, row_id), or None where the rows are sorted already."""
    if len(ts) < 2:
        return None
    rising = ts[1:] > ts[:-1]
    level = (ts[1:] == ts[:-1]) & (ids[1:] > ids[:-1])
    if (rising | level).all():
        return None
    return np.lexsort((ids, ts))
