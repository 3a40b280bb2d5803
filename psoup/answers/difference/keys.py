"""Keys of rows, for clients that keep what changes: which row is the update of which.

Rows of a keyed stream travel with a digest of their KEY, so that a client can tell an update from a
row that left and another that came. Of rows that are gone it is told which of them ended, because
their key was updated or deleted; the others were pushed out by their window.
"""

from __future__ import annotations

import numpy as np

from datastem.arrays import Int64s
from datastem.codec import KEY_FIELD
from psoup.answers.plan import LegPlan, Plan
from psoup.answers.windows import parts_of
from querystem.query import Leg
from results.id_sets import member

NO_IDS: Int64s = np.empty(0, np.int64)


def has_keys(plan: Plan) -> bool:
    """Tells whether the rows of an answer are rows of one keyed stream, so that each has a key."""
    query = plan.query
    plain = query.grouping is None and not query.distinct
    return plain and isinstance(query.source, Leg) and plan.leg.keyed is not None


def key_digests(leg: LegPlan, ids: Int64s) -> Int64s:
    """The digest of the key of each row of a keyed stream; the ids ascend."""
    found = [NO_IDS]
    for part in parts_of(leg.stem, ids, leg.stem.high):
        found.append(part.rows.column(KEY_FIELD.name).to_numpy()[part.find(ids)])
    return np.concatenate(found)


def ended_rows(leg: LegPlan, gone: Int64s, high: int, now: int | None, cut: int | None) -> Int64s:
    """The ids among those given that are not current at `now`, as known from ids below `high`."""
    if leg.keyed is None or now is None or not len(gone):
        return NO_IDS
    return gone[~member(gone, leg.keyed.current(high, now, cut).ids)]
