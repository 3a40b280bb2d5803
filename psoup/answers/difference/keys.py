"""Stream keys of rows, for clients that keep a log of changes: which row updates which.

Rows of a keyed stream are sent with a digest of their KEY, and combinations of such rows with one
of all their KEYs. So a client can distinguish an update from a row that left and another that was
added. The server also says which removed rows ended, because their stream key was updated or
deleted; the others were pushed out by their window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from datastem.codec import KEY_FIELD
from psoup.answers.planning.plan import LegPlan, Plan
from psoup.answers.rows.windows import parts_of
from querystem.combine.parts import NamingLeg, naming_legs
from querystem.legs import Leg
from results.checksum import key_ids
from results.id_sets import member
from results.masking import masked

NO_IDS: Int64s = np.empty(0, np.int64)


def is_combined(plan: Plan) -> bool:
    """Return True if the rows of an answer are combinations of rows, identified by all of them."""
    query = plan.query
    return query.grouping is None and not query.distinct and not isinstance(query.source, Leg)


def keyed_legs(plan: Plan) -> tuple[NamingLeg, ...]:
    """Return the legs whose stream keys identify the rows of an answer; none unless all legs that
    name rows are of keyed streams. Queries inside expressions add no rows."""
    legs = naming_legs(plan.query)
    if legs is None or any(plan.legs[leg.leg].keyed is None for leg in legs):
        return ()
    return legs


def has_keys(plan: Plan) -> bool:
    """Return True if each row of an answer has a stream key, or one of each row that it combines,
    which identify it."""
    return bool(keyed_legs(plan))


def key_digests(plan: Plan, parts: Sequence[Int64s]) -> Int64s:
    """Return a digest for each row of an answer that `has_keys`, given its parts: that of its
    stream key, or of the stream keys of all rows that it combines.

    Digests are masked if a view may hide a stream key.
    """
    # A part that is no row id stays as it is: the number of a branch, or -1 for no row.
    columns = [part.copy() for part in parts]
    for leg in keyed_legs(plan):
        places = leg.place.combinations(parts)
        row_ids = parts[leg.place.column][places]
        present = row_ids >= 0
        digests = _leg_digests(plan.legs[leg.leg], row_ids[present])
        columns[leg.place.column][places[present]] = digests
    is_one = len(columns) == 1
    combined = columns[0] if is_one else key_ids(list(map(pa.array, columns)), len(columns[0]))
    return masked(combined, plan.mask)


def _leg_digests(leg: LegPlan, row_ids: Int64s) -> Int64s:
    """Return the digest of the stream key of each row of a keyed leg, in the order of the ids."""
    # `parts_of` needs ascending ids, and a row may be part of many combinations.
    ids, inverse = np.unique(row_ids, return_inverse=True)
    digests = [
        part.rows.column(KEY_FIELD.name).to_numpy()[part.find(ids)]
        for part in parts_of(leg.stem, ids, leg.stem.high)
    ]
    return np.concatenate([NO_IDS, *digests])[inverse]


def with_ended(plan: Plan, parts: Sequence[Int64s], ended: Callable[[int, Int64s], Int64s]) -> Mask:
    """Return a mask of rows of an answer that `has_keys`, given their parts: true for those with a
    row whose stream key was updated or deleted. `ended` returns such ids, of some ids of the leg
    with a number."""
    mask = np.zeros(len(parts[0]), np.bool_)
    for leg in keyed_legs(plan):
        places = leg.place.combinations(parts)
        row_ids = parts[leg.place.column][places]
        ids = np.unique(row_ids[row_ids >= 0])
        mask[places] |= member(row_ids, ended(leg.leg, ids))
    return mask


def ended_rows(
    leg: LegPlan, removed: Int64s, high: int, now: int | None, cut: int | None
) -> Int64s:
    """Return the removed ids that are not current at `now`, as known from ids below `high`."""
    if leg.keyed is None or now is None or not len(removed):
        return NO_IDS
    return removed[~member(removed, leg.keyed.current(high, now, cut).ids)]
