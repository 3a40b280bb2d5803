"""The state: the streams, registrations, publishers and so on at a position, as a fold of the log.

Servers keep one at the end of the log and validate against it; the engine keeps one at its epoch
and writes what changed. Both apply the same entries in the same order, so both get the same state.

Values are immutable and replaced, so a `draft` can share them. Registrations and predicates, of
which there may be millions, are columns that make a value when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from datastem.schema import StreamSchema
from datastem.zones import ZoneRules
from psoup.store.log.access_events import AccessEnded, AccessPut
from psoup.store.log.events import (
    Accept,
    ClockStatement,
    Composite,
    Confirm,
    Data,
    Denied,
    Entry,
    Expire,
    Interest,
    Jump,
    LegPredicate,
    PublishersForgotten,
    Register,
    RegisterMany,
    Release,
    Renew,
    Replace,
    RowsErased,
    StreamAltered,
    StreamCreated,
    StreamEnded,
    Tick,
    Trigger,
    Unregister,
    ViewCreated,
    ViewEnded,
    WriterStarted,
    ZoneDefined,
)
from psoup.store.log.position import START, Position
from psoup.store.state.access import (
    AccessState,
    AccessValue,
    FilledPolicy,
    Grant,
    Key,
    Policy,
    kind_of,
)
from psoup.store.state.columns import with_constants
from psoup.store.state.composites import Composites
from psoup.store.state.drafts import (
    AnyPredicates,
    AnyRegistrations,
    DraftPredicates,
    DraftRegistrations,
)
from psoup.store.state.erasures import NO_ERASURES, Erasure, StreamErasures, ids_from_text
from psoup.store.state.interest_requests import with_request
from psoup.store.state.jumps import Jumps
from psoup.store.state.leases import Leases
from psoup.store.state.legs import no_more_legs
from psoup.store.state.losses import NO_LOSS, Losses
from psoup.store.state.overlay import Overlay
from psoup.store.state.predicates import Predicate, Predicates
from psoup.store.state.quarantine import EMPTY_QUARANTINE, Quarantine
from psoup.store.state.registration import Registration
from psoup.store.state.registrations import Registrations
from psoup.store.state.streams import AcceptedBatch, PublisherKey, StreamState
from psoup.store.state.touched import Touched
from psoup.store.state.views import ViewState, ids_text
from psoup.store.state.writers import WriterMarks

# The kind under which publishers with a lease are counted, for the whole store.
_LEASED_PUBLISHERS = "leased_publishers"


def _has_lease(last: AcceptedBatch | None) -> bool:
    return last is not None and last.lease is not None


@dataclass(slots=True)
class State:
    """The state at `position`, whose stamp is `clock`. `owned` counts the objects of each (kind,
    tenant, owner), and with an empty owner those of the tenant; kinds are named as the limits of
    quotas are."""

    position: Position = START
    clock: int = 0
    next_predicate_id: int = 1
    streams: MutableMapping[int, StreamState] = field(default_factory=dict)
    stream_names: MutableMapping[tuple[str, str], int] = field(default_factory=dict)
    views: MutableMapping[int, ViewState] = field(default_factory=dict)
    view_names: MutableMapping[tuple[str, str], int] = field(default_factory=dict)
    registrations: AnyRegistrations = field(default_factory=Registrations)
    predicates: AnyPredicates = field(default_factory=Predicates)
    publishers: MutableMapping[PublisherKey, AcceptedBatch] = field(default_factory=dict)
    leases: Leases = field(default_factory=Leases)
    jumps: Jumps = field(default_factory=Jumps)
    losses: Losses = NO_LOSS
    quarantine: Quarantine = EMPTY_QUARANTINE
    composites: Composites = field(default_factory=Composites)
    access: AccessState = field(default_factory=AccessState)
    owned: MutableMapping[tuple[str, str, str], int] = field(default_factory=dict)
    writers: WriterMarks = field(default_factory=WriterMarks)
    erasures: MutableMapping[int, StreamErasures] = field(default_factory=dict)
    zones: MutableMapping[str, ZoneRules] = field(default_factory=dict)

    def draft(self) -> State:
        """Return an overlay over this state: its changes do not reach this state."""
        registrations, predicates = self.columns
        return State(
            self.position,
            self.clock,
            self.next_predicate_id,
            Overlay(self.streams),
            Overlay(self.stream_names),
            Overlay(self.views),
            Overlay(self.view_names),
            DraftRegistrations(registrations),
            DraftPredicates(predicates),
            Overlay(self.publishers),
            self.leases.draft(),
            self.jumps,
            self.losses,
            self.quarantine,
            self.composites.draft(),
            self.access.draft(),
            Overlay(self.owned),
            self.writers,
            Overlay(self.erasures),
            Overlay(self.zones),
        )

    @property
    def columns(self) -> tuple[Registrations, Predicates]:
        """The registrations and predicates of a state that is not a draft, with all their
        methods."""
        assert isinstance(self.registrations, Registrations), "this is a draft"
        assert isinstance(self.predicates, Predicates)
        return self.registrations, self.predicates

    def find_stream(self, tenant: str, name: str) -> StreamState | None:
        """Return the live stream with a name; None if there is no such stream."""
        stream_id = self.stream_names.get((tenant, name))
        return None if stream_id is None else self.streams[stream_id]

    def find_view(self, tenant: str, name: str) -> ViewState | None:
        """Return the live view or function with a name; None if there is none."""
        view_id = self.view_names.get((tenant, name))
        return None if view_id is None else self.views[view_id]

    def has_id(self, id_: int) -> bool:
        """Return True if a stream, view, composite or policy has this id, even a dropped one that
        is still stored."""
        numbered = self.streams, self.views, self.composites
        return any(id_ in objects for objects in numbered) or str(id_) in self.access.policies

    def owned_by(self, kind: str, tenant: str, owner: str = "") -> int:
        """Return the number of objects of a kind that an owner has, or without an owner the whole
        tenant."""
        return self.owned.get((kind, tenant, owner), 0)

    def count_owned(self, kind: str, tenant: str, owner: str, more: int) -> None:
        """Add `more`, which may be negative, to the number of an owner's objects of a kind."""
        # A set, so that an object without an owner counts once for the tenant.
        for key in {(kind, tenant, owner), (kind, tenant, "")}:
            self.owned[key] = self.owned.get(key, 0) + more
            if not self.owned[key]:
                del self.owned[key]

    def put_publisher(self, key: PublisherKey, last: AcceptedBatch) -> None:
        """Set the last batch of a publisher, which may be new."""
        previous = self.publishers.get(key)
        if previous is None:
            self.count_owned("publishers", *key[:2], 1)
        self._count_leased(last, previous)
        self.publishers[key] = last

    @property
    def has_leased_publishers(self) -> bool:
        """Whether a publisher has a lease."""
        return self.owned_by(_LEASED_PUBLISHERS, "") > 0

    def _count_leased(self, last: AcceptedBatch | None, previous: AcceptedBatch | None) -> None:
        change = _has_lease(last) - _has_lease(previous)
        if change:
            self.count_owned(_LEASED_PUBLISHERS, "", "", change)

    def put_access(self, value: AccessValue) -> None:
        """Add a key, grant, policy or quota, or replace the one of its id."""
        if self.access.get(kind_of(value), value.id) is None:
            self._count_access(value, 1)
        self.access.put(value)

    def _count_access(self, value: AccessValue, more: int) -> None:
        match value:
            case Key() | Policy():
                kind = "keys" if isinstance(value, Key) else "policies"
                self.count_owned(kind, value.tenant, value.owner, more)
            case Grant():
                # A grant counts for the tenant: it does not record its author.
                self.count_owned("grants", value.tenant, "", more)

    def apply(self, entry: Entry, touched: Touched | None = None) -> None:
        """Apply an entry, and record in `touched` what it changed. Entries must come in log order,
        each once."""
        # RegisterMany gets None if the caller passed none: it then need not list its rows.
        many, touched = touched, touched or Touched()
        self.leases.pass_time(self.clock, entry.stamp, isinstance(entry.event, Jump))
        match entry.event:
            case Data() as event:
                self._data(entry, event, touched)
            case Register() as event:
                self._register(entry, event, touched)
            case RegisterMany() as event:
                self._register_many(entry, event, many)
            case Replace() as event:
                self._replace(entry, event, touched)
            case Unregister(handle):
                self._unregister(handle, touched)
            case Renew(handle):
                self.registrations.renew(handle, entry.stamp)
                touched.leases.add(handle)
            case Expire(handle):
                tenant_and_owner = entry.tenant, self.registrations[handle].owner
                self._unregister(handle, touched)
                touched.leases.update(self.leases.expire(handle, tenant_and_owner, entry.stamp))
                touched.leases.add(handle)
            case Interest(stream_id, predicate_id, since):
                stream = self.streams[stream_id]
                requests = with_request(stream.interest_requests, predicate_id, since, entry.stamp)
                self.streams[stream_id] = replace(stream, interest_requests=requests)
                touched.streams.add(stream_id)
            case PublishersForgotten(owner, names, _):
                self._forget(entry.tenant, owner, names, touched)
            case RowsErased() as event:
                self._erase(entry, event, touched)
            case ZoneDefined(rules):
                self.zones[rules.name] = rules
                touched.zones.add(rules.name)
            case Accept(rows):
                self.losses = self.losses.accept(rows)
            case Release(names):
                self.quarantine = self.quarantine.release(names, entry.position.packed)
            case Tick() | ClockStatement() | Denied():
                pass
            case WriterStarted(mark):
                self.writers = self.writers.add(entry.position.version, mark)
                touched.writers.add(entry.position.version)
            case AccessPut() as event:
                self._put_access(entry, event, touched)
            case AccessEnded(ids):
                self._end_access(ids, touched)
            case Jump() as event:
                self.jumps = self.jumps.add(event)
            case Confirm(number):
                self.jumps = self.jumps.confirm(number)
            case StreamCreated(stream_id, schema):
                self._create(entry, stream_id, schema, touched)
            case StreamAltered(stream_id) as event:
                stream = self.streams[stream_id]
                self.streams[stream_id] = stream.altered(event, entry.position)
                touched.streams.add(stream_id)
                touched.altered.add(stream_id)
            case StreamEnded(stream_id):
                stream = self.streams[stream_id]
                self.streams[stream_id] = replace(stream, dropped=True)
                del self.stream_names[stream.tenant, stream.schema.name]
                self.count_owned("streams", stream.tenant, stream.owner, -1)
                touched.streams.add(stream_id)
                touched.composites.update(self.composites.end_with(stream_id))
                ended = [("policy", policy.id) for policy in self.access.policies_of(stream_id)]
                self._end_access(ended, touched)
            case ViewCreated() as event:
                self._create_view(entry, event)
                touched.views.add(event.view_id)
            case ViewEnded(view_id):
                view = self.views[view_id]
                self.views[view_id] = replace(view, dropped=True)
                del self.view_names[view.tenant, view.definition.name]
                self.count_owned("views", view.tenant, view.owner, -1)
                touched.views.add(view_id)
        if entry.position.version != self.position.version:
            self.jumps = self.jumps.hear(entry.stamp, entry.server, entry.clock)
        self.position = entry.position
        self.clock = entry.stamp

    @property
    def vouched(self) -> int:
        """The last stamp minus the unconfirmed jumps: the time that deletions may rely on."""
        return self.clock - self.jumps.unconfirmed

    def awake_since_publish(self, last: AcceptedBatch, now: int) -> int:
        """Return the part of its lease that a publisher has used up since its last batch."""
        return self.leases.awake(last.stamp, self.clock, now)

    def awake_since_contact(self, registration: Registration, now: int) -> int:
        """Return the part of its lease that a registration has used up, according to the log."""
        return self.leases.awake(registration.since, self.clock, now)

    def _create(self, entry: Entry, stream_id: int, schema: StreamSchema, touched: Touched) -> None:
        stream = StreamState(stream_id, entry.tenant, entry.owner, schema, entry.position)
        self.streams[stream_id] = stream
        self.stream_names[entry.tenant, schema.name] = stream_id
        self.count_owned("streams", entry.tenant, entry.owner, 1)
        touched.streams.add(stream_id)

    def _create_view(self, entry: Entry, event: ViewCreated) -> None:
        identity = event.view_id, entry.tenant, entry.owner
        view = ViewState(*identity, event.definition, event.over, entry.position)
        self.views[view.id] = view
        self.view_names[view.tenant, view.definition.name] = view.id
        self.count_owned("views", view.tenant, view.owner, 1)

    def _data(self, entry: Entry, event: Data, touched: Touched) -> None:
        stream = self.streams[event.stream_id]
        self.streams[stream.id] = stream.with_data(event, entry)
        if event.publisher:
            key = entry.tenant, entry.owner, event.publisher
            previous = self.publishers.get(key)
            earlier_rows = 0 if previous is None else previous.total_rows
            self.put_publisher(key, AcceptedBatch.of(event, entry, earlier_rows))
            touched.publishers.add(key)

    def _erase(self, entry: Entry, event: RowsErased, touched: Touched) -> None:
        ids, salt = ids_from_text(event.rows), bytes.fromhex(event.salt)
        stamp = event.stamp or entry.stamp
        erasure = Erasure(event.stream_id, entry.position, stamp, ids, event.digest)
        self.put_erasure(erasure, salt)
        touched.erasures.add((event.stream_id, entry.position))

    def put_erasure(self, erasure: Erasure, salt: bytes) -> None:
        """Add an erasure, which must come after those of its stream."""
        stream_id = erasure.stream_id
        self.erasures[stream_id] = self.erased(stream_id).add(erasure, salt)

    def erased(self, stream_id: int) -> StreamErasures:
        """Return the erasures of a stream."""
        return self.erasures.get(stream_id, NO_ERASURES)

    def _forget(self, tenant: str, owner: str, names: Iterable[str], touched: Touched) -> None:
        for name in names:
            key = tenant, owner, name
            self._count_leased(None, self.publishers[key])
            del self.publishers[key]
            self.count_owned("publishers", tenant, owner, -1)
            touched.publishers.add(key)

    def _register(self, entry: Entry, event: Register, touched: Touched) -> None:
        registration = Registration.of(entry, event)
        self.registrations[event.handle] = registration
        self.count_owned("registrations", entry.tenant, entry.owner, 1)
        for stream_id in registration.streams:
            self._count_registrations(stream_id, 1)
        self._share_all(entry, event, registration, touched)
        touched.registrations.add(event.handle)
        touched.predicates.update(registration.predicates)

    def _replace(self, entry: Entry, event: Replace, touched: Touched) -> None:
        """Give a registration another query. Predicates of both queries must not end in between: an
        ended predicate never returns."""
        before = self.registrations[event.handle]
        after = before.replaced(entry, event)
        self.registrations[event.handle] = after
        for stream_id in after.streams - before.streams:
            self._count_registrations(stream_id, 1)
        for stream_id in before.streams - after.streams:
            self._count_registrations(stream_id, -1)
        self._share_all(entry, event, after, touched)
        self._release_all(before, touched)
        touched.registrations.add(event.handle)
        if not event.same_text:
            touched.leases.add(event.handle)
        touched.predicates.update(before.predicates)
        touched.predicates.update(after.predicates)

    def _share_all(
        self, entry: Entry, event: Register | Replace, registration: Registration, touched: Touched
    ) -> None:
        """Count one more registration of the predicates and the composite of `registration`."""
        predicates: dict[int, LegPredicate | Trigger] = {
            leg.predicate_id: leg for leg in event.legs
        }
        for trigger in event.triggers:
            predicates.setdefault(trigger.predicate_id, trigger)
        for id_ in registration.predicates:
            if id_ in predicates:
                self._share(
                    Predicate(id_, entry.tenant, predicates[id_].stream_id, predicates[id_].key, 1)
                )
        if event.composite is not None:
            self._share_composite(entry, event.composite, touched)

    def _put_access(self, entry: Entry, event: AccessPut, touched: Touched) -> None:
        for value in event.values:
            if isinstance(value, FilledPolicy) and value.id not in self.access.filled:
                tenant, key = entry.tenant, value.key
                self._share(Predicate(value.predicate_id, tenant, value.stream_id, key, 1))
                touched.predicates.add(value.predicate_id)
            self.put_access(value)
            touched.access.add((kind_of(value), value.id))

    def _end_access(self, ids: Iterable[tuple[str, str]], touched: Touched) -> None:
        for kind, id_ in ids:
            value = self.access.get(kind, id_)
            if isinstance(value, FilledPolicy):
                self._release(self.predicates[value.predicate_id])
                touched.predicates.add(value.predicate_id)
            if value is not None:
                self._count_access(value, -1)
            self.access.end(kind, id_)
            touched.access.add((kind, id_))

    def _share_composite(self, entry: Entry, composite: Composite, touched: Touched) -> None:
        """Count one more registration of a composite and of its predicate, which may be new."""
        id_ = composite.composite_id
        if self.composites.share(composite, entry.tenant, entry.position):
            touched.composites.add(id_)
        self._share(Predicate(composite.predicate_id, entry.tenant, id_, composite.key, 1))

    def _share(self, predicate: Predicate) -> None:
        """Count one more registration of a predicate, which may be new."""
        if predicate.id in self.predicates:
            self.predicates.count_one(predicate.id, 1)
        else:
            self.predicates[predicate.id] = predicate
            self.next_predicate_id = max(self.next_predicate_id, predicate.id + 1)

    def _register_many(self, entry: Entry, event: RegisterMany, touched: Touched | None) -> None:
        """Register all rows at once, with the effect of registering them one by one."""
        rows, count = event.rows, event.rows.num_rows
        same: dict[str, str | int] = {
            "tenant": entry.tenant,
            "owner": entry.owner,
            "stream_id": event.stream_id,
            "trigger_stream_id": 0,
            "trigger_id": 0,
            "text": event.text,
            "query": event.query,
            "lease": event.lease,
            "stamp": entry.stamp,
            "position": entry.position.packed,
            "contact": 0,
            "composite_id": 0,
            "composite_predicate_id": 0,
            "views": ids_text(event.views),
        }
        for name in ("more_legs", "more_triggers"):
            rows = rows.append_column(name, no_more_legs(count))
        self.registrations.extend(with_constants(rows, same))
        self._count_registrations(event.stream_id, count)
        self.count_owned("registrations", entry.tenant, entry.owner, count)
        # The predicates, ascending; for each a row that has it, and the number of rows that share
        # it.
        ids, first, sharing = np.unique(
            rows.column("predicate_id").to_numpy(), return_index=True, return_counts=True
        )
        # Ids are assigned in ascending order, so those from the next one on are new. They begin
        # with 0 registrations, because `count` adds to new and known ones alike.
        new = ids >= self.next_predicate_id
        new_predicates = rows.select(["predicate_id", "key"]).take(pa.array(first[new]))
        same = {"tenant": entry.tenant, "stream_id": event.stream_id, "registrations": 0}
        self.predicates.extend(with_constants(new_predicates, same))
        self.predicates.count(ids, sharing)
        self.next_predicate_id = max(self.next_predicate_id, int(ids[-1]) + 1)
        if touched is not None:
            touched.registrations.update(rows.column("handle").to_pylist())
            touched.predicates.update(ids.tolist())

    def _count_registrations(self, stream_id: int, more: int) -> None:
        stream = self.streams[stream_id]
        self.streams[stream_id] = replace(stream, registrations=stream.registrations + more)

    def _unregister(self, handle: bytes, touched: Touched) -> None:
        registration = self.registrations.pop(handle)
        self.count_owned("registrations", registration.tenant, registration.owner, -1)
        # Only a lease that was renewed has a row in the table `leases`, which has to end.
        if registration.contact:
            touched.leases.add(handle)
        for stream_id in registration.streams:
            self._count_registrations(stream_id, -1)
        self._release_all(registration, touched)
        touched.registrations.add(handle)
        touched.predicates.update(registration.predicates)

    def _release_all(self, registration: Registration, touched: Touched) -> None:
        """Count one registration less of the predicates and the composite of `registration`."""
        for predicate_id in registration.predicates:
            self._release(self.predicates[predicate_id])
        composite = registration.composite
        if composite is not None and self.composites.release(composite.composite_id):
            touched.composites.add(composite.composite_id)

    def _release(self, predicate: Predicate) -> None:
        if predicate.registrations == 1:
            del self.predicates[predicate.id]
        else:
            self.predicates.count_one(predicate.id, -1)
