"""What the engine has yet to match, told apart: what windows can reach, and the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from datastem.arrays import Int64s
from psoup.answers.replicas.view import View
from psoup.store.interest import Interests, RowFloors

_EVERY_ID = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Pending:
    """Rows × predicates of an epoch that were not matched: those that some window of the predicate
    can reach, and the others."""

    reached: int = 0
    rest: int = 0


def pending_of(view: View, interests: Interests) -> Pending:
    """Adds up what is pending in all streams; `interests` are those of the view's state."""
    reached = rest = 0
    for stream_id, mark in view.epoch.epoch.streams.items():
        stream = view.state.streams[stream_id]
        if stream.dropped or not mark.high:
            continue
        ids, begins = interests.begins(view.state, stream_id, 0, _EVERY_ID)
        lowest = view.epoch.covering(stream_id).lowest(ids)
        # Predicates that are set aside are not matched until they are released.
        lowest[np.isin(ids, list(view.epoch.epoch.quarantine.predicates))] = 0
        if len(ids) and lowest.max() > 0:
            floors = _floors(view, stream_id, mark.high)
            wanted = _rows_of(floors, begins)
            reached += int(np.maximum(lowest - wanted, 0).sum())
            rest += int(np.maximum(np.minimum(lowest, wanted) - floors.least, 0).sum())
    return Pending(reached, rest)


def _rows_of(floors: RowFloors, begins: Int64s) -> Int64s:
    """The row ids from which on rows with a ts of these instants or later may be."""
    different, which = np.unique(begins, return_inverse=True)
    rows = [max(floors.floor(begin), floors.least) for begin in different.tolist()]
    return np.array(rows, np.int64)[which]


def _floors(view: View, stream_id: int, high: int) -> RowFloors:
    held = view.stem(stream_id).index.segments.values()
    runs = {(one.row_lo, one.ts_hi) for several in held for one in several}
    return RowFloors.of(runs, high)
