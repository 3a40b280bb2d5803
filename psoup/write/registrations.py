"""Proposals that register one text, with one set of parameter values or with many, and that end a
registration."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from psoup.errors import BadRequest, ClientKeyTaken
from psoup.lookup import find_registration
from psoup.store import (
    START,
    Composite,
    LegPredicate,
    Position,
    Register,
    RegisterMany,
    Registration,
    Replace,
    State,
    Trigger,
    Unregister,
)
from psoup.store.log.events import MANY
from psoup.store.state.columns import HANDLE_BYTES
from psoup.store.state.registration import KeyedRegistration
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft, Stale, check_bound
from psoup.write.ids import PredicateIds
from psoup.write.quotas import check_objects
from querystem.composites import ComposedStream, Composition, compose
from querystem.legs import Leg
from querystem.pace import spending
from querystem.query import Query
from querystem.query_json import query_form
from querystem.refresh import RefreshOn
from querystem.zones import is_outdated


def composition_of(query: Query, streams: Sequence[ComposedStream]) -> Composition | None:
    """Return the composite of a query whose legs read these streams, its texts written already.

    Return None if it has none.
    """
    if len(streams) < 2:
        return None
    composition = compose(query, streams)
    if not isinstance(composition, Composition):
        return None
    spending()(len(composition.key) + len(composition.shape.factors_key))
    return composition


@dataclass(frozen=True, slots=True)
class Prepared:
    """A registration to make, its query bound to streams. `parameters` is JSON.

    `composition` is the composite that the engine joins ahead of time; None if the query has none.
    """

    client_key: str
    parameters: str
    query: Query
    composition: Composition | None = None

    def composite(self, ids: PredicateIds) -> Composite | None:
        return None if self.composition is None else ids.composite(self.composition)


@dataclass(frozen=True, slots=True)
class Registered:
    """The handles, in the order of the request. `created` counts the new registrations among them,
    `replaced` the existing ones that got another query."""

    handles: list[bytes]
    created: int
    position: Position
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class RegisterAll:
    """Proposal of registrations of one text: all of them or none.

    `streams` has the ids of the streams that the text was bound to, by name, with the columns of
    the packed position `altered_at`. `views` has the ids of the views it was bound through. If a
    client key has another query, that query is replaced with `replace`, and the proposal is refused
    without.
    """

    tenant: str
    owner: str
    streams: Mapping[str, int]
    text: str
    lease: int
    prepared: Sequence[Prepared]
    replace: bool = False
    views: tuple[int, ...] = ()
    altered_at: int = 0
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        compositions = [prepared.composition for prepared in self.prepared]
        more = sum(len(composition.key) for composition in compositions if composition)
        return len(self.prepared) * (HEADER_BYTES + 3 * len(self.text)) + more

    def propose(self, draft: CommitDraft) -> Registered:
        # All checks come before the first event, since a refused proposal must leave none.
        self._check(draft)
        self._check_quota(draft.state)
        handles, created, replaced, position = [], 0, 0, START
        for prepared in self.prepared:
            existing = self._find(draft.state, prepared)
            if existing is None:
                handle, position = self._append(draft, prepared)
                created += 1
            elif self._replaces(draft.state, existing, prepared):
                handle, position = existing.handle, self._replace(draft, existing.handle, prepared)
                replaced += 1
            else:
                handle, position = existing.handle, max(position, existing.position)
            handles.append(handle)
        return Registered(handles, created, position, replaced)

    def _check(self, draft: CommitDraft) -> None:
        check_bound(draft.state, self.streams.values(), self.altered_at)
        check_views(draft.state, self.views)
        for prepared in self.prepared:
            _check_rules(draft.state, prepared.query.predicate_keys)
        if len(self.prepared) > draft.room:
            raise BadRequest(f"{len(self.prepared)} registrations don't fit one commit")
        parameters_by_key: dict[str, str] = {}
        for prepared in self.prepared:
            if not prepared.client_key:
                continue
            existing = self._find(draft.state, prepared)
            differs = existing is not None and not self._has_same_text(existing, prepared)
            # A client key may occur twice in a call, but only with equal parameters.
            first = parameters_by_key.setdefault(prepared.client_key, prepared.parameters)
            if (differs and not self.replace) or first != prepared.parameters:
                raise key_taken(prepared.client_key)

    def _check_quota(self, state: State) -> None:
        """Raise QuotaExceeded if the new registrations are too many."""
        new = [
            prepared.client_key for prepared in self.prepared if self._find(state, prepared) is None
        ]
        # Rows that repeat a client key are one registration. Those without one are separate.
        named = {key for key in new if key}
        check_objects(state, "registrations", self.tenant, self.owner, new.count("") + len(named))

    def _find(self, state: State, prepared: Prepared) -> Registration | None:
        key = self.tenant, self.owner, prepared.client_key
        handle = state.registrations.find(*key) if prepared.client_key else None
        return None if handle is None else state.registrations[handle]

    def _has_same_text(self, existing: Registration, prepared: Prepared) -> bool:
        return (existing.text, existing.parameters) == (self.text, prepared.parameters)

    def _replaces(self, state: State, existing: Registration, prepared: Prepared) -> bool:
        """Return True if a registration gets the query: it has another text, or its text was bound
        to a stream that was dropped and created again since, or means something else since a
        stream was altered."""
        if not self.replace:
            return False
        streams = [self.streams[leg.stream] for leg in prepared.query.legs]
        has_same_streams = [leg.stream_id for leg in existing.legs] == streams
        if not has_same_streams or not self._has_same_text(existing, prepared):
            return True
        altered = _has_altered(state, streams, existing.position.packed)
        return altered and existing.query != query_form(prepared.query)

    def _append(self, draft: CommitDraft, prepared: Prepared) -> tuple[bytes, Position]:
        ids = PredicateIds(draft.state)
        event = Register(
            handle=os.urandom(HANDLE_BYTES),
            client_key=prepared.client_key,
            legs=self._legs(prepared.query, ids),
            text=self.text,
            parameters=prepared.parameters,
            query=query_form(prepared.query),
            lease=self.lease,
            triggers=self._triggers(prepared.query, ids),
            composite=prepared.composite(ids),
            views=self.views,
        )
        return event.handle, draft.append(self.tenant, self.owner, event)

    def _replace(self, draft: CommitDraft, handle: bytes, prepared: Prepared) -> Position:
        ids = PredicateIds(draft.state)
        event = Replace(
            handle=handle,
            legs=self._legs(prepared.query, ids),
            text=self.text,
            parameters=prepared.parameters,
            query=query_form(prepared.query),
            triggers=self._triggers(prepared.query, ids),
            composite=prepared.composite(ids),
            views=self.views,
        )
        return draft.append(self.tenant, self.owner, event)

    def _legs(self, query: Query, ids: PredicateIds) -> tuple[LegPredicate, ...]:
        return tuple(self._leg(leg, ids) for leg in query.legs)

    def _leg(self, leg: Leg, ids: PredicateIds) -> LegPredicate:
        stream_id, key = self.streams[leg.stream], leg.predicate_key
        return LegPredicate(stream_id, ids.id_of(stream_id, key), key)

    def _triggers(self, query: Query, ids: PredicateIds) -> tuple[Trigger, ...]:
        return tuple(self._trigger(refresh, ids) for refresh in query.triggers)

    def _trigger(self, refresh: RefreshOn, ids: PredicateIds) -> Trigger:
        stream_id, key = self.streams[refresh.stream], refresh.predicate_key
        return Trigger(stream_id, ids.id_of(stream_id, key), key)


def _has_altered(state: State, streams: Iterable[int], position: int) -> bool:
    """Return True if one of the streams got other columns after a packed position."""
    return any(state.streams[id_].schema.altered_at > position for id_ in streams)


@dataclass(frozen=True, slots=True)
class UnregisterOne:
    """Proposal to end a registration. Refused if the tenant has none of that handle, or if `owner`
    is given and it is another owner's."""

    tenant: str
    handle: bytes
    owner: str | None = None
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> Position:
        registration = find_registration(draft.state, self.tenant, self.handle, self.owner)
        return draft.append(self.tenant, registration.owner, Unregister(self.handle))


