"""What can be appended: definitions, registrations, batches; each knows when it is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from datastem.instants import format_instant
from datastem.schema import StreamSchema
from psoup.server.clockguard import ClockGuard
from psoup.server.draft import Chain, Draft
from psoup.server.errors import (
    BadRequest,
    ClockUnconfirmed,
    KeyTaken,
    NoSuchStream,
    RegistrationExpired,
    SequenceGap,
    SequenceReused,
    StreamExists,
    UnknownHandle,
)
from psoup.store import (
    START,
    Confirm,
    CreateStream,
    Data,
    DropStream,
    Expire,
    Position,
    Publisher,
    Register,
    Registration,
    Renew,
    State,
    StreamState,
    Tick,
    Trigger,
    Unregister,
)
from psoup.store.columns import HANDLE_BYTES
from querystem.query import Query, RefreshOn

_HEADER_BYTES = 500


class Stale(Exception):
    """The stream this was prepared for is another one now: prepare it again."""


@dataclass(frozen=True, slots=True)
class Define:
    """Creates a stream."""

    tenant: str
    owner: str
    schema: StreamSchema
    nbytes: int = _HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: Draft) -> tuple[StreamState, Position]:
        if draft.state.find_stream(self.tenant, self.schema.name) is not None:
            raise StreamExists(
                f"there is a stream {self.schema.name} already",
                hint="drop it first, or choose another name",
            )
        stream_id = draft.state.next_stream_id
        position = draft.append(self.tenant, self.owner, CreateStream(stream_id, self.schema))
        return draft.state.streams[stream_id], position


@dataclass(frozen=True, slots=True)
class Drop:
    tenant: str
    owner: str
    name: str
    nbytes: int = _HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: Draft) -> tuple[StreamState, Position]:
        stream = find_stream(draft.state, self.tenant, self.name)
        return stream, draft.append(self.tenant, self.owner, DropStream(stream.id))


@dataclass(frozen=True, slots=True)
class Prepared:
    """One registration to be, bound. `parameters` is JSON."""

    client_key: str
    parameters: str
    query: Query


@dataclass(frozen=True, slots=True)
class Registered:
    handles: list[bytes]
    created: int
    position: Position


@dataclass(frozen=True, slots=True)
class RegisterAll:
    """Registrations of one text: all of them or none. `streams` has the ids it was bound to."""

    tenant: str
    owner: str
    streams: Mapping[str, int]
    text: str
    lease: int
    prepared: Sequence[Prepared]
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return len(self.prepared) * (_HEADER_BYTES + 3 * len(self.text))

    def propose(self, draft: Draft) -> Registered:
        self._check(draft)
        handles, created, position = [], 0, START
        for one in self.prepared:
            known = self._known(draft.state, one)
            if known is None:
                handle, position = self._append(draft, one)
                created += 1
            else:
                handle, position = known.handle, max(position, known.position)
            handles.append(handle)
        return Registered(handles, created, position)

    def _check(self, draft: Draft) -> None:
        if any(draft.state.streams[stream_id].dropped for stream_id in self.streams.values()):
            raise Stale
        if len(self.prepared) > draft.room:
            raise BadRequest(f"{len(self.prepared)} registrations don't fit one commit")
        seen: dict[str, str] = {}
        for one in self.prepared:
            if not one.client_key:
                continue
            known = self._known(draft.state, one)
            other = known is not None and (known.text, known.parameters) != (
                self.text,
                one.parameters,
            )
            if other or seen.setdefault(one.client_key, one.parameters) != one.parameters:
                raise key_taken(one.client_key)

    def _known(self, state: State, one: Prepared) -> Registration | None:
        key = self.tenant, self.owner, one.client_key
        handle = state.registrations.find(*key) if one.client_key else None
        return None if handle is None else state.registrations[handle]

    def _append(self, draft: Draft, one: Prepared) -> tuple[bytes, Position]:
        stream_id, key = self.streams[one.query.stream], one.query.predicate_key
        known = draft.state.predicates.find(stream_id, key)
        predicate_id = draft.state.next_predicate_id if known is None else known
        event = Register(
            handle=os.urandom(HANDLE_BYTES),
            client_key=one.client_key,
            stream_id=stream_id,
            predicate_id=predicate_id,
            key=key,
            text=self.text,
            parameters=one.parameters,
            query=one.query.form,
            lease=self.lease,
            trigger=self._trigger(draft.state, one.query, (stream_id, key), predicate_id),
        )
        return event.handle, draft.append(self.tenant, self.owner, event)

    def _trigger(
        self, state: State, query: Query, own: tuple[int, str], predicate_id: int
    ) -> Trigger | None:
        """`own` is the query's predicate, which may be new and is then `predicate_id`."""
        if not isinstance(query.refresh, RefreshOn):
            return None
        other = self.streams[query.refresh.stream], query.refresh.predicate_key
        if other == own:
            return Trigger(other[0], predicate_id, other[1])
        known = state.predicates.find(*other)
        free = max(state.next_predicate_id, predicate_id + 1)
        return Trigger(other[0], free if known is None else known, other[1])


