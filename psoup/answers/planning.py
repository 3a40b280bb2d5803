"""From a question to a plan: whose rows, as of when, what is retained, known and lost."""

from __future__ import annotations

from dataclasses import dataclass, replace

from psoup.answers.caches import UnregisteredIds
from psoup.answers.plan import Plan, Triggers, point_of, refreshed, retention
from psoup.answers.question import BoundText, Question, RegisteredQuery
from psoup.answers.view import View
from psoup.errors import BadRequest, RowsLost, StreamDropped
from psoup.lookup import find_registration
from psoup.store import Hole, StreamState
from querystem.identity import base_query, slides
from querystem.refresh import RefreshEvery, RefreshOn
from results.region import time_region
from results.window import UNBOUNDED, TimeWindow

_LOST_HINT = (
    "the operator can put the file back from a back-up, or accept the loss with "
    "`psoup repair STORE --accept`; answers that do not need these rows go on"
)


def make_plan(view: View, question: Question, unregistered: UnregisteredIds) -> Plan:
    """The plan of a question at one moment.

    Raises UnknownHandle, RegistrationExpired, StreamDropped, BadRequest for an instant in the
    future, RowsLost.
    """
    plan = _plan(view, question, find_source(view, question, unregistered))
    plan = replace(plan, losses=_losses(plan, view, question)) if view.losses.holes else plan
    if question.base_rows and not (slides(plan.query) and plan.query.refresh is None):
        return replace(plan, query=base_query(plan.query, plan.schema))
    return plan


# ---- whose rows


@dataclass(frozen=True, slots=True)
class QuerySource:
    """The stream and the predicate of a query, and those whose rows refresh it, where any do."""

    stream: StreamState
    predicate_id: int
    trigger: tuple[StreamState, int] | None = None


def find_source(view: View, question: Question, unregistered: UnregisteredIds) -> QuerySource:
    """Raises UnknownHandle, RegistrationExpired, StreamDropped.

    It is found anew for every plan: a registration or a stream may end meanwhile, and the predicate
    of a text may be registered.
    """
    asked = question.source
    if isinstance(asked, RegisteredQuery):
        found = find_registration(view.state, asked.tenant, asked.handle)
        stream_id, predicate_id = found.stream_id, found.predicate_id
        trigger = (found.trigger_stream_id, found.trigger_id) if found.trigger_id else None
    else:
        stream_id = asked.stream_id
        predicate_id = _predicate(view, stream_id, question.query.leg.predicate_key, unregistered)
        trigger = _text_trigger(view, question, asked, unregistered)
    gone = "stream {} was dropped, and its rows with it"
    stream = _live(view, stream_id, gone, "unregister this query")
    if trigger is None or question.unrefreshed:
        return QuerySource(stream, predicate_id)
    gone = "stream {}, whose rows refresh this query, was dropped"
    hint = "ask for the unrefreshed answer, or register the query anew"
    other = _live(view, trigger[0], gone, hint)
    return QuerySource(stream, predicate_id, (other, trigger[1]))


def _text_trigger(
    view: View, question: Question, asked: BoundText, unregistered: UnregisteredIds
) -> tuple[int, int] | None:
    refresh, stream_id = question.query.refresh, asked.trigger_stream_id
    if not isinstance(refresh, RefreshOn) or stream_id is None:
        return None
    return stream_id, _predicate(view, stream_id, refresh.predicate_key, unregistered)


def _predicate(view: View, stream_id: int, key: str, unregistered: UnregisteredIds) -> int:
    registered = view.state.predicates.find(stream_id, key)
    return unregistered.id_of(stream_id, key) if registered is None else registered


def _live(view: View, stream_id: int, gone: str, hint: str) -> StreamState:
    stream = view.state.streams[stream_id]
    if stream.dropped:
        raise StreamDropped(gone.format(stream.schema.name), hint=hint)
    return stream


# ---- as of when


def _plan(view: View, question: Question, source: QuerySource) -> Plan:
    stream, as_of = source.stream, question.as_of
    if as_of is not None and as_of > view.now:
        raise BadRequest(
            "as_of lies in the future; nothing is known then",
            reason="OUT_OF_RANGE",
            field="as_of",
            hint="leave it out to ask for now",
        )
    current = view.now_of(stream)
    now = current if as_of is None else as_of
    then = as_of is not None and not question.known_today and as_of < view.state.clock
    stem = view.stem(stream.id)
    oldest, notes = retention(question.window, stream.schema, now, current)
    plan = Plan(
        question.query,
        question.window,
        stream.schema,
        stream.id,
        source.predicate_id,
        stem,
        view.keyed(stream.id, stem),
        view.epoch,
        view.state.position,
        now,
        oldest,
        (("_stamp", now),) if then and now is not None else (),
        notes,
        current,
    )
    return (
        plan if question.unrefreshed or now is None else _refreshing(plan, view, question, source)
    )


def _refreshing(plan: Plan, view: View, question: Question, source: QuerySource) -> Plan:
    """The plan as of its last refresh point, or with the rows that will tell which that is."""
    refresh, now = question.query.refresh, plan.now
    today = question.as_of is not None and question.known_today
    if isinstance(refresh, RefreshEvery) and now is not None:
        return refreshed(plan, point_of(refresh, plan.schema, now, today))
    if source.trigger is None or not isinstance(refresh, RefreshOn):
        return plan
    stream, predicate = source.trigger
    current = view.now_of(stream)
    oldest, _ = retention(UNBOUNDED, stream.schema, current, current)
    until = question.as_of if today else None
    found = Triggers(refresh.where, stream.id, predicate, view.stem(stream.id), oldest, until)
    return replace(plan, triggers=found)


# ---- lost rows


def _losses(plan: Plan, view: View, question: Question) -> tuple[str, ...]:
    """Notes about lost rows the answer would have needed, where their loss is accepted.

    Raises RowsLost where it is not.
    """
    notes, losses = [], view.losses
    for hole in losses.holes:
        if _spoils(plan, hole, question.ahead):
            text = hole.text(view.state.streams[hole.stream_id].schema.name)
            if not losses.is_accepted(hole):
                raise RowsLost(f"the answer needs lost rows: {text}", hint=_LOST_HINT)
            notes.append(f"without lost rows: {text}")
    return tuple(notes)


def _spoils(plan: Plan, hole: Hole, ahead: bool) -> bool:
    """Tells whether an answer may be another than it would be with the rows of the hole.

    Which rows of a stream are current, the last, or the ones that refresh, depends on all its rows.
    """
    triggers = plan.triggers
    if triggers is not None and hole.stream_id in (plan.stream_id, triggers.stream_id):
        return True
    if hole.stream_id != plan.stream_id:
        return False
    if plan.keyed is not None or not isinstance(plan.window, TimeWindow):
        return True
    if plan.now is None:
        return False
    region = time_region(plan.window, plan.now, plan.oldest, 0)
    return hole.meets(region.begin, None if ahead else region.end)
