"""Streams, registrations and the store itself, as messages."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from google.protobuf.timestamp_pb2 import Timestamp

from datastem.instants import SECOND
from psoup.answers import View
from psoup.answers.pending import pending_of
from psoup.answers.question import read_query
from psoup.errors import BadRequest
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.server.wire.parameters import from_json
from psoup.server.wire.values import columns_message, from_duration, from_instant, pattern_message
from psoup.store import Hole, Registration, State, StreamState, ViewState
from psoup.store.presence import GONE_AFTER, PulseWatch
from psoup.v1 import psoup_pb2 as pb
from psoup.write.clock import ClockGuard
from psoup.write.leases import LeaseKeeper
from querystem.language import leg_window_text, refresh_text, stream_sql, view_sql
from querystem.query import Leg, Query
from results.id_sets import intersect, size

PAGE = 1000
# Any predicate will do where only the rest of a query is described; the rest is often the same.
_ANY = '["lit","BOOLEAN",true]'
_TOKEN = re.compile(r"[0-9a-f]{1,15}\.[0-9a-f]{32}")


def lease_until(leases: LeaseKeeper, handle: bytes) -> Timestamp | None:
    instant = leases.until(handle)
    return None if instant is None else from_instant(instant)


def stream_message(view: View, stream: StreamState) -> pb.Stream:
    schema, now = stream.schema, view.now_of(stream)
    message = pb.Stream(
        name=schema.name,
        id=stream.id,
        columns=columns_message(schema.columns),
        ordered_by=schema.ordered_by or "",
        ahead=from_duration(schema.ahead),
        row_count=stream.high,
        sql=stream_sql(schema),
        registration_count=stream.registrations,
        key=schema.key,
    )
    if schema.retain is not None:
        message.retain.CopyFrom(from_duration(schema.retain))
    if now is not None:
        message.now.CopyFrom(from_instant(now))
    return message


def view_message(state: State, view: ViewState) -> pb.View:
    definition = view.definition
    names = [view_name(state, id_) for id_ in view.over if id_ in state.views]
    names += [state.streams[id_].schema.name for id_ in view.over if id_ in state.streams]
    return pb.View(
        name=definition.name,
        id=view.id,
        columns=columns_message(definition.columns),
        sql=view_sql(definition),
        over=sorted(names),
    )


def view_name(state: State, view_id: int) -> str:
    return state.views[view_id].definition.name


async def registration_messages(
    core: Core, registrations: Sequence[Registration]
) -> list[pb.Registration]:
    """Their queries are read in a thread, and others have their say between two of them."""

    def read() -> list[Query]:
        memo = core.maker.memo
        return [read_query(memo, one.query, (_ANY,) * len(one.legs)) for one in registrations]

    messages = []
    for registration, query in zip(registrations, await core.in_thread(read), strict=True):
        messages.append(_registration_message(core, registration, query))
        await asyncio.sleep(0)
    return messages


def _registration_message(core: Core, registration: Registration, query: Query) -> pb.Registration:
    streams = [core.follower.state.streams[leg.stream_id] for leg in registration.legs]
    schemas = {stream.schema.name: stream.schema for stream in streams}
    legs = [
        _leg_message(core, stream, kept.predicate_id, leg)
        for stream, kept, leg in zip(streams, registration.legs, query.legs, strict=True)
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
        position=core.store.positions.encode(registration.position),
        registered_at=from_instant(registration.stamp),
        predicate_id=first.predicate_id,
        matched_rows=first.matched_rows,
        stream_rows=first.stream_rows,
        refresh=refresh_text(query.refresh),
        trigger_id=registration.triggers[0].predicate_id if registration.triggers else 0,
        pattern=pattern_message(query, schemas.__getitem__),
        lease_until=lease_until(core.leases, registration.handle),
        legs=legs,
        views=[view_name(core.follower.state, one) for one in registration.views],
    )


def _leg_message(
    core: Core, stream: StreamState, predicate_id: int, leg: Leg
) -> pb.RegistrationLeg:
    covered = core.follower.epoch.covering(stream.id).ranges(predicate_id)
    return pb.RegistrationLeg(
        stream=stream.schema.name,
        window=leg_window_text(leg),
        predicate_id=predicate_id,
        matched_rows=size(intersect(0, stream.high, covered)),
        stream_rows=stream.high,
    )


def page_of(
    state: State, tenant: str, request: pb.ListRegistrationsRequest
) -> tuple[list[Registration], str]:
    """A page of registrations, in the order they were made, and the token of the next page."""
    if request.page_size < 0:
        raise BadRequest("page_size is negative", field="page_size", got=str(request.page_size))
    limit = min(request.page_size or PAGE, PAGE)
    after = _place(request.page_token) if request.page_token else (0, b"")
    registrations, _ = state.columns
    page = registrations.page(tenant, request.owner, after, limit + 1)
    return page[:limit], _token(page[limit - 1]) if len(page) > limit else ""


def _token(last: Registration) -> str:
    return f"{last.position.packed:x}.{last.handle.hex()}"


def _place(token: str) -> tuple[int, bytes]:
    if not _TOKEN.fullmatch(token):
        raise BadRequest(
            "page_token is not one of this server's", field="page_token", hint="start anew"
        )
    position, handle = token.split(".")
    return int(position, 16), bytes.fromhex(handle)


def status_message(core: Core) -> pb.StatusResponse:
    view = core.follower.view
    state, epoch, now = view.state, view.epoch.epoch, view.now
    rows, age = core.follower.behind()
    pending = pending_of(view, core.interest.interests)
    message = pb.StatusResponse(
        store_id=core.store.id,
        version=_version(),
        position=core.store.positions.encode(state.position),
        now=from_instant(now),
        stream_count=len(state.stream_names),
        registration_count=len(state.registrations),
        predicate_count=len(state.predicates),
        epoch=epoch.number,
        behind_rows=rows,
        behind=from_duration(age),
        backfill_rows=pending.reached,
        rest_rows=pending.rest,
        cache_bytes=core.cache_bytes,
        cache_limit_bytes=core.settings.memory,
        uptime=from_duration(int((time.monotonic() - core.started) * 1e6)),
        limits=_limits(core.settings),
        clock=clock_message(core.guard, state),
        engine=_engine(core.follower.pulse, now),
        holes=[_hole(view, hole) for hole in view.losses.holes],
        composite_count=len(state.composites),
        suspended_count=sum(mark.suspended for mark in epoch.composites.values()),
    )
    if epoch.number:
        message.epoch_at.CopyFrom(from_instant(epoch.made_at))
    return message


def _engine(watch: PulseWatch, now: int) -> pb.EngineStatus:
    found = watch.engine
    if found is None:
        return pb.EngineStatus()
    pulse, age = found
    seen_at = from_instant(now - int(age * SECOND))
    running = age < GONE_AFTER
    return pb.EngineStatus(running=running, host=pulse.host, pid=pulse.pid, seen_at=seen_at)


def _hole(view: View, hole: Hole) -> pb.Hole:
    stream = view.state.streams[hole.stream_id]
    message = pb.Hole(
        tenant=stream.tenant,
        stream=stream.schema.name,
        first_row_id=hole.row_lo,
        row_count=hole.row_hi - hole.row_lo,
        file=hole.file,
        accepted=view.losses.is_accepted(hole),
    )
    if hole.ts_lo is not None and hole.ts_hi is not None:
        message.begin.CopyFrom(from_instant(hole.ts_lo))
        message.end.CopyFrom(from_instant(hole.ts_hi))
    return message


def _limits(settings: Settings) -> pb.Limits:
    return pb.Limits(
        message_bytes=settings.message_bytes,
        batch_rows=settings.batch.rows,
        batch_bytes=settings.batch.batch_bytes,
        value_bytes=settings.batch.value_bytes,
    )


def clock_message(guard: ClockGuard, state: State) -> pb.ClockState:
    message = pb.ClockState(
        server=guard.timepiece.name,
        clock=from_instant(guard.timepiece.wall()),
        problem=guard.problem(),
        unconfirmed=from_duration(state.jumps.unconfirmed),
        jumps=[
            pb.ClockJump(
                number=record.number,
                before=from_instant(record.jump.before),
                to=from_instant(record.jump.to),
                server=record.jump.server,
                confirmed=record.confirmed,
            )
            for record in state.jumps.records
        ],
        others=[
            pb.OtherClock(server=name, ahead=from_duration(ahead))
            for name, ahead in sorted(guard.others().items())
        ],
    )
    if state.clock:
        message.stamp.CopyFrom(from_instant(state.clock))
    return message


def _version() -> str:
    try:
        return version("psoup")
    except PackageNotFoundError:
        return "unknown"
