"""The choice of a composite: which of a query's joins the engine has joined ahead, at one moment.

A query can use any composite of its streams and equalities whose span holds its windows, also one
that another query registered. The engine must have stored a box of it, with all combinations that
the query's predicate matches, or a wider one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from psoup.answers.caches import Memo, UnregisteredIds
from psoup.answers.planning.plan import CompositePlan, Plan
from psoup.answers.replicas.view import View
from psoup.store import CompositeMark
from psoup.store.state.quarantine import COMPOSITE
from querystem.composites import ComposedStream, Composition, NotComposed, compose
from querystem.language.tokens.durations import write_duration
from querystem.query import Query, has_joins
from querystem.sources import From

# Bytes that a composition takes in memory for each character of its key, about.
_BYTES_PER_CHARACTER = 20


@dataclass(frozen=True)
class _Composed:
    """A query, and how it is a predicate over a composite."""

    query: Query
    composition: Composition | NotComposed


def with_composite(plan: Plan, view: View, unregistered: UnregisteredIds, memo: Memo) -> Plan:
    """Return the plan with the composite that the engine has joined ahead for its FROM, if there is
    one; otherwise with `composing` if the engine is about to make one."""
    if not isinstance(plan.query.source, From) or not view.state.composites:
        return plan
    composition = _cached_composition(plan, memo)
    if isinstance(composition, NotComposed):
        return plan
    marks = view.epoch.epoch.composites
    composing = False
    for id_ in _composites(view, composition):
        mark = marks.get(id_)
        # The engine adds nothing to a suspended composite, so waiting for it is of no use.
        if mark is not None and mark.suspended:
            continue
        if mark is None or not _is_ready(view, composition, id_, mark):
            composing = True
            continue
        if view.replica.damaged.probe(id_, mark.version) or _has_erased(view, composition):
            composing = True
            continue
        registered = view.state.predicates.find(id_, composition.key)
        predicate = unregistered.id_of(id_, composition.key) if registered is None else registered
        stem = view.stem(id_)
        leave_out = partial(view.replica.damaged.insert, id_, mark.version)
        composite = CompositePlan(
            id_, predicate, composition.places, composition.where, mark, stem, leave_out
        )
        return replace(plan, composite=composite)
    return replace(plan, composing=composing)


def describe_composite(plan: Plan, view: View, count_queries: bool) -> str:
    """Return a sentence about what the engine joins ahead for a query; empty if the query joins
    nothing. With `count_queries` it says how many queries share the composite."""
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
    if count_queries:
        count = shared.registrations
        queries = " of 1 query" if count == 1 else f" of {count:,} queries"
    first = plan.legs[used.places[0]].leg.stream
    return (
        f"composite {shared.id}{queries}: {used.mark.high:,} combinations of rows{within}, "
        f"found ahead for rows of {first} from {used.mark.since:,} on"
    )


def composition_of(plan: Plan) -> Composition | NotComposed:
    """Return the composite that a plan's query could use, or why it can use none."""
    return compose(plan.query, [ComposedStream(leg.stream_id, leg.schema) for leg in plan.legs])


def _cached_composition(plan: Plan, memo: Memo) -> Composition | NotComposed:
    """Return the composition of a plan, from the cache if its query was planned before."""
    query, streams = plan.query, tuple(leg.stream_id for leg in plan.legs)
    # Queries are compared by identity: comparing them by value takes as long as composing.
    key = "composition", id(query), streams
    cached = memo.get(key)
    if isinstance(cached, _Composed) and cached.query is query:
        return cached.composition
    composition = composition_of(plan)
    size = 0 if isinstance(composition, NotComposed) else len(composition.key)
    memo.put(key, _Composed(query, composition), size * _BYTES_PER_CHARACTER)
    return composition


def _composites(view: View, composition: Composition) -> list[int]:
    """Return the ids of the composites that hold all combinations of a query, those of least span
    first."""
    shape = composition.shape
    find = view.state.composites.find
    ids = [find(shape.legs, shape.factors_key, span) for span in shape.wider_spans]
    return [id_ for id_ in ids if id_ is not None]


def _has_erased(view: View, composition: Composition) -> bool:
    """Return True if stored combinations may have rows that were erased."""
    cleaned = view.epoch.epoch.erased
    return any(view.state.erased(id_).last > cleaned for id_ in composition.shape.legs)


def _is_ready(view: View, composition: Composition, id_: int, mark: CompositeMark) -> bool:
    """Return True if all combinations that a query needs of a composite's box are stored."""
    if id_ not in view.replica.stems:
        return False
    find = view.state.predicates.find
    registered = (find(id_, key) for key in composition.wider_keys)
    return any(predicate is not None and mark.has_predicate(predicate) for predicate in registered)