@dataclass(frozen=True, slots=True)
class UnregisterOne:
    tenant: str
    handle: bytes
    nbytes: int = _HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: Draft) -> Position:
        registration = find_registration(draft.state, self.tenant, self.handle)
        return draft.append(self.tenant, registration.owner, Unregister(self.handle))


@dataclass(frozen=True, slots=True)
class RenewOne:
    """Begins a lease anew, where some of it has been used up; else there is nothing to say."""

    handle: bytes
    nbytes: int = _HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: Draft) -> None:
        found = draft.state.registrations.get(self.handle)
        if found is not None and wants_renewal(draft.state, found, draft.stamp):
            draft.append(found.tenant, found.owner, Renew(self.handle))


@dataclass(frozen=True, slots=True)
class ExpireOne:
    """Ends a registration, if nobody has asked for it for as long as its lease."""

    handle: bytes
    nbytes: int = _HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: Draft) -> bool:
        """Whether it has ended."""
        found = draft.state.registrations.get(self.handle)
        if found is None or draft.state.awake_since_contact(found, draft.stamp) < found.lease:
            return False
        draft.append(found.tenant, found.owner, Expire(self.handle))
        return True


@dataclass(frozen=True, slots=True)
class TickOnce:
    """Says that a server is up, where none of its machine has said anything for a while."""

    guard: ClockGuard
    after: int
    nbytes: int = _HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: Draft) -> None:
        if draft.empty and max(draft.quiet, self.guard.silence) >= self.after:
            draft.append("", "", Tick())


@dataclass(frozen=True, slots=True)
class ConfirmJumps:
    """Says that jumps of the store's time are true, those of them that nobody has confirmed."""

    numbers: tuple[int, ...]
    nbytes: int = _HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: Draft) -> None:
        jumps = draft.state.jumps
        for number in self.numbers:
            if not 1 <= number <= jumps.made:
                raise BadRequest(
                    f"there is no jump {number}; the store's time has jumped {jumps.made} times",
                    field="confirm",
                    got=str(number),
                    hint="look at `psoup clock`",
                )
        waiting = {record.number for record in jumps.open}
        for number in sorted(waiting.intersection(self.numbers)):
            draft.append("", "", Confirm(number))


# A lease is renewed when so small a part of it has been used up: 30 renewals a lease at most.
_RENEWALS = 30


def wants_renewal(state: State, registration: Registration, now: int) -> bool:
    used = state.awake_since_contact(registration, now)
    return used * _RENEWALS >= registration.lease


