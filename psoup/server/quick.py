"""Answers so small that to wait for a thread would take longer than to make them.

A quick answer reads no file, evaluates no predicate, and takes few rows out of few blocks, so the
event loop can make it itself: well under a millisecond, and a few at the worst.
"""

from __future__ import annotations

import pyarrow as pa

from datastem.blocks import Part, Picked, gather, in_order
from datastem.codec import columns_shown
from psoup.server.invoke import Answer, Plan, Selection, window_rows
from psoup.server.matcher import Matcher
from psoup.server.summaries import Summaries
from querystem.aggregate import count, counts_rows, finish, partial
from querystem.shape import shape
from results.window import CountWindow

_BLOCKS = 4
_BYTES = 256 << 10
_WEIGHT = 64


def quick_answer(plan: Plan, matcher: Matcher, summaries: Summaries) -> Answer | None:
    """The same as `answer`, or None where that would take longer."""
    if plan.now is None or not _plain(plan):
        return None
    choice, position = window_rows(plan, summaries)
    selection, region = Selection(plan, matcher, choice), choice.region
    parts: list[Part] | None = []
    if not region.empty:
        parts = plan.stem.held(region.begin, region.end, region.hi, _BLOCKS)
    picked = None if parts is None else _picked(selection, parts)
    if picked is None:
        return None
    return Answer(_rows(selection, picked), position, matcher.work.rows)


def _plain(plan: Plan) -> bool:
    """Whether window and instant alone tell the rows, and the query does little with them."""
    elsewhere = plan.keyed or plan.limits or plan.triggers or isinstance(plan.window, CountWindow)
    return not elsewhere and plan.query.weight <= _WEIGHT


def _rows(selection: Selection, picked: Picked) -> pa.RecordBatch:
    query, schema = selection.plan.query, selection.plan.schema
    if query.shown is not None and in_order(picked):
        columns = columns_shown(schema, query.shown)
        return gather(picked, columns.names, columns.schema)
    if query.grouping is None:
        return shape(query, selection.gather(picked))
    if counts_rows(query.grouping):
        found = count(query.grouping, sum(len(places) for _, places in picked))
    else:
        found = partial(query.grouping, selection.gather(picked))
    return shape(query, finish(query.grouping, found))


def _picked(selection: Selection, parts: list[Part]) -> Picked | None:
    picked, room = [], float(_BYTES)
    for part in parts:
        if part.stop <= selection.choice.region.lo:
            continue
        places = selection.remembered(part)
        if places is None:
            return None
        room -= len(places) * part.row_bytes
        if room < 0:
            return None
        picked.append((part, places))
    return picked
