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
        # Predicates in quarantine are not matched until they are released.
        waiting = ~np.isin(ids, list(view.epoch.epoch.quarantine.predicates))
        ids, begins = ids[waiting], begins[waiting]
        # For each predicate: the ends of the rows that it may have met.
        zero, high = np.zeros_like(ids), np.full_like(ids, mark.high)
        coverage = view.epoch.covering(stream_id)
        if (coverage.covered_rows(ids, zero, high) < high).any():
            floors = _floors(view, stream_id, mark.high)
            least = np.full_like(ids, min(floors.least, mark.high))
            # For each predicate: the first row id that its windows reach.
            first = _rows_of(floors, begins)
            reachable += int((high - first - coverage.covered_rows(ids, first, high)).sum())
            unreachable += int((first - least - coverage.covered_rows(ids, least, first)).sum())
    return Pending(reachable, unreachable)


def _rows_of(floors: RowFloors, begins: Int64s) -> Int64s:
    """Return, for each instant, the row id of the epoch from which on rows with that ts or a later
    one may be."""
    instants, inverse = np.unique(begins, return_inverse=True)
    rows = [max(floors.floor(begin), floors.least) for begin in instants.tolist()]
    return np.minimum(np.array(rows, np.int64), floors.high)[inverse]


def _floors(view: View, stream_id: int, high: int) -> RowFloors:
    segments = view.stem(stream_id).index.segments.values()
    runs = {(segment.row_lo, segment.ts_hi) for group in segments for segment in group}
    return RowFloors.of(runs, high)
