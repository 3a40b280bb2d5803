"""Sets of row ids as runs: how many to skip, how many to take, again and again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datastem.arrays import Int64s, Mask


def to_runs(ids: Int64s) -> list[int]:
    """`ids` ascend, each once, from 0 upwards."""
    if not len(ids):
        return []
    breaks = np.flatnonzero(ids[1:] != ids[:-1] + 1) + 1
    starts = ids[np.concatenate([[0], breaks])]
    stops = ids[np.concatenate([breaks, [len(ids)]]) - 1] + 1
    skips = starts - np.concatenate([[0], stops[:-1]])
    runs: list[int] = np.column_stack([skips, stops - starts]).ravel().tolist()
    return runs


def from_runs(runs: Sequence[int], limit: int) -> Int64s:
    """Ascending. Raises ValueError for what is no set of runs, or has more than `limit` ids."""
    if len(runs) % 2 or any(number < 1 for number in runs[1:]):
        raise ValueError("runs are pairs of numbers from 1 upwards, but for the first")
    lengths = np.array(runs[1::2], np.uint64).astype(np.float64)
    if lengths.sum() > limit:
        raise ValueError(f"more than {limit:,} ids")
    stops = np.cumsum(np.array(runs, np.float64))
    if len(stops) and stops[-1] >= 2.0**63:
        raise ValueError("ids are less than 2^63")
    counts = np.array(runs, np.int64)
    ends, taken = np.cumsum(counts)[1::2], counts[1::2]
    places = np.cumsum(taken)
    total = int(places[-1]) if len(places) else 0
    ids: Int64s = np.arange(total) + np.repeat(ends - places, taken)
    return ids


def member(ids: Int64s, among: Int64s) -> Mask:
    """Which of the ids are among the others; `among` ascends."""
    if not len(among):
        return np.zeros(len(ids), np.bool_)
    places = np.searchsorted(among, ids)
    places[places == len(among)] = 0
    found: Mask = among[places] == ids
    return found
