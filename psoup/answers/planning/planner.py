"""From a question to a plan: which rows, as of when, what is retained, known and lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from psoup.access.actions import reads_all, unreadable
from psoup.answers.caches import Memo, UnregisteredIds
from psoup.answers.joins.composite_choice import with_composite
from psoup.answers.planning.plan import LegPlan, Plan, RowsKnown, Triggers, UnsettledPart, retention
from psoup.answers.planning.policies import PolicyFiller, RowPolicy, permission_of
from psoup.answers.planning.prepared import PreparedQuery
from psoup.answers.planning.present import hidden_reached, present_of
from psoup.answers.planning.question import Question
from psoup.answers.planning.sources import (
    Matched,
    QuerySource,
    TextReplaced,
    live_source,
    prepared_query,
)
from psoup.answers.refresh.crossings import Crossing
from psoup.answers.refresh.settling import settled
from psoup.answers.replicas.view import View
from psoup.errors import BadRequest, PermissionDenied, RowsLost
from psoup.store import Hole, Registration
from querystem.base_rows import base_query, combines, obstacle
from querystem.clocks import is_apart, is_by_clock
from querystem.identity import slides
from querystem.legs import Leg
from querystem.query import Query
from querystem.refresh import PartKind, RefreshOn, triggers_of
from results.region import time_region
from results.window import UNBOUNDED, TimeWindow

_LOST_HINT = (
    "the operator can put the file back from a back-up, or accept the loss with "
    "`psoup repair STORE --accept`; answers that do not need these rows go on"
)

_POLICY_SET_ASIDE = "a row policy fails and is in quarantine: it shows nothing"


def make_plan(view: View, question: Question, unregistered: UnregisteredIds, memo: Memo) -> Plan:
    """Return the plan of a question at one moment.

    Raises UnknownHandle, RegistrationExpired, StreamDropped, BadRequest for an instant in the
    future, RowsLost; PermissionDenied if the answer would look behind a view that the caller may
    not; TextReplaced if the question was read before its query was replaced, or other policies bind
    than the question says.
    """
    set_aside = view.epoch.epoch.quarantine.predicates
    filler = PolicyFiller(view.state, question.reader, unregistered, memo, view.now_of, set_aside)
    prepared = prepared_query(view, question, unregistered)
    plan = _plan(view, question, prepared, filler)
    plan = replace(plan, losses=_losses(plan, view, question)) if view.losses.holes else plan
    _check_views(plan, question)
    if question.every_point:
        _check_points(plan, question)
    if question.base_rows and (plan.query.stays or not slides(plan.query)):
        if combines(plan.query):
            _check_combined(plan, view, question)
        return replace(plan, query=_base_query(plan, prepared.registration))
    return with_composite(plan, view, unregistered, memo)


def _check_views(plan: Plan, question: Question) -> None:
    """Raise PermissionDenied if the question would look behind a view whose streams the caller may
    not read."""
    if not plan.unread:
        return
    if question.base_rows:
        raise PermissionDenied(
            "base rows have what a view of this query hides, and you may not read its streams",
            hint="sync the answer itself: leave base_rows out",
            field="base_rows",
        )
    refreshed = [part for part in plan.query.refreshed_parts if part.of_view]
    legs = [plan.legs[number] for part in refreshed for number in part.legs]
    if question.unrefreshed and any(leg.stream_id in plan.unread for leg in legs):
        raise PermissionDenied(
            "a view of this query has REFRESH, and you may not read its streams",
            hint="ask for the answer as of the last refresh point: leave unrefreshed out",
            field="unrefreshed",
        )


def _check_points(plan: Plan, question: Question) -> None:
    """Raise BadRequest if the refresh points of the query can't be delivered one after the
    other."""
    parts, schemas = plan.query.refreshed_parts, [leg.schema for leg in plan.legs]
    clock = is_by_clock(plan.query.moving, schemas)
    if question.base_rows:
        problem, hint = "base rows have no refresh points", "leave base_rows out"
    elif not parts or parts[0].kind is not PartKind.WHOLE:
        problem = "the query has no REFRESH, or only inside: it has no refresh points of its own"
        hint = "write REFRESH EVERY or REFRESH ON after the query, or leave every_point out"
    elif any(is_apart(schema, clock) for schema in schemas):
        problem = (
            "points of a query over streams with two kinds of NOW are not delivered one by one"
        )
        hint = "leave every_point out"
    else:
        return
    raise BadRequest(problem, reason="NO_POINTS", field="every_point", hint=hint)


def _base_query(plan: Plan, registration: Registration | None) -> Query:
    if any(leg.leg.valid is not None for leg in plan.legs):
        raise BadRequest(
            "base rows of a stream with VALID are not sent yet",
            reason="NOT_YET",
            field="base_rows",
            hint="sync the answer itself: leave base_rows out",
        )
    schemas = [leg.schema for leg in plan.legs]
    if registration is not None:
        # The client has bound the text to the columns of that time.
        schemas = [schema.at(registration.position.packed) for schema in schemas]
    base = base_query(plan.query, schemas)
    late = plan.query.uses_now and (plan.query.stays or not slides(base))
    if plan.query.has_now or late:
        raise BadRequest(
            "base rows of a query that computes with NOW are not sent yet",
            reason="NOT_YET",
            field="base_rows",
            hint="sync the answer itself, or compare columns with NOW in WHERE alone",
        )
    return base


def _check_combined(plan: Plan, view: View, question: Question) -> None:
    """Raise BadRequest or PermissionDenied if rows of the legs are not sent in place of the
    answer."""
    if why := obstacle(plan.query):
        raise BadRequest(
            f"base rows of this query are not sent yet: {why}",
            reason="NOT_YET",
            field="base_rows",
            hint="sync the answer itself: leave base_rows out",
        )
    # Rows without a partner, and columns that only conditions read, are not in the answer.
    if not all(reads_all(view.state, stream_id, question.reader) for stream_id in plan.streams):
        raise PermissionDenied(
            "base rows of a join have more than its answer, and are not sent to callers whom a row"
            " policy of a stream binds",
            hint="sync the answer itself: leave base_rows out",
            field="base_rows",
        )


# ---- as of when


def _plan(view: View, question: Question, prepared: PreparedQuery, filler: PolicyFiller) -> Plan:
    source = live_source(view, prepared, question.unrefreshed)
    as_of, clocks = question.as_of, prepared.clocks
    streams = [matched.stream for matched in source.legs]
    ids = prepared.leg_stream_ids if question.unrefreshed else prepared.stream_ids
    unread = unreadable(view.state, ids, question.reader)
    hidden = hidden_reached(question.query, streams, unread) if unread else []
    # A hidden stream that has reached nothing yet puts every instant into the future.
    if as_of is not None and any(as_of > (instant or 0) for instant in (view.now, *hidden)):
        raise BadRequest(
            "as_of lies in the future; nothing is known then",
            reason="OUT_OF_RANGE",
            field="as_of",
            hint="leave it out to ask for now",
        )
    present = present_of(view, clocks, streams, question.latest, hidden)
    # At the last stamp of the log or later all rows are known, so no limit is needed.
    then = as_of is not None and not question.known_today and as_of < view.state.clock
    notes: list[str] = []
    legs = []
    for leg, matched, leg_now in zip(question.query.legs, source.legs, present.legs, strict=True):
        now = leg_now if as_of is None else as_of
        policy = filler.policy(matched.stream.id)
        planned, leg_notes = _leg_plan(view, leg, matched, now, then, policy)
        legs.append(planned)
        if any(condition.is_set_aside for condition in policy or ()):
            leg_notes = (*leg_notes, _POLICY_SET_ASIDE)
        several = len(source.legs) > 1
        notes += [f"{leg.stream}: {note}" if several else note for note in leg_notes]
    now = present.now if as_of is None else as_of
    refreshing = [filler.policy(matched.stream.id) for matched in source.triggers]
    permission = permission_of([*(leg.policy for leg in legs), *refreshing], unread)
    if question.permission not in (None, permission):
        raise TextReplaced
    plan = Plan(
        question.query,
        tuple(legs),
        view.epoch,
        view.state.position,
        now,
        tuple(dict.fromkeys(notes)),
        clocks.reached(streams),
        knowledge=_knowledge(question),
        requested_now=now,
        permission=permission,
        streams=ids,
        unread=unread,
    )
    if question.unrefreshed or now is None:
        return plan
    return _refreshing(plan, view, source, refreshing, not question.every_point)


def _leg_plan(
    view: View, leg: Leg, matched: Matched, now: int | None, then: bool, policy: RowPolicy
) -> tuple[LegPlan, tuple[str, ...]]:
    """Return a leg at `now`, and notes about it; with `then`, as it was known at that instant."""
    stream = matched.stream
    stem, current = view.stem(stream.id), view.now_of(stream)
    oldest, notes = retention(leg.window, stream.schema, now, current, leg.valid)
    planned = LegPlan(
        leg,
        stream.schema,
        stream.id,
        matched.predicate_id,
        stem,
        view.keyed(stream.id, stem),
        now,
        oldest,
        (("_stamp", now),) if then and now is not None else (),
        current,
        policy=policy,
    )
    return planned, notes


def _knowledge(question: Question) -> RowsKnown:
    if question.as_of is None:
        return RowsKnown.PRESENT
    return RowsKnown.TODAY if question.known_today else RowsKnown.THEN


def _refreshing(
    plan: Plan, view: View, source: QuerySource, policies: Sequence[RowPolicy], settles: bool
) -> Plan:
    """Return the plan with the parts that have refresh points. If it `settles`, it is as of the
    last of these, as far as no file must be read to find them. Rows that the policies permit
    refresh the answer."""
    parts = plan.query.refreshed_parts
    if not parts:
        return plan
    triggers = zip(source.triggers, policies, strict=True)
    # `triggers` is in the order of the parts, and of REFRESH ON within a part, as `Query.triggers`
    # is. Each part takes its own from the one iterator.
    unsettled = [
        UnsettledPart(
            part,
            tuple(
                _triggers(view, refresh, *next(triggers)) for refresh in triggers_of(part.refresh)
            ),
        )
        for part in parts
    ]
    plan = replace(plan, unsettled=tuple(unsettled), crossings=_crossings(plan, view))
    return settled(plan) if settles else plan


def _triggers(view: View, refresh: RefreshOn, matched: Matched, policy: RowPolicy) -> Triggers:
    stream, current = matched.stream, view.now_of(matched.stream)
    oldest, _ = retention(UNBOUNDED, stream.schema, current, current)
    stem = view.stem(stream.id)
    return Triggers(refresh.where, stream.id, matched.predicate_id, stem, oldest, policy)


def _crossings(plan: Plan, view: View) -> dict[int, Crossing]:
    """Return the streams of a plan that have event time, by id."""
    crossings = {}
    for leg in plan.legs:
        if not leg.schema.now_is_clock and leg.stream_id not in crossings:
            mark = view.epoch.epoch.streams.get(leg.stream_id)
            beats = view.replica.heartbeats.view(leg.stream_id)
            stored = None if mark is None else mark.reached
            # A keyed stream keeps older rows too, as long as they are current.
            stem, oldest = leg.stem, None if leg.schema.key else leg.oldest_kept
            crossings[leg.stream_id] = Crossing(leg.stream_id, stem, beats, stored, oldest)
    return crossings


# ---- lost rows


def _losses(plan: Plan, view: View, question: Question) -> tuple[str, ...]:
    """Return notes about lost rows that the answer would have needed, if their loss is accepted.

    Raises RowsLost if it is not.
    """
    notes, losses = [], view.losses
    for hole in losses.holes:
        if _spoils(plan, hole, question.ahead):
            text = _lost_text(plan, hole, view.state.streams[hole.stream_id].schema.name)
            if not losses.is_accepted(hole):
                raise RowsLost(f"the answer needs lost rows: {text}", hint=_LOST_HINT)
            notes.append(f"without lost rows: {text}")
    return tuple(notes)


def _lost_text(plan: Plan, hole: Hole, stream: str) -> str:
    """Describe lost rows, without details if they may be hidden from the reader."""
    return f"rows of stream {stream}" if plan.hides(hole.stream_id) else hole.text(stream)


def _spoils(plan: Plan, hole: Hole, ahead: bool) -> bool:
    """Return True if an answer may differ from what it would be with the rows of the hole.

    Which rows of a stream are current, the last, or the ones that refresh, depends on all its rows.
    Any row at an instant or later may be the one that first took its stream there.
    """
    legs = [leg for leg in plan.legs if leg.stream_id == hole.stream_id]
    if any(_spoils_points(unsettled, plan, hole) for unsettled in plan.unsettled):
        return True
    return any(_spoils_leg(leg, hole, ahead) for leg in legs)


def _spoils_points(unsettled: UnsettledPart, plan: Plan, hole: Hole) -> bool:
    """Return True if rows of the hole may decide the refresh point of a part, or its rows then."""
    instant = unsettled.instant
    if any(triggers.stream_id == hole.stream_id for triggers in unsettled.triggers):
        return True
    if all(plan.legs[number].stream_id != hole.stream_id for number in unsettled.part.legs):
        return False
    return instant is None or hole.meets(instant, None)


def _spoils_leg(leg: LegPlan, hole: Hole, ahead: bool) -> bool:
    if leg.keyed is not None or not isinstance(leg.window, TimeWindow):
        return True
    if leg.now is None:
        return False
    region = time_region(leg.window, leg.now, leg.oldest, 0)
    return hole.meets(region.begin, None if ahead else region.end)
