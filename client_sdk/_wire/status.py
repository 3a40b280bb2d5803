"""The status of a store: its state, its limits, its engine and the clocks of its servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from client_sdk._wire.access import Quota
from client_sdk._wire.models import NowLeap
from client_sdk._wire.values import moment, optional_moment, span
from psoup.v1 import psoup_pb2 as pb


@dataclass(frozen=True, slots=True)
class ClockJump:
    """A step of the store's time that nothing accounted for, by the clock of a `server`.

    `confirmed` is "operator", "time" or the machine that agreed; it is empty until then.
    """

    number: int
    before: datetime
    to: datetime
    server: str
    confirmed: str


@dataclass(frozen=True, slots=True)
class StoreZone:
    """A time zone that the store has rules of. `version` counts the rules that it has had. It is
    `outdated` if the machine of the server that answers has other rules."""

    name: str
    version: int
    outdated: bool


@dataclass(frozen=True, slots=True)
class StoreZones:
    """The time zones of a store, by name. `registration_count` registrations are matched again
    because rules were renewed."""

    zones: tuple[StoreZone, ...]
    registration_count: int

    @classmethod
    def from_wire(cls, message: pb.ZonesResponse) -> StoreZones:
        zones = (StoreZone(zone.name, zone.version, zone.outdated) for zone in message.zones)
        return cls(tuple(zones), message.registration_count)


@dataclass(frozen=True, slots=True)
class StoreClock:
    """The clocks of the servers, as the server that answers sees them.

    `problem` says why that server appends nothing; it is empty if it does append. `unconfirmed` is
    how much of the store's time depends on unconfirmed jumps. `others` are the other machines heard
    of recently, with how far the answering server is ahead of each.
    """

    server: str
    clock: datetime
    stamp: datetime | None
    problem: str
    unconfirmed: timedelta
    jumps: tuple[ClockJump, ...] = ()
    others: Mapping[str, timedelta] = field(default_factory=dict)

    @classmethod
    def from_wire(cls, message: pb.ClockState) -> StoreClock:
        return cls(
            server=message.server,
            clock=moment(message.clock),
            stamp=optional_moment(message, "stamp"),
            problem=message.problem,
            unconfirmed=span(message.unconfirmed),
            jumps=tuple(
                ClockJump(
                    number=jump.number,
                    before=moment(jump.before),
                    to=moment(jump.to),
                    server=jump.server,
                    confirmed=jump.confirmed,
                )
                for jump in message.jumps
            ),
            others={machine.server: span(machine.ahead) for machine in message.others},
        )


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """The largest batch that a server accepts: bytes of a message, rows, decoded bytes, bytes of a
    value.

    The defaults are those of a server without such options.
    """

    message_bytes: int = 16 << 20
    batch_rows: int = 1_000_000
    batch_bytes: int = 64 << 20
    value_bytes: int = 1 << 20

    @classmethod
    def from_wire(cls, message: pb.Limits) -> StoreLimits:
        """Return the limits of a server, with defaults for those that it does not report."""
        return cls(**{field.name: value for field, value in message.ListFields()})


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Whether the engine of the store runs, and which one was seen last and when, by the server's
    clock.

    `host` is empty, `pid` 0 and `seen_at` None if there was no engine or it ended in order.
    """

    running: bool
    host: str
    pid: int
    seen_at: datetime | None

    @classmethod
    def from_wire(cls, message: pb.EngineStatus) -> EngineStatus:
        seen_at = optional_moment(message, "seen_at")
        return cls(message.running, message.host, message.pid, seen_at)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A predicate of a stream, or a join, that the engine has set aside because it fails.

    Answers that need it are computed on the spot, or fail; `policies` that need it show nothing.
    Only operators see the `name`, which `psoup repair --release` takes.
    """

    name: str
    tenant: str
    stream: str
    reason: str
    since: datetime
    registration_count: int
    policies: tuple[str, ...]

    @classmethod
    def from_wire(cls, message: pb.Quarantined) -> Quarantined:
        return cls(
            name=message.name,
            tenant=message.tenant,
            stream=message.stream,
            reason=message.reason,
            since=moment(message.since),
            registration_count=message.registration_count,
            policies=tuple(message.policies),
        )


@dataclass(frozen=True, slots=True)
class RegistrationWork:
    """What a server has done for a registration in the last minute: `work` in units of about a
    nanosecond of a processor, as quotas count it, in a number of pieces."""

    handle: bytes
    tenant: str
    owner: str
    key: str | None
    work: int
    pieces: int

    @property
    def hex(self) -> str:
        """The handle as 32 hexadecimal digits."""
        return self.handle.hex()

    @classmethod
    def from_wire(cls, message: pb.RegistrationWork) -> RegistrationWork:
        return cls(
            handle=message.handle,
            tenant=message.tenant,
            owner=message.owner,
            key=message.client_key or None,
            work=message.work,
            pieces=message.pieces,
        )


@dataclass(frozen=True, slots=True)
class StreamTime:
    """A stream with event time: `late_rows` came after its NOW had passed their ts, and `last_leap`
    was the last to take NOW past the clock; None if nothing did."""

    tenant: str
    stream: str
    late_rows: int
    last_leap: NowLeap | None

    @classmethod
    def from_wire(cls, message: pb.StreamTime) -> StreamTime:
        leap = NowLeap.from_wire(message.last_leap) if message.HasField("last_leap") else None
        return cls(message.tenant, message.stream, message.late_rows, leap)


@dataclass(frozen=True, slots=True)
class LostRows:
    """Rows of a stream that were accepted and whose `file` is damaged or gone.

    `begin` and `end` are their least and greatest ts. Answers that need them fail until the
    operator has `accepted` the loss. Only operators see the file. If rows of the stream may be
    hidden from the caller, `row_count` is 0 and nothing says which rows are lost.
    """

    tenant: str
    stream: str
    first_row_id: int
    row_count: int
    begin: datetime | None
    end: datetime | None
    file: str
    accepted: bool

    @classmethod
    def from_wire(cls, message: pb.Hole) -> LostRows:
        return cls(
            tenant=message.tenant,
            stream=message.stream,
            first_row_id=message.first_row_id,
            row_count=message.row_count,
            begin=optional_moment(message, "begin"),
            end=optional_moment(message, "end"),
            file=message.file,
            accepted=message.accepted,
        )


@dataclass(frozen=True, slots=True)
class StoreSecurity:
    """What the server requires of its clients, and how it identifies this one.

    `modes` are some of "keys", "jwt" and "certificates"; if it is empty, anyone may call. `missing`
    lists the protections that a server reached from other machines should have and this one lacks.
    """

    tls: bool
    client_certificates: bool
    modes: tuple[str, ...]
    missing: tuple[str, ...]
    tenant: str
    owner: str
    credential: str

    @classmethod
    def from_wire(cls, message: pb.SecurityStatus) -> StoreSecurity:
        return cls(
            tls=message.tls,
            client_certificates=message.client_certificates,
            modes=tuple(message.modes),
            missing=tuple(message.missing),
            tenant=message.tenant,
            owner=message.owner,
            credential=message.credential,
        )


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The state of a store. While `epoch` is 0 no engine has run yet; answers are complete all the
    same.

    `clock`, `engine` and `security` are None if the server's version does not report them. The
    engine combines the rows of `composite_count` joins ahead of time, except for `suspended_count`
    of them, which have too many combinations. `backfill_rows` counts the pairs of row and predicate
    that are still to be matched and that a window can reach, `rest_rows` those that no window
    reaches, which may never be matched. `quotas` are those of the caller. `top_registrations` are
    those with the most work in the last minute on the server that answers, at most ten.
    `stream_times` are streams whose NOW was taken past the clock, or that have late rows, at most
    ten, for those who administer the tenant.

    `server` is the process that answers; `server_count` servers share its port, so that another
    connection may reach another of them.

    A caller who is no operator sees the part of its own tenant, and 0 for what belongs to the whole
    store. `behind_rows` and `behind` are then about the streams that the caller may read
    completely.
    """

    store_id: str
    version: str
    position: bytes
    now: datetime
    stream_count: int
    registration_count: int
    predicate_count: int
    epoch: int
    epoch_at: datetime | None
    behind_rows: int
    behind: timedelta
    backfill_rows: int
    cache_bytes: int
    cache_limit_bytes: int
    uptime: timedelta
    clock: StoreClock | None = None
    limits: StoreLimits = StoreLimits()
    engine: EngineStatus | None = None
    holes: tuple[LostRows, ...] = ()
    composite_count: int = 0
    suspended_count: int = 0
    security: StoreSecurity | None = None
    quotas: tuple[Quota, ...] = ()
    rest_rows: int = 0
    quarantine: tuple[Quarantined, ...] = ()
    top_registrations: tuple[RegistrationWork, ...] = ()
    stream_times: tuple[StreamTime, ...] = ()
    server: str = ""
    server_count: int = 0

    @classmethod
    def from_wire(cls, message: pb.StatusResponse) -> StoreStatus:
        return cls(
            store_id=message.store_id,
            version=message.version,
            position=message.position,
            now=moment(message.now),
            stream_count=message.stream_count,
            registration_count=message.registration_count,
            predicate_count=message.predicate_count,
            epoch=message.epoch,
            epoch_at=optional_moment(message, "epoch_at"),
            behind_rows=message.behind_rows,
            behind=span(message.behind),
            backfill_rows=message.backfill_rows,
            rest_rows=message.rest_rows,
            cache_bytes=message.cache_bytes,
            cache_limit_bytes=message.cache_limit_bytes,
            uptime=span(message.uptime),
            clock=StoreClock.from_wire(message.clock) if message.HasField("clock") else None,
            limits=StoreLimits.from_wire(message.limits),
            engine=EngineStatus.from_wire(message.engine) if message.HasField("engine") else None,
            holes=tuple(map(LostRows.from_wire, message.holes)),
            composite_count=message.composite_count,
            suspended_count=message.suspended_count,
            security=StoreSecurity.from_wire(message.security)
            if message.HasField("security")
            else None,
            quotas=tuple(map(Quota.from_wire, message.quotas)),
            quarantine=tuple(map(Quarantined.from_wire, message.quarantine)),
            top_registrations=tuple(map(RegistrationWork.from_wire, message.top_registrations)),
            stream_times=tuple(map(StreamTime.from_wire, message.stream_times)),
            server=message.server,
            server_count=message.server_count,
        )
