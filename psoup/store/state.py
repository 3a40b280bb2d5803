"""The fold of the log: which streams, registrations and publishers there are at a position.

Servers keep one at the tail and validate against it; the engine keeps one at its epoch and writes
what changed. Both apply the same entries in the same order, so both hold the same state.

Values are immutable and replaced, so a `draft` can share them.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace

from datastem.schema import StreamSchema
from psoup.store.events import (
    CreateStream,
    Data,
    DropStream,
    Entry,
    Expire,
    Register,
    Renew,
    Tick,
    Unregister,
)
from psoup.store.leases import Leases
from psoup.store.overlay import Overlay
from psoup.store.position import START, Position


@dataclass(frozen=True, slots=True)
class StreamState:
    """`high` is the next row id; `reached` the greatest ts of rows and heartbeats.

    A dropped stream keeps its place, so that registrations over it can say what became of them.
    """

    id: int
    tenant: str
    owner: str
    schema: StreamSchema
    position: Position
    high: int = 0
    reached: int | None = None
    registrations: int = 0
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class Registration:
    handle: bytes
    tenant: str
    owner: str
    client_key: str
    stream_id: int
    predicate_id: int
    text: str
    parameters: str
    query: str
    lease: int
    stamp: int
    position: Position


@dataclass(frozen=True, slots=True)
class Predicate:
    """What gets matched, once for all registrations that share it. Dead when the last one goes."""

    id: int
    tenant: str
    stream_id: int
    key: str
    registrations: int


@dataclass(frozen=True, slots=True)
class Publisher:
    """The last batch of a publisher; every earlier sequence was accepted too."""

    sequence: int
    digest: bytes
    first_row_id: int
    rows: int
    position: Position


@dataclass(slots=True)
class Touched:
    """The keys that applied entries changed: what the engine has to write."""

    streams: set[int] = field(default_factory=set)
    registrations: set[bytes] = field(default_factory=set)
    predicates: set[int] = field(default_factory=set)
    publishers: set[tuple[str, str]] = field(default_factory=set)
    leases: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class State:
    position: Position = START
    clock: int = 0
    next_stream_id: int = 1
    next_predicate_id: int = 1
    streams: MutableMapping[int, StreamState] = field(default_factory=dict)
    stream_names: MutableMapping[tuple[str, str], int] = field(default_factory=dict)
    registrations: MutableMapping[bytes, Registration] = field(default_factory=dict)
    client_keys: MutableMapping[tuple[str, str, str], bytes] = field(default_factory=dict)
    predicates: MutableMapping[int, Predicate] = field(default_factory=dict)
    predicate_keys: MutableMapping[tuple[int, str], int] = field(default_factory=dict)
    publishers: MutableMapping[tuple[str, str], Publisher] = field(default_factory=dict)
    leases: Leases = field(default_factory=Leases)

    def draft(self) -> State:
        """A state that starts as this one and whose changes stay its own."""
        return State(
            self.position,
            self.clock,
            self.next_stream_id,
            self.next_predicate_id,
            Overlay(self.streams),
            Overlay(self.stream_names),
            Overlay(self.registrations),
            Overlay(self.client_keys),
            Overlay(self.predicates),
            Overlay(self.predicate_keys),
            Overlay(self.publishers),
            self.leases.draft(),
        )

    def find_stream(self, tenant: str, name: str) -> StreamState | None:
        """The live stream of that name."""
        stream_id = self.stream_names.get((tenant, name))
        return None if stream_id is None else self.streams[stream_id]

    def apply(self, entry: Entry, touched: Touched | None = None) -> None:
        """Entries must come in log order, each once."""
        touched = touched or Touched()
        self.leases.pass_time(self.clock, entry.stamp)
        match entry.event:
            case Data() as event:
                self._data(entry, event, touched)
            case Register() as event:
                self._register(entry, event, touched)
            case Unregister(handle):
                self._unregister(handle, touched)
            case Renew(handle):
                self.leases.renewed[handle] = entry.stamp
                touched.leases.add(handle)
            case Expire(handle):
                self._unregister(handle, touched)
                touched.leases.update(self.leases.expire(handle, entry.tenant, entry.stamp))
                touched.leases.add(handle)
            case Tick():
                pass
            case CreateStream(stream_id, schema):
                self._create(entry, stream_id, schema, touched)
            case DropStream(stream_id):
                stream = self.streams[stream_id]
                self.streams[stream_id] = replace(stream, dropped=True)
                del self.stream_names[stream.tenant, stream.schema.name]
                touched.streams.add(stream_id)
        self.position = entry.position
        self.clock = entry.stamp

    def awake_since_contact(self, registration: Registration, now: int) -> int:
        """How much of its lease a registration has used up, as far as the log tells."""
        since = self.leases.renewed.get(registration.handle, registration.stamp)
        return self.leases.awake(since, self.clock, now)

    def _create(self, entry: Entry, stream_id: int, schema: StreamSchema, touched: Touched) -> None:
        stream = StreamState(stream_id, entry.tenant, entry.owner, schema, entry.position)
        self.streams[stream_id] = stream
        self.stream_names[entry.tenant, schema.name] = stream_id
        self.next_stream_id = stream_id + 1
        touched.streams.add(stream_id)

    def _data(self, entry: Entry, event: Data, touched: Touched) -> None:
        stream = self.streams[event.stream_id]
        reached = max((t for t in (stream.reached, event.max_ts) if t is not None), default=None)
        high = event.first_row_id + event.rows
        self.streams[stream.id] = replace(stream, high=high, reached=reached)
        if event.publisher:
            key = entry.tenant, event.publisher
            self.publishers[key] = Publisher(
                event.sequence, event.digest, event.first_row_id, event.rows, entry.position
            )
            touched.publishers.add(key)

    def _register(self, entry: Entry, event: Register, touched: Touched) -> None:
        registration = Registration(
            event.handle,
            entry.tenant,
            entry.owner,
            event.client_key,
            event.stream_id,
            event.predicate_id,
            event.text,
            event.parameters,
            event.query,
            event.lease,
            entry.stamp,
            entry.position,
        )
        self.insert_registration(registration)
        known = self.predicates.get(event.predicate_id)
        if known is None:
            known = Predicate(event.predicate_id, entry.tenant, event.stream_id, event.key, 0)
            self.predicate_keys[event.stream_id, event.key] = event.predicate_id
            self.next_predicate_id = event.predicate_id + 1
        self.predicates[known.id] = replace(known, registrations=known.registrations + 1)
        touched.registrations.add(event.handle)
        touched.predicates.add(event.predicate_id)

    def insert_registration(self, registration: Registration) -> None:
        """Without its predicate's count, which the caller keeps."""
        self.registrations[registration.handle] = registration
        if registration.client_key:
            key = registration.tenant, registration.owner, registration.client_key
            self.client_keys[key] = registration.handle
        stream = self.streams[registration.stream_id]
        self.streams[stream.id] = replace(stream, registrations=stream.registrations + 1)

    def _unregister(self, handle: bytes, touched: Touched) -> None:
        registration = self.registrations.pop(handle)
        if self.leases.renewed.pop(handle, None) is not None:
            touched.leases.add(handle)
        if registration.client_key:
            del self.client_keys[registration.tenant, registration.owner, registration.client_key]
        stream = self.streams[registration.stream_id]
        self.streams[stream.id] = replace(stream, registrations=stream.registrations - 1)
        predicate = self.predicates[registration.predicate_id]
        if predicate.registrations == 1:
            del self.predicates[predicate.id]
            del self.predicate_keys[predicate.stream_id, predicate.key]
        else:
            self.predicates[predicate.id] = replace(
                predicate, registrations=predicate.registrations - 1
            )
        touched.registrations.add(handle)
        touched.predicates.add(predicate.id)
