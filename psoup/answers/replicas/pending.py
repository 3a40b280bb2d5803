"""What the engine has yet to match: rows that windows can reach, and all others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s
from psoup.answers.replicas.view import View
from psoup.store.interest import Interests, RowFloors

_MAX_ID = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Pending:
    """Rows × predicates of an epoch that were not matched: those that a window of the predicate can
    reach, and those that none can."""

    reachable: int = 0
    unreachable: int = 0


def pending_of(view: View, interests: Interests) -> Pending:
    """Return what is pending in all streams. `interests` must be those of the view's state."""
    reachable = unreachable = 0
    for stream_id, mark in view.epoch.epoch.streams.items():
        stream = view.state.streams[stream_id]
        if stream.dropped or not mark.high:
            continue
        ids, begins = interests.begins(view.state, stream_id, 0, _MAX_ID)
        lowest = view.epoch.covering(stream_id).lowest(ids)
        # Predicates that are set aside are not matched until they are released.
        lowest[np.isin(ids, list(view.epoch.epoch.quarantine.predicates))] = 0
        if len(ids) and lowest.max() > 0:
            floors = _floors(view, stream_id, mark.high)
            # For each predicate: the first row id its windows reach; below `lowest` nothing is
            # matched.
            first = _rows_of(floors, begins)
            reachable += int(np.maximum(lowest - first, 0).sum())
            unreachable += int(np.maximum(np.minimum(lowest, first) - floors.least, 0).sum())
    return Pending(reachable, unreachable)


def _rows_of(floors: RowFloors, begins: Int64s) -> Int64s:
    """Return, for each instant, the row id from which on rows with that ts or a later one may
    be."""
    instants, inverse = np.unique(begins, return_inverse=True)
    rows = [max(floors.floor(begin), floors.least) for begin in instants.tolist()]
    return np.array(rows, np.int64)[inverse]


def _floors(view: View, stream_id: int, high: int) -> RowFloors:
    segments = view.stem(stream_id).index.segments.values()
    runs = {(segment.row_lo, segment.ts_hi) for group in segments for segment in group}
    return RowFloors.of(runs, high)
