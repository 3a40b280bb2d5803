"""An answer's order: by (ts, row_id)."""

from __future__ import annotations

from typing import Any

import numpy as np

Int64s = np.ndarray[Any, np.dtype[np.int64]]


def order(ts: Int64s, ids: Int64s) -> Int64s | None:
    """The permutation that sorts by (ts, row_id), or None where the rows are sorted already."""
    if len(ts) < 2:
        return None
    rising = ts[1:] > ts[:-1]
    level = (ts[1:] == ts[:-1]) & (ids[1:] > ids[:-1])
    if (rising | level).all():
        return None
    return np.lexsort((ids, ts))
