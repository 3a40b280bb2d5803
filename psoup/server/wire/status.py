"""The store and the server that answers, as messages."""

from __future__ import annotations

import heapq
import time

from datastem.instants import SECOND
from psoup.access.actions import reads_all
from psoup.access.principal import Principal
from psoup.answers import View
from psoup.answers.replicas.pending import pending_of
from psoup.process_log import process_name
from psoup.server.core import Core
from psoup.server.permission import Acting
from psoup.server.settings import Settings
from psoup.server.wire.describing import leap_message
from psoup.server.wire.values import from_duration, from_instant
from psoup.store import Hole, State, StreamState
from psoup.store.presence import ENGINE_TIMEOUT_SECONDS, PulseWatch
from psoup.store.state.quarantine import PREDICATE, QuarantineEntry
from psoup.v1 import psoup_pb2 as pb
from psoup.version import software_version
from psoup.write.clock import ClockGuard

# The registrations that a status names as those with the most work, and the streams that it names
# for their NOW.
_MAX_TOP = 10


def status_message(core: Core, acting: Acting) -> pb.StatusResponse:
    """Return all that is known of the store for operators; for others the part of their own
    tenant."""
    view = core.follower.view
    state, epoch, now = view.state, view.epoch.epoch, view.now
    rows, age = core.follower.behind()
    pending = pending_of(view, core.interest.interests)
    message = pb.StatusResponse(
        store_id=core.store.id,
        version=software_version(),
        position=core.positions.encode(state.position),
        now=from_instant(now),
        stream_count=len(state.stream_names),
        registration_count=len(state.registrations),
        predicate_count=len(state.predicates),
        epoch=epoch.number,
        behind_rows=rows,
        behind=from_duration(age),
        backfill_rows=pending.reachable,
        rest_rows=pending.unreachable,
        cache_bytes=core.cache_bytes,
        cache_limit_bytes=core.settings.memory,
        uptime=from_duration(int((time.monotonic() - core.started) * 1e6)),
        limits=_limits(core.settings),
        clock=clock_message(core.guard, state, acting),
        engine=_engine(core.follower.pulse, now),
        holes=[_hole(view, hole) for hole in view.losses.holes],
        composite_count=len(state.composites),
        suspended_count=sum(mark.suspended for mark in epoch.composites.values()),
        security=_security(core, acting.principal),
        quarantine=[_quarantined(state, entry) for entry in epoch.quarantine.entries],
    )
    if epoch.number:
        message.epoch_at.CopyFrom(from_instant(epoch.made_at))
    message.top_registrations.extend(_top_registrations(core, acting))
    message.server = process_name()
    message.server_count = 1 if core.settings.group is None else core.settings.group.members
    message.stream_times.extend(_stream_times(core.follower.state, acting))
    return message if acting.operates else _own_part(core, acting, message)


def _top_registrations(core: Core, acting: Acting) -> list[pb.RegistrationWork]:
    """Return the registrations with the most work, of those that the caller may use and that have
    not ended."""
    state = core.follower.state
    tenant = None if acting.operates else acting.tenant
    owner = None if acting.operates else acting.own(state)
    return [
        pb.RegistrationWork(
            handle=entry.handle,
            tenant=entry.tenant,
            owner=entry.owner,
            client_key=entry.client_key,
            work=entry.units,
            pieces=entry.pieces,
        )
        for entry in core.recent_work.top(_MAX_TOP, tenant, owner)
        if entry.handle in state.registrations
    ]


def _stream_times(state: State, acting: Acting) -> list[pb.StreamTime]:
    """Return the streams whose NOW was taken past the clock, the last ones first, and then those
    with the most late rows; of those that the caller administers."""
    if not (acting.operates or acting.administers(state)):
        return []
    streams = (
        stream
        for stream in state.streams.values()
        if stream.leap is not None or stream.late_rows
        if acting.operates
        or (stream.tenant == acting.tenant and reads_all(state, stream.id, acting.principal))
    )
    return [
        _stream_time(stream)
        for stream in heapq.nlargest(
            _MAX_TOP, streams, key=lambda s: (s.leap.stamp if s.leap else 0, s.late_rows)
        )
    ]