class ManyRows:
    """The rows of one RegisterMany, prepared in a thread so that the event loop goes on.

    The columns must have equal lengths, at least one; a client key may be empty. Rows that repeat a
    client key are one registration: `first` has for each row the place of the first row with its
    client key. `keyed` has the places of the rows with a client key, `lookup_keys` those client
    keys.
    """

    def __init__(
        self, client_keys: Sequence[str], parameters: Sequence[str], keys: Sequence[str]
    ) -> None:
        """Raise ClientKeyTaken if rows with one client key differ."""
        self.client_keys, self.parameters, self.keys = client_keys, parameters, keys
        self.first = np.array(_first_of_key(client_keys, parameters), np.int64)
        self.handles = _new_handles(len(keys))
        self.keyed = [place for place, key in enumerate(client_keys) if key]
        self.lookup_keys = pa.array([client_keys[place] for place in self.keyed], pa.string())
        columns = {
            "handle": pa.array(self.handles, pa.binary()),
            "client_key": pa.array(client_keys, pa.string()),
            "parameters": pa.array(parameters, pa.string()),
            "key": pa.array(keys, pa.string()),
        }
        self.table = pa.table(columns)
        # Equal predicate keys share an entry of the dictionary, and so one predicate id.
        self.encoded_keys = columns["key"].dictionary_encode()