@dataclass(frozen=True, slots=True)
class Published:
    """`unverified`: a repeat by its number, whose rows may be other ones than those of then."""

    position: Position
    rows: int
    first_row_id: int
    duplicate: bool
    unverified: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that was accepted for the stream `stream_id`, or a heartbeat without a payload.

    `min_ts` and `max_ts` are None where ts is the stamp of arrival.
    """

    tenant: str
    owner: str
    stream_id: int
    publisher: str
    sequence: int
    rows: int
    min_ts: int | None
    max_ts: int | None
    digest: bytes
    payload: bytes
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return len(self.payload) + _HEADER_BYTES

    def propose(self, draft: Draft) -> Published:
        repeated = self._repeated(draft) if self.publisher else None
        if repeated is not None:
            return repeated
        stream = draft.state.streams[self.stream_id]
        if stream.dropped:
            raise Stale
        self._check_ahead(draft, stream)
        arrival = draft.stamp if self.rows and self.min_ts is None else None
        event = Data(
            stream_id=self.stream_id,
            publisher=self.publisher,
            sequence=self.sequence,
            rows=self.rows,
            first_row_id=stream.high,
            min_ts=self.min_ts if arrival is None else arrival,
            max_ts=self.max_ts if arrival is None else arrival,
            before=stream.reached,
            digest=self.digest,
            payload=self.payload,
        )
        position = draft.append(self.tenant, self.owner, event)
        return Published(position, self.rows, stream.high, False)

    def _check_ahead(self, draft: Draft, stream: StreamState) -> None:
        """Against the stamps that are vouched for. Whoever accepted the batch has refused what is
        ahead even of this commit's stamp; what is left may be right, and is not rejected for good.
        """
        limit = draft.vouched + stream.schema.ahead
        if stream.schema.ordered_by is None or self.max_ts is None or self.max_ts <= limit:
            return
        raise ClockUnconfirmed(
            f"ts {format_instant(self.max_ts)} is more than AHEAD past what is known for sure of "
            f"the time, {format_instant(draft.vouched)}: the clock of the store's servers jumped "
            "forward, and nobody has confirmed that yet",
            field=stream.schema.ordered_by,
            expected=f"at most {format_instant(limit)}",
            got=format_instant(self.max_ts),
            hint="look at `psoup clock`, confirm the jump if it is right, and send this again",
        )

    def _repeated(self, draft: Draft) -> Published | None:
        """None where this is the next sequence."""
        last = draft.state.publishers.get((self.tenant, self.publisher))
        reached = last.sequence if last else 0
        if self.sequence == reached + 1:
            return None
        if self.sequence > reached or last is None:
            raise SequenceGap(
                f"sequence {self.sequence} of publisher {self.publisher} can't follow {reached}",
                expected=str(reached + 1),
                got=str(self.sequence),
                hint=f"send sequence {reached + 1} next",
            )
        old = draft.batch(self.tenant, self.publisher, self.sequence)
        if old is None:
            return Published(last.position, self.rows, -1, duplicate=True, unverified=True)
        return self._same(old)

    def _same(self, old: Publisher) -> Published:
        if old.digest != self.digest:
            raise SequenceReused(
                f"sequence {self.sequence} of publisher {self.publisher} was given to other rows",
                expected=f"the rows of digest {old.digest.hex()}",
                got=f"rows of digest {self.digest.hex()}",
                hint="send the same rows again, or use the next sequence",
            )
        return Published(old.position, old.rows, old.first_row_id, True)


def key_taken(client_key: str) -> KeyTaken:
    return KeyTaken(
        f"the client key {client_key!r} belongs to another query",
        field="client_key",
        got=client_key[:100],
        hint="unregister that query first, or use another key",
    )


def find_stream(state: State, tenant: str, name: str) -> StreamState:
    """Raises NoSuchStream."""
    stream = state.find_stream(tenant, name.lower())
    if stream is None:
        raise NoSuchStream(
            f"there is no stream {name[:100]!r}", got=name[:100], hint="create it, or list them"
        )
    return stream


def find_registration(state: State, tenant: str, handle: bytes) -> Registration:
    """Raises UnknownHandle, also for another tenant's; RegistrationExpired."""
    registration = state.registrations.get(handle)
    expired = state.leases.expired.get(handle)
    if expired is not None and expired.tenant == tenant:
        raise RegistrationExpired(
            f"nobody asked for this query for as long as its lease, so it ended on "
            f"{format_instant(expired.stamp)}",
            got=handle[:32].hex(),
            hint="register it again, and begin with a whole answer",
        )
    if registration is None or registration.tenant != tenant:
        raise UnknownHandle(
            "that handle is unknown: never given, unregistered, or another tenant's",
            got=handle[:32].hex(),
            hint="register the query again",
        )
    return registration
