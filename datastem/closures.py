"""Closures: which rows of a keyed stream learned their end from which row.

Rows come one after another. Each gives its predecessor in its key's order an end, its own ts; and
has an end itself where a successor was there before. So the end of a row as known from ids below
`high` is the least one of its closures with `by < high`, whatever came together in a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s
from datastem.runs import FIRST, NEVER, KeyedRows, Runs


@dataclass(frozen=True, slots=True)
class Closures:
    """Row `ids[n]` ended at `ends[n]`, which the row `by[n]` made known."""

    ids: Int64s
    ends: Int64s
    by: Int64s


def caused(runs: Runs, rows: KeyedRows) -> Closures:
    """The closures of inserting `rows`, whose ids ascend and are greater than those of the runs."""
    new = rows.sorted()
    before_ts, before_id, after_ts = _among(new)
    for run in runs.runs:
        first, place, stop = run.find(new)
        found = np.flatnonzero(place > first)
        last = place[found] - 1
        ts, ids = run.ts[last], run.ids[last]
        later = (ts > before_ts[found]) | ((ts == before_ts[found]) & (ids > before_id[found]))
        before_ts[found[later]], before_id[found[later]] = ts[later], ids[later]
        found = np.flatnonzero(place < stop)
        after_ts[found] = np.minimum(after_ts[found], run.ts[place[found]])
    ends, closed = before_id >= 0, after_ts < NEVER
    return Closures(
        np.concatenate([before_id[ends], new.ids[closed]]),
        np.concatenate([new.ts[ends], after_ts[closed]]),
        np.concatenate([new.ids[ends], new.ids[closed]]),
    )


def _among(new: KeyedRows) -> tuple[Int64s, Int64s, Int64s]:
    """For each of the sorted rows its neighbours among those that came before it: the ts and id of
    its predecessor (FIRST and -1 where it has none), the ts of its successor (NEVER)."""
    before = _nearest_earlier(new.keys, new.ids)
    after = len(new) - 1 - _nearest_earlier(new.keys[::-1], new.ids[::-1])[::-1]
    has, gets = before >= 0, after < len(new)
    before_ts, before_id = np.full(len(new), FIRST), np.full(len(new), -1)
    before_ts[has], before_id[has] = new.ts[before[has]], new.ids[before[has]]
    after_ts = np.full(len(new), NEVER)
    after_ts[gets] = new.ts[after[gets]]
    return before_ts, before_id, after_ts


def _nearest_earlier(keys: Int64s, ids: Int64s) -> Int64s:
    """For each place the nearest one before it of the same key with a smaller id, or -1.

    Doubling: the least id of each 2^n places is known, and steps over larger ids get shorter.
    """
    places = np.arange(len(ids))
    heads = np.ones(len(ids), np.bool_)
    heads[1:] = keys[1:] != keys[:-1]
    start = np.maximum.accumulate(np.where(heads, places, 0))
    behind = places[~heads]
    behind = behind[ids[behind] < ids[behind - 1]]
    found = np.where(heads, -1, places - 1)
    if not len(behind):
        return found
    least = [ids]
    while 1 << len(least) <= int((behind - start[behind]).max()):
        width = 1 << (len(least) - 1)
        least.append(np.minimum(least[-1][:-width], least[-1][width:]))
    at = behind.copy()
    for power in reversed(range(len(least))):
        step = at - (1 << power)
        fits = step >= start[behind]
        skip = np.zeros(len(at), np.bool_)
        skip[fits] = least[power][step[fits]] > ids[behind[fits]]
        at[skip] = step[skip]
    found[behind] = np.where(at > start[behind], at - 1, -1)
    return found
