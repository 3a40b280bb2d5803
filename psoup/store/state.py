"""The fold of the log: which streams, registrations and publishers there are at a position.

Servers keep one at the tail and validate against it; the engine keeps one at its epoch and writes
what changed. Both apply the same entries in the same order, so both hold the same state.

Values are immutable and replaced, so a `draft` can share them.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace

from datastem.schema import StreamSchema
from psoup.store.events import CreateStream, Data, DropStream, Entry, Register, Unregister
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
    """`trigger_id` is the predicate over `trigger_stream_id` whose rows refresh it, if any do."""

    handle: bytes
    tenant: str
    owner: str
    client_key: str
    stream_id: int
    predicate_id: int
    trigger_stream_id: int | None
    trigger_id: int | None
    text: str
    parameters: str
    query: str
    lease: int
    stamp: int
    position: Position

    @property
    def predicates(self) -> set[int]:
        """All it needs matched."""
        return (
            {self.predicate_id} if self.trigger_id is None else {self.predicate_id, self.trigger_id}
        )


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
        )

    def find_stream(self, tenant: str, name: str) -> StreamState | None:
        """The live stream of that name."""
        stream_id = self.stream_names.get((tenant, name))
        return None if stream_id is None else self.streams[stream_id]

    def apply(self, entry: Entry, touched: Touched | None = None) -> None:
        """Entries must come in log order, each once."""
        touched = touched or Touched()
        match entry.event:
            case Data() as event:
                self._data(entry, event, touched)
            case Register() as event:
                self._register(entry, event, touched)
            case Unregister(handle):
                self._unregister(handle, touched)
            case CreateStream(stream_id, schema):
                self._create(entry, stream_id, schema, touched)
            case DropStream(stream_id):
                stream = self.streams[stream_id]
                self.streams[stream_id] = replace(stream, dropped=True)
                del self.stream_names[stream.tenant, stream.schema.name]
                touched.streams.add(stream_id)
        self.position = entry.position
        self.clock = entry.stamp

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
        trigger = event.trigger
        registration = Registration(
            event.handle,
            entry.tenant,
            entry.owner,
            event.client_key,
            event.stream_id,
            event.predicate_id,
            None if trigger is None else trigger.stream_id,
            None if trigger is None else trigger.predicate_id,
            event.text,
            event.parameters,
            event.query,
            event.lease,
            entry.stamp,
            entry.position,
        )
        self.insert_registration(registration)
        self._know(Predicate(event.predicate_id, entry.tenant, event.stream_id, event.key, 0))
        if trigger is not None:
            self._know(
                Predicate(trigger.predicate_id, entry.tenant, trigger.stream_id, trigger.key, 0)
            )
        for predicate_id in registration.predicates:
            known = self.predicates[predicate_id]
            self.predicates[known.id] = replace(known, registrations=known.registrations + 1)
        touched.registrations.add(event.handle)
        touched.predicates |= registration.predicates

    def _know(self, predicate: Predicate) -> None:
        if predicate.id not in self.predicates:
            self.predicates[predicate.id] = predicate
            self.predicate_keys[predicate.stream_id, predicate.key] = predicate.id
            self.next_predicate_id = predicate.id + 1

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
        if registration.client_key:
            del self.client_keys[registration.tenant, registration.owner, registration.client_key]
        stream = self.streams[registration.stream_id]
        self.streams[stream.id] = replace(stream, registrations=stream.registrations - 1)
        for predicate_id in registration.predicates:
            self._release(self.predicates[predicate_id])
        touched.registrations.add(handle)
        touched.predicates |= registration.predicates

    def _release(self, predicate: Predicate) -> None:
        if predicate.registrations == 1:
            del self.predicates[predicate.id]
            del self.predicate_keys[predicate.stream_id, predicate.key]
        else:
            self.predicates[predicate.id] = replace(
                predicate, registrations=predicate.registrations - 1
            )