@dataclass(frozen=True, slots=True)
class RegisterRows:
    """Proposal of registrations that share a text and, except for WHERE, its bound form: all of
    them or none. The text was bound with the columns of the packed position `altered_at`.

    If a client key has another query, that query is replaced with `replace`, and the proposal is
    refused without.
    """

    tenant: str
    owner: str
    stream_id: int
    text: str
    lease: int
    form: str
    rows: ManyRows
    replace: bool = False
    views: tuple[int, ...] = ()
    altered_at: int = 0
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return int(self.rows.table.nbytes)

    def propose(self, draft: CommitDraft) -> Registered:
        check_bound(draft.state, [self.stream_id], self.altered_at)
        check_views(draft.state, self.views)
        _check_rules(draft.state, self.rows.keys[:1])
        existing = self._existing(draft.state)
        # True for the first row of each client key, and for rows without one.
        first = self.rows.first == np.arange(len(self.rows.first))
        replaced = [
            place
            for place, old in existing.items()
            if first[place] and not self._has_query(draft.state, old, place)
        ]
        # One event for each replaced registration, and one for all new ones.
        if len(replaced) >= draft.room:
            raise BadRequest(f"{len(replaced)} registrations can't be replaced in one commit")
        # The answer's position is after all registrations that it names, also existing ones.
        packed = max((old.position for old in existing.values()), default=START.packed)
        position = Position.unpack(packed)
        new = first.copy()
        new[list(existing)] = False
        check_objects(draft.state, "registrations", self.tenant, self.owner, int(new.sum()))
        if new.any():
            position = max(position, self._append(draft, new))
        for place in replaced:
            position = self._replace(draft, existing[place].handle, place)
        return Registered(self._handles(existing, first), int(new.sum()), position, len(replaced))

    def _handles(self, existing: Mapping[int, KeyedRegistration], first: Mask) -> list[bytes]:
        # The usual case: all rows are new, and no client key repeats.
        if not existing and first.all():
            return self.rows.handles
        return [
            existing[place].handle if place in existing else self.rows.handles[place]
            for place in self.rows.first.tolist()
        ]

    def _existing(self, state: State) -> dict[int, KeyedRegistration]:
        """Return the registrations that client keys already have, by the place of their row.

        Raise ClientKeyTaken if one has another text or other parameters, and is not to be replaced.
        """
        rows = self.rows
        matches = state.registrations.find_all(self.tenant, self.owner, rows.lookup_keys)
        existing = {}
        for number, old in matches.items():
            place = rows.keyed[number]
            if not self.replace and (old.text, old.parameters) != (
                self.text,
                rows.parameters[place],
            ):
                raise key_taken(rows.client_keys[place])
            existing[place] = old
        return existing

    def _has_query(self, state: State, old: KeyedRegistration, place: int) -> bool:
        """Return True if a registration need not be replaced by the row at a place."""
        if not self.replace:
            return True
        query = old.text, old.parameters, old.stream_id
        if query != (self.text, self.rows.parameters[place], self.stream_id):
            return False
        altered = _has_altered(state, [self.stream_id], old.position)
        return not altered or state.registrations[old.handle].query == self.form

    def _replace(self, draft: CommitDraft, handle: bytes, place: int) -> Position:
        key = self.rows.table.column("key")[place].as_py()
        leg = LegPredicate(
            self.stream_id, PredicateIds(draft.state).id_of(self.stream_id, key), key
        )
        parameters = self.rows.parameters[place]
        event = Replace(handle, (leg,), self.text, parameters, self.form, views=self.views)
        return draft.append(self.tenant, self.owner, event)

    def _append(self, draft: CommitDraft, new: Mask) -> Position:
        # Usually all rows are new, and their predicate keys were encoded in the thread.
        table, keys = self.rows.table, self.rows.encoded_keys
        if not new.all():
            table = table.filter(pa.array(new))
            keys = table.column("key").combine_chunks().dictionary_encode()
        ids = self._predicates(draft.state, keys)
        rows = table.append_column("predicate_id", pa.array(ids)).select(MANY.names)
        event = RegisterMany(self.stream_id, self.text, self.form, self.lease, rows, self.views)
        return draft.append(self.tenant, self.owner, event)

    def _predicates(self, state: State, encoded: pa.DictionaryArray) -> Int64s:
        """Return the ids of the predicates with these keys, one per row; new predicates get the
        next ids, in the order of the dictionary."""
        # One id per distinct predicate key, -1 for a new one.
        ids = state.predicates.find_all(self.stream_id, encoded.dictionary)
        new = np.flatnonzero(ids < 0)
        ids[new] = np.arange(len(new)) + state.next_predicate_id
        row_ids: Int64s = ids[encoded.indices.to_numpy()]
        return row_ids