def _stream_time(stream: StreamState) -> pb.StreamTime:
    message = pb.StreamTime(
        tenant=stream.tenant, stream=stream.schema.name, late_rows=stream.late_rows
    )
    if stream.leap is not None:
        message.last_leap.CopyFrom(leap_message(stream.leap))
    return message


_OF_ALL = (
    "predicate_count",
    "backfill_rows",
    "rest_rows",
    "cache_bytes",
    "composite_count",
    "suspended_count",
    "server",
    "server_count",
)
_OF_LOST_ROWS = ("first_row_id", "row_count", "begin", "end")


def _own_part(core: Core, acting: Acting, message: pb.StatusResponse) -> pb.StatusResponse:
    """Return a status without what is about other tenants, about rows that the caller may not read,
    or about the machines of the store."""
    state, tenant, reader = core.follower.state, acting.tenant, acting.principal
    visible = acting.visible(state)
    for field in _OF_ALL:
        message.ClearField(field)
    message.engine.ClearField("host")
    message.engine.ClearField("pid")
    stream_ids = [id_ for (owner, _), id_ in state.stream_names.items() if owner == tenant]
    message.stream_count = sum(map(visible, stream_ids))
    message.registration_count = state.owned_by("registrations", tenant, acting.own(state) or "")
    counted = {id_ for id_ in stream_ids if reads_all(state, id_, reader)}
    message.behind_rows, age = core.follower.behind_in(counted)
    message.behind.CopyFrom(from_duration(age))
    entries = [entry for entry in message.quarantine if entry.tenant == tenant]
    del message.quarantine[:]
    for entry in entries if acting.administers(state) else ():
        entry.ClearField("name")
        message.quarantine.append(entry)
    holes = [hole for hole in message.holes if hole.tenant == tenant]
    del message.holes[:]
    for hole in holes:
        stream_id = state.stream_names.get((tenant, hole.stream), -1)
        if visible(stream_id):
            hidden = ("file",) if stream_id in counted else ("file", *_OF_LOST_ROWS)
            for field in hidden:
                hole.ClearField(field)
            message.holes.append(hole)
    return message


def _engine(watch: PulseWatch, now: int) -> pb.EngineStatus:
    engine = watch.engine
    if engine is None:
        return pb.EngineStatus()
    pulse, age = engine
    seen_at = from_instant(now - int(age * SECOND))
    running = age < ENGINE_TIMEOUT_SECONDS
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


def _quarantined(state: State, entry: QuarantineEntry) -> pb.Quarantined:
    composite = state.composites.get(entry.stream_id)
    stream = state.streams.get(entry.stream_id if composite is None else composite.legs[0])
    predicate = state.predicates.get(entry.id) if entry.kind == PREDICATE else None
    filled = () if predicate is None else state.access.by_predicate.get(entry.id, ())
    policies = (
        state.access.policies.get(str(state.access.filled[id_].policy_id)) for id_ in filled
    )
    return pb.Quarantined(
        name=entry.name,
        tenant="" if stream is None else stream.tenant,
        stream=stream.schema.name if stream is not None and composite is None else "",
        reason=entry.reason,
        since=from_instant(entry.since),
        # Each policy that is filled in with it counts as a user of the predicate, too.
        registration_count=0 if predicate is None else predicate.registrations - len(filled),
        policies=sorted({policy.name for policy in policies if policy is not None}),
    )


def _security(core: Core, caller: Principal) -> pb.SecurityStatus:
    settings = core.settings.identity
    names = {} if caller.anyone else {"tenant": caller.tenant, "owner": caller.owner}
    return pb.SecurityStatus(
        **names,
        credential=caller.credential,
        tls=settings.tls is not None,
        client_certificates=settings.tls is not None and settings.tls.client_ca is not None,
        modes=core.authenticator.modes(),
        missing=settings.missing_for(core.settings.host),
    )


def _limits(settings: Settings) -> pb.Limits:
    return pb.Limits(
        message_bytes=settings.message_bytes,
        batch_rows=settings.batch.rows,
        batch_bytes=settings.batch.batch_bytes,
        value_bytes=settings.batch.value_bytes,
    )


def clock_message(guard: ClockGuard, state: State, acting: Acting) -> pb.ClockState:
    """Return the clocks of the store for operators; for others that of the server that answers."""
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
    if not acting.operates:
        for field in ("server", "jumps", "others"):
            message.ClearField(field)
    return message
