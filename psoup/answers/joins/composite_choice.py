"""Which of a query's joins the engine has made ahead, at one moment.

A query can use any composite of its streams and equalities whose span holds its windows, whoever
registered it, once the engine has a box of it and has admitted the rows of the query's own local
predicates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from psoup.answers.caches import Memo, UnregisteredIds
from psoup.answers.planning.plan import CompositePlan, Plan
from psoup.answers.replicas.view import View
from psoup.store import CompositeMark
from psoup.store.state.quarantine import COMPOSITE
from querystem.composites import SPANS, ComposedStream, Composition, NotComposed, compose
from querystem.language.tokens.durations import write_duration
from querystem.query import From, Query, has_joins

# Bytes that a composition takes for each letter of its key, about.
_HELD = 20


@dataclass(frozen=True)
class _Composed:
    """A query, and how it is a predicate over a composite."""

    query: Query
    composition: Composition | NotComposed


def with_composite(plan: Plan, view: View, unregistered: UnregisteredIds, memo: Memo) -> Plan:
    """The plan with the combinations that the engine has found ahead for its FROM, where there are
    any, or a word that it is about to find some."""
    if not isinstance(plan.query.source, From) or not view.state.composites:
        return plan
    composition = _remembered(plan, memo)
    if isinstance(composition, NotComposed):
        return plan
    marks = view.epoch.epoch.composites
    composing = False
    for id_ in _composites(view, composition):
        mark = marks.get(id_)
        if mark is not None and mark.suspended:
            continue
        if mark is None or id_ not in view.replica.stems or not _is_ready(plan, composition, mark):
            composing = True
            continue
        if view.replica.damaged.probe(id_, mark.version):
            composing = True
            continue
        known = view.state.predicates.find(id_, composition.key)
        predicate = unregistered.id_of(id_, composition.key) if known is None else known
        stem = view.stem(id_)
        leave_out = partial(view.replica.damaged.insert, id_, mark.version)
        found = CompositePlan(
            id_, predicate, composition.places, composition.where, mark, stem, leave_out
        )
        return replace(plan, composite=found)
    return replace(plan, composing=composing)


def told_of(plan: Plan, view: View, others: bool) -> str:
    """Return a sentence about what the engine finds ahead of a query's join; empty if the query
    joins nothing. It says how many queries share the join if `others` may be spoken of."""
    if not has_joins(plan.query.source):
        return ""
    composition = composition_of(plan)
    if isinstance(composition, NotComposed):
        return f"computed at invoke: {composition.reason}"
    ids = _composites(view, composition)
    if plan.composite is None:
        if any(view.epoch.epoch.quarantine.find(COMPOSITE, id_) for id_ in ids):
            return "computed at invoke: the engine failed to find the combinations ahead"
        marks = view.epoch.epoch.composites
        suspended = any(id_ in marks and marks[id_].suspended for id_ in ids)
        if suspended and not plan.composing:
            return "computed at invoke: too many combinations for each new row, so the engine rests"
        return "computed at invoke until the engine has found the combinations"
    if plan.bound:
        return "combinations that the engine has found ahead"
    used, shared = plan.composite, view.state.composites[plan.composite.composite_id]
    within = "" if shared.span is None else f" within {write_duration(shared.span)}"
    queries = ""
    if others:
        count = shared.registrations
        queries = " of 1 query" if count == 1 else f" of {count:,} queries"
    first = plan.legs[used.places[0]].leg.stream
    return (
        f"composite {shared.id}{queries}: {used.mark.high:,} combinations of rows{within}, "
        f"found ahead for rows of {first} from {used.mark.since:,} on"
    )


def composition_of(plan: Plan) -> Composition | NotComposed:
    """The composite that a plan's query would be of, or why it can be of none."""
    return compose(plan.query, [ComposedStream(leg.stream_id, leg.schema) for leg in plan.legs])


def _remembered(plan: Plan, memo: Memo) -> Composition | NotComposed:
    """The composition of a plan, which is the same whenever its query is asked again. It is kept
    with the very query it is of: to compare queries by value takes as long as to compose."""
    query, streams = plan.query, tuple(leg.stream_id for leg in plan.legs)
    key = "composition", id(query), streams
    held = memo.get(key)
    if isinstance(held, _Composed) and held.query is query:
        return held.composition
    composition = composition_of(plan)
    size = 0 if isinstance(composition, NotComposed) else len(composition.key)
    memo.put(key, _Composed(query, composition), size * _HELD)
    return composition


def _composites(view: View, composition: Composition) -> list[int]:
    """The ids of the composites that hold all combinations of a query, those of least span
    first."""
    shape = composition.shape
    spans = [*SPANS, None]
    wide = spans[spans.index(shape.span) :]
    found = [view.state.composites.find(shape.legs, shape.factors_key, span) for span in wide]
    return [id_ for id_ in found if id_ is not None]


def _is_ready(plan: Plan, composition: Composition, mark: CompositeMark) -> bool:
    """Tells whether there is a box, and the rows of the query's local predicates are in it."""
    if mark.since is None:
        return False
    local = [plan.legs[place].predicate_id for place in composition.places]
    return all(one in ids for one, ids in zip(local, mark.admitted, strict=True))