def _check_rules(state: State, keys: Iterable[str]) -> None:
    """Raise Stale if predicates are by other rules of time zones than those of the store."""
    if any(is_outdated(key, state.zones) for key in keys):
        raise Stale


def check_views(state: State, views: Sequence[int]) -> None:
    """Raise Stale if one of the views has ended."""
    if any(state.views[view_id].dropped for view_id in views):
        raise Stale


def _first_of_key(client_keys: Sequence[str], parameters: Sequence[str]) -> list[int]:
    """Return for each row the place of the first row with its client key. Raise ClientKeyTaken if
    the parameters of the two differ."""
    first_by_key: dict[str, int] = {}
    first = []
    for place, key in enumerate(client_keys):
        first_place = first_by_key.setdefault(key, place) if key else place
        if parameters[first_place] != parameters[place]:
            raise key_taken(key)
        first.append(first_place)
    return first


def _new_handles(count: int) -> list[bytes]:
    """Return random handles in ascending order, so that a call's registrations list in its
    order."""
    noise = os.urandom(count * HANDLE_BYTES)
    return sorted(noise[at : at + HANDLE_BYTES] for at in range(0, len(noise), HANDLE_BYTES))


def key_taken(client_key: str) -> ClientKeyTaken:
    """Return the error for a client key that has another query."""
    return ClientKeyTaken(
        f"the client key {client_key!r} belongs to another query",
        field="client_key",
        got=client_key[:100],
        hint="replace that query (`replace`), or use another client key",
    )
