"""Streams, views, registrations and grants, as messages."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from datastem.schema import Column, StreamSchema
from psoup.access.actions import Action, is_bound, reads_all
from psoup.access.principal import Principal
from psoup.answers import View
from psoup.answers.planning.question import read_query
from psoup.errors import BadRequest
from psoup.server.call import Call
from psoup.server.core import Core
from psoup.server.permission import Acting, name_of
from psoup.server.wire.parameters import from_json
from psoup.server.wire.values import columns_message, from_duration, from_instant, pattern_message
from psoup.store import Position, Registration, State, StreamState, ViewState
from psoup.store.state.access import Grant
from psoup.store.state.streams import Leap
from psoup.v1 import psoup_pb2 as pb
from psoup.write.drops import Ended
from psoup.write.leases import LeaseKeeper
from querystem.labels import labelled_leg, labelled_refresh
from querystem.language import (
    function_sql,
    leg_window_text,
    policy_sql,
    policy_text,
    refresh_text,
    stream_sql,
    view_renames,
    view_sql,
)
from querystem.legs import Leg
from querystem.query import Query
from querystem.user_functions import FunctionDefinition
from results.id_sets import intersect, size

PAGE = 1000
_MAX_CONTAINS_CHARACTERS = 200
# The most objects of a kind that are named as ended with a stream or view.
_NAMED_ENDED = 100
# Any predicate will do to describe the rest of a query, which is often the same.
_ANY = '["lit","BOOLEAN",true]'
_TOKEN = re.compile(r"[0-9a-f]{1,15}\.[0-9a-f]{32}")


def lease_until(leases: LeaseKeeper, handle: bytes) -> Timestamp | None:
    instant = leases.until(handle)
    return None if instant is None else from_instant(instant)


def stream_stats(core: Core, stream: StreamState, acting: Acting) -> pb.StreamStats | None:
    """Return what a stream takes, for callers who may read all of its rows; None for others."""
    state, follower = core.follower.state, core.follower
    if not reads_all(state, stream.id, acting.principal):
        return None
    log, stem, matches = follower.stored_parts(stream.id)
    rows, age = follower.behind_in([stream.id])
    # Other people's queries show in what is matched.
    matches = matches if acting.administers(state) else 0
    stats = pb.StreamStats(
        log_bytes=log,
        stem_bytes=stem,
        match_bytes=matches,
        behind_rows=rows,
        behind=from_duration(age),
        late_rows=stream.late_rows,
    )
    if stream.leap is not None and acting.administers(state):
        stats.last_leap.CopyFrom(leap_message(stream.leap))
    return stats


def leap_message(leap: Leap) -> pb.NowLeap:
    now, at = from_instant(leap.reached), from_instant(leap.stamp)
    return pb.NowLeap(owner=leap.owner, publisher=leap.publisher, now=now, at=at)


def stream_message(
    view: View, stream: StreamState, acting: Acting, as_of: Position | None = None
) -> pb.Stream:
    """Return a stream as a caller may see it: its rows are counted for those who may read all of
    them, its registrations for those who administer the tenant. Its columns are those of a
    position, if there is one."""
    message = _whole_stream(view, stream, acting.principal, as_of)
    if not acting.may(view.state, Action.READ, stream.id):
        message.ClearField("row_count")
        message.ClearField("now")
    if not acting.administers(view.state):
        message.ClearField("registration_count")
    return message


def _whole_stream(
    view: View, stream: StreamState, reader: Principal, as_of: Position | None
) -> pb.Stream:
    schema, now = stream.schema, view.now_of(stream)
    if as_of is not None:
        schema = schema.at(as_of.packed)
    bound = is_bound(view.state, stream.id, reader)
    policies = view.state.access.policies_of(stream.id)
    message = pb.Stream(
        name=schema.name,
        id=stream.id,
        columns=columns_message(schema.labelled.columns),
        ordered_by=schema.labelled.ordered_by or "",
        ahead=from_duration(schema.ahead),
        row_count=0 if bound else stream.high,
        sql=stream_sql(schema),
        registration_count=stream.registrations,
        key=schema.labelled.key,
        by_clock=schema.by_clock,
    )
    if stream.schema.has_former_labels:
        _add_former_labels(message, schema, stream.schema.accepted_labels(view.now))
    if not bound:
        message.policies.extend(
            policy_sql(
                policy.name, schema.name, policy_text(policy.text, policy.form, stream.schema)
            )
            for policy in policies
        )
    if schema.retention is not None:
        message.retain.CopyFrom(from_duration(schema.retention))
    if now is not None:
        message.now.CopyFrom(from_instant(now))
    return message


def _add_former_labels(
    message: pb.Stream, schema: StreamSchema, accepted: Mapping[str, Column]
) -> None:
    """Add the other names that batches may use for columns, and those of dropped ones."""
    live = {column.name: place for place, column in enumerate(schema.columns)}
    dropped = {column.name for column in schema.dropped}
    for label, column in accepted.items():
        if column.name in dropped:
            message.dropped.append(label)
        elif column.name in live and message.columns[live[column.name]].name != label:
            message.columns[live[column.name]].former.append(label)


def view_message(state: State, view: ViewState, acting: Acting) -> pb.View | pb.Function:
    """Return a view or a function. Callers who see all that it is over get its text."""
    definition, visible = view.definition, acting.visible(state)
    visible_ids = [id_ for id_ in view.over if visible(id_)]
    has_text = len(visible_ids) == len(view.over)
    over = sorted(name_of(state, id_) for id_ in visible_ids)
    if isinstance(definition, FunctionDefinition):
        return pb.Function(
            name=definition.name,
            id=view.id,
            parameters=columns_message(definition.parameters),
            type=str(definition.type),
            sql=function_sql(definition) if has_text else "",
            over=over,
        )
    schemas = [state.streams[id_].schema for id_ in view.over if id_ in state.streams]
    return pb.View(
        name=definition.name,
        id=view.id,
        columns=columns_message(definition.columns),
        sql=view_sql(definition, view_renames(definition, schemas)) if has_text else "",
        over=over,
    )


def view_name(state: State, view_id: int) -> str:
    return state.views[view_id].definition.name


async def registration_messages(
    core: Core, call: Call, acting: Acting, registrations: Sequence[Registration]
) -> list[pb.Registration]:
    """Describe registrations. Their queries are read in a thread, which other calls may interrupt
    between two of them. Rows of streams that the caller may no longer read are not counted."""

    def read() -> list[Query]:
        memo = core.maker.memo
        return [
            read_query(memo, registration.query, (_ANY,) * len(registration.legs))
            for registration in registrations
        ]

    messages = []
    for registration, query in zip(registrations, await core.in_thread(call, read), strict=True):
        message = _registration_message(core, registration, query, acting.principal)
        _hide(core.follower.state, acting, registration, query, message)
        messages.append(message)
        await asyncio.sleep(0)
    return messages


def _hide(
    state: State, acting: Acting, registration: Registration, query: Query, message: pb.Registration
) -> None:
    """Leave out counts of rows that the caller may not read any more, and the names of streams that
    the caller knows only as a view."""
    counted = acting.reads(state, registration, query)
    visible = acting.visible(state)
    parts = [message, *message.legs]
    for part, leg in zip(parts, (registration.legs[0], *registration.legs), strict=True):
        if not visible(leg.stream_id):
            part.ClearField("stream")
        if not counted or not acting.may(state, Action.READ, leg.stream_id):
            part.ClearField("matched_rows")
            part.ClearField("stream_rows")


def _registration_message(
    core: Core, registration: Registration, query: Query, reader: Principal
) -> pb.Registration:
    streams = [core.follower.state.streams[leg.stream_id] for leg in registration.legs]
    schemas = {stream.schema.name: stream.schema for stream in streams}
    triggers = [core.follower.state.streams[t.stream_id] for t in registration.triggers]
    labels = {s.schema.name: s.schema for s in (*triggers, *streams)}.__getitem__
    legs = [
        _leg_message(core, stream, stored.predicate_id, labelled_leg(leg, labels), reader)
        for stream, stored, leg in zip(streams, registration.legs, query.legs, strict=True)
    ]
    first = legs[0]
    return pb.Registration(
        handle=registration.handle,
        owner=registration.owner,
        client_key=registration.client_key,
        sql=registration.text,
        parameters=from_json(registration.parameters),
        stream=first.stream,
        window=first.window,
        columns=columns_message(query.columns),
        lease=from_duration(registration.lease),
        position=core.positions.encode(registration.position),
        registered_at=from_instant(registration.stamp),
        matched_rows=first.matched_rows,
        stream_rows=first.stream_rows,
        refresh=refresh_text(labelled_refresh(query.refresh, labels)),
        pattern=pattern_message(query, schemas.__getitem__),
        lease_until=lease_until(core.leases, registration.handle),
        legs=legs,
        views=[view_name(core.follower.state, id_) for id_ in registration.views],
    )


def _leg_message(
    core: Core, stream: StreamState, predicate_id: int, leg: Leg, reader: Principal
) -> pb.RegistrationLeg:
    message = pb.RegistrationLeg(stream=stream.schema.name, window=leg_window_text(leg))
    if not is_bound(core.follower.state, stream.id, reader):
        covered = core.follower.epoch.covering(stream.id).ranges(predicate_id)
        message.matched_rows = size(intersect(0, stream.high, covered))
        message.stream_rows = stream.high
    return message


def grant_message(state: State, grant: Grant) -> pb.Grant:
    named = name_of(state, grant.object_id) if grant.object_id else ""
    message = pb.Grant(action=grant.action, object=named)
    setattr(message, grant.to, grant.name)
    return message


def ended_message(
    state: State, dropped: StreamState | ViewState, ended: Ended, acting: Acting
) -> pb.Ended:
    """Return what ended with a stream or view, as far as the caller may see it; `state` is the one
    after that, in which the registrations over a dropped stream still are."""
    grants = ended.grants if acting.administers(state) else ()
    ids = [dropped.id, *(view.id for view in ended.views)]
    registrations, _ = state.columns
    owner = acting.own(state)
    if ended.registrations is None:
        count, named = registrations.over(ids, acting.tenant, owner, _NAMED_ENDED)
    else:
        named = [ended_one for ended_one in ended.registrations if owner in (None, ended_one.owner)]
        count, named = len(named), named[:_NAMED_ENDED]
    return pb.Ended(
        views=[view.definition.name for view in ended.views[:_NAMED_ENDED]],
        view_count=len(ended.views),
        policies=[policy.name for policy in ended.policies[:_NAMED_ENDED]],
        policy_count=len(ended.policies),
        grants=[grant_message(state, grant) for grant in grants[:_NAMED_ENDED]],
        grant_count=len(grants),
        registrations=[
            pb.EndedRegistration(
                handle=registration.handle,
                owner=registration.owner,
                client_key=registration.client_key,
            )
            for registration in named
        ],
        registration_count=count,
    )


def page_of(
    state: State,
    tenant: str,
    owner: str,
    request: pb.ListRegistrationsRequest,
    stream_id: int | None = None,
) -> tuple[list[Registration], str]:
    """Return a page of registrations of an owner, or of all if that is empty, in the order they
    were made, and the token of the next page. With `stream_id` only those over a stream or view."""
    if len(request.contains) > _MAX_CONTAINS_CHARACTERS:
        raise BadRequest(
            f"contains is longer than {_MAX_CONTAINS_CHARACTERS} characters",
            field="contains",
            got=f"{len(request.contains)} characters",
        )
    if request.page_size < 0:
        raise BadRequest("page_size is negative", field="page_size", got=str(request.page_size))
    limit = min(request.page_size or PAGE, PAGE)
    after = _place(request.page_token) if request.page_token else (0, b"")
    registrations, _ = state.columns
    over = None if stream_id is None else [stream_id]
    page, place = registrations.page(tenant, owner, after, limit, over, request.contains)
    return page, "" if place is None else f"{place[0]:x}.{place[1].hex()}"


def _place(token: str) -> tuple[int, bytes]:
    if not _TOKEN.fullmatch(token):
        raise BadRequest(
            "page_token is not one of this server's", field="page_token", hint="start again"
        )
    position, handle = token.split(".")
    return int(position, 16), bytes.fromhex(handle)
