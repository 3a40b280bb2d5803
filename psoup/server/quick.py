"""Answers so small that to wait for a thread would take longer than to make them.

A quick answer reads no file, evaluates no predicate, and takes few rows out of few blocks, so the
event loop can make it itself: well under a millisecond, and a few at the worst.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from datastem.blocks import Part, Picked
from psoup.server.invoke import Answer, Plan, Selection, window_rows
from psoup.server.matcher import Matcher
from psoup.server.summaries import Summaries
from querystem.aggregate import finish, partial
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
    return Answer(_batches(selection, picked), position, matcher.work.rows)


def _plain(plan: Plan) -> bool:
    """Whether window and instant alone tell the rows, and the query does little with them."""
    elsewhere = plan.keyed or plan.limits or plan.triggers or isinstance(plan.window, CountWindow)
    return not elsewhere and plan.query.weight <= _WEIGHT


def _batches(selection: Selection, picked: Picked) -> Sequence[pa.RecordBatch]:
    query = selection.plan.query
    if query.grouping is None:
        return selection.show(picked)
    groups = finish(query.grouping, partial(query.grouping, selection.gather(picked)))
    return [shape(query, groups)]


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
