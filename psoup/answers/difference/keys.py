"""Stream keys of rows, for clients that keep a log of changes: which row updates which.

Rows of a keyed stream are sent with a digest of their KEY. So a client can distinguish an update
from a row that left and another that was added. The server also says which removed rows ended,
because their stream key was updated or deleted; the others were pushed out by their window.
"""

from __future__ import annotations

import numpy as np

from datastem.arrays import Int64s
from datastem.codec import KEY_FIELD
from psoup.answers.planning.plan import LegPlan, Plan
from psoup.answers.rows.windows import parts_of
from querystem.query import From, Item, Leg, Source
from results.id_sets import member
from results.masking import masked

NO_IDS: Int64s = np.empty(0, np.int64)


def is_combined(plan: Plan) -> bool:
    """Return True if the rows of an answer are combinations of rows, identified by all of them."""
    query = plan.query
    return query.grouping is None and not query.distinct and not isinstance(query.source, Leg)


def has_keys(plan: Plan) -> bool:
    """Return True if each row of an answer is a row of one keyed stream, so that it has a stream
    key. The stream is that of the first leg; queries inside expressions add no rows."""
    query = plan.query
    outer: Source | Item = query.source
    if isinstance(outer, From) and len(outer.items) == 1:
        (outer,) = outer.items
    plain = query.grouping is None and not query.distinct
    rows = isinstance(outer, Leg) and outer.as_of is None
    return plain and rows and plan.legs[0].keyed is not None


def key_digests(plan: Plan, row_ids: Int64s) -> Int64s:
    """Return the digest of the stream key of each row, in the order of the row ids.

    The rows are of the plan's keyed stream. Digests are masked if a view may hide the stream key.
    """
    leg, digests = plan.legs[0], np.empty(len(row_ids), np.int64)
    # `parts_of` needs ascending ids; `order` brings the digests back into the order of `row_ids`.
    order = np.argsort(row_ids, kind="stable")
    ids, start = row_ids[order], 0
    for part in parts_of(leg.stem, ids, leg.stem.high):
        keys = part.rows.column(KEY_FIELD.name).to_numpy()[part.find(ids)]
        digests[order[start : start + len(keys)]] = keys
        start += len(keys)
    return masked(digests, plan.mask)


def ended_rows(
    leg: LegPlan, removed: Int64s, high: int, now: int | None, cut: int | None
) -> Int64s:
    """Return the removed ids that are not current at `now`, as known from ids below `high`."""
    if leg.keyed is None or now is None or not len(removed):
        return NO_IDS
    return removed[~member(removed, leg.keyed.current(high, now, cut).ids)]
