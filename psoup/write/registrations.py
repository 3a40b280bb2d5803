"""Registrations as proposals: one text with the values of its parameters, once or many times."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s, Mask
from psoup.errors import BadRequest, KeyTaken
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
from psoup.store.state.registrations import KeyedRegistration
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft, Stale
from psoup.write.ids import PredicateIds
from psoup.write.quotas import check_objects
from querystem.composites import ComposedStream, Composition, compose
from querystem.pace import spending
from querystem.query import Leg, Query
from querystem.query_json import query_form
from querystem.refresh import RefreshOn


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
    """A registration to be, its query bound to streams. `parameters` is JSON.

    `composition` tells the composite that the engine is to find ahead of time; None where the query
    has none.
    """

    client_key: str
    parameters: str
    query: Query
    composition: Composition | None = None

    def composite(self, ids: PredicateIds) -> Composite | None:
        return None if self.composition is None else ids.composite(self.composition)


@dataclass(frozen=True, slots=True)
class Registered:
    """The handles in the order they were asked for; `created` counts the new ones among them,
    `replaced` those that were there with another query."""

    handles: list[bytes]
    created: int
    position: Position
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class RegisterAll:
    """Registrations of one text: all of them or none.

    `streams` has the ids of the streams that the text was bound to, by name, `views` those of the
    views it was bound through. With `replace` a client key that has another query is given this
    one; without, it is refused.
    """

    tenant: str
    owner: str
    streams: Mapping[str, int]
    text: str
    lease: int
    prepared: Sequence[Prepared]
    replace: bool = False
    views: tuple[int, ...] = ()
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        compositions = [one.composition for one in self.prepared if one.composition is not None]
        more = sum(len(one.key) for one in compositions)
        return len(self.prepared) * (HEADER_BYTES + 3 * len(self.text)) + more

    def propose(self, draft: CommitDraft) -> Registered:
        self._check(draft)
        self._check_quota(draft.state)
        handles, created, replaced, position = [], 0, 0, START
        for one in self.prepared:
            known = self._known(draft.state, one)
            if known is None:
                handle, position = self._append(draft, one)
                created += 1
            elif self._replaces(known, one):
                handle, position = known.handle, self._replace(draft, known.handle, one)
                replaced += 1
            else:
                handle, position = known.handle, max(position, known.position)
            handles.append(handle)
        return Registered(handles, created, position, replaced)

    def _check(self, draft: CommitDraft) -> None:
        if any(draft.state.streams[stream_id].dropped for stream_id in self.streams.values()):
            raise Stale
        check_views(draft.state, self.views)
        if len(self.prepared) > draft.room:
            raise BadRequest(f"{len(self.prepared)} registrations don't fit one commit")
        seen: dict[str, str] = {}
        for one in self.prepared:
            if not one.client_key:
                continue
            known = self._known(draft.state, one)
            other = known is not None and not self._is_same(known, one)
            first = seen.setdefault(one.client_key, one.parameters)
            if (other and not self.replace) or first != one.parameters:
                raise key_taken(one.client_key)

    def _check_quota(self, state: State) -> None:
        """Raises QuotaExceeded where the new ones among these are too many."""
        new = [one.client_key for one in self.prepared if self._known(state, one) is None]
        named = {key for key in new if key}
        check_objects(state, "registrations", self.tenant, self.owner, new.count("") + len(named))

    def _known(self, state: State, one: Prepared) -> Registration | None:
        key = self.tenant, self.owner, one.client_key
        handle = state.registrations.find(*key) if one.client_key else None
        return None if handle is None else state.registrations[handle]

    def _is_same(self, known: Registration, one: Prepared) -> bool:
        return (known.text, known.parameters) == (self.text, one.parameters)

    def _replaces(self, known: Registration, one: Prepared) -> bool:
        """Tells whether a registration gets the query: it has another text, or its text was bound
        to a stream that was made anew since."""
        streams = [self.streams[leg.stream] for leg in one.query.legs]
        bound = [leg.stream_id for leg in known.legs] == streams
        return self.replace and not (bound and self._is_same(known, one))

    def _append(self, draft: CommitDraft, one: Prepared) -> tuple[bytes, Position]:
        ids = PredicateIds(draft.state)
        event = Register(
            handle=os.urandom(HANDLE_BYTES),
            client_key=one.client_key,
            legs=self._legs(one.query, ids),
            text=self.text,
            parameters=one.parameters,
            query=query_form(one.query),
            lease=self.lease,
            triggers=self._triggers(one.query, ids),
            composite=one.composite(ids),
            views=self.views,
        )
        return event.handle, draft.append(self.tenant, self.owner, event)

    def _replace(self, draft: CommitDraft, handle: bytes, one: Prepared) -> Position:
        ids = PredicateIds(draft.state)
        event = Replace(
            handle=handle,
            legs=self._legs(one.query, ids),
            text=self.text,
            parameters=one.parameters,
            query=query_form(one.query),
            triggers=self._triggers(one.query, ids),
            composite=one.composite(ids),
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


@dataclass(frozen=True, slots=True)
class UnregisterOne:
    """Ends a registration. Refused where the tenant, or the one owner, has none of that handle."""

    tenant: str
    handle: bytes
    whose: str | None = None
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> Position:
        registration = find_registration(draft.state, self.tenant, self.handle, self.whose)
        return draft.append(self.tenant, registration.owner, Unregister(self.handle))


class ManyRows:
    """The rows of one RegisterMany, prepared in a thread so that nobody waits for it.

    The given columns are of equal length, at least one; a client key may be empty. Rows that
    repeat a client key are one registration: `first` has for each row the place of the first row
    with its key.
    """

    def __init__(
        self, client_keys: Sequence[str], parameters: Sequence[str], keys: Sequence[str]
    ) -> None:
        """Raises KeyTaken where rows with one client key differ."""
        self.client_keys, self.parameters = client_keys, parameters
        self.first = np.array(_first_of_key(client_keys, parameters), np.int64)
        self.handles = _new_handles(len(keys))
        self.keyed = [place for place, key in enumerate(client_keys) if key]
        self.wanted = pa.array([client_keys[place] for place in self.keyed], pa.string())
        columns = {
            "handle": pa.array(self.handles, pa.binary()),
            "client_key": pa.array(client_keys, pa.string()),
            "parameters": pa.array(parameters, pa.string()),
            "key": pa.array(keys, pa.string()),
        }
        self.table = pa.table(columns)
        self.encoded_keys = columns["key"].dictionary_encode()


@dataclass(frozen=True, slots=True)
class RegisterRows:
    """Registrations that share a text and, but for WHERE, its bound form: all of them or none.

    With `replace` a client key that has another query is given this one; without, it is refused.
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
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return int(self.rows.table.nbytes)

    def propose(self, draft: CommitDraft) -> Registered:
        if draft.state.streams[self.stream_id].dropped:
            raise Stale
        check_views(draft.state, self.views)
        known = self._known(draft.state)
        others = [place for place, old in known.items() if not self._has_query(old, place)]
        first = self.rows.first == np.arange(len(self.rows.first))
        others = [place for place in others if first[place]]
        if len(others) >= draft.room:
            raise BadRequest(f"{len(others)} registrations can't be replaced in one commit")
        packed = max((old.position for old in known.values()), default=START.packed)
        position = Position.unpack(packed)
        new = first.copy()
        new[list(known)] = False
        check_objects(draft.state, "registrations", self.tenant, self.owner, int(new.sum()))
        if new.any():
            position = max(position, self._append(draft, new))
        for place in others:
            position = self._replace(draft, known[place].handle, place)
        return Registered(self._handles(known, first), int(new.sum()), position, len(others))

    def _handles(self, known: Mapping[int, KeyedRegistration], first: Mask) -> list[bytes]:
        if not known and first.all():
            return self.rows.handles
        return [
            known[place].handle if place in known else self.rows.handles[place]
            for place in self.rows.first.tolist()
        ]

    def _known(self, state: State) -> dict[int, KeyedRegistration]:
        """The registrations that client keys have already, by the place of their row.

        Raises KeyTaken where one has another text or other parameters, and is not to be replaced.
        """
        rows = self.rows
        found = state.registrations.find_all(self.tenant, self.owner, rows.wanted)
        known = {}
        for number, old in found.items():
            place = rows.keyed[number]
            if not self.replace and (old.text, old.parameters) != (
                self.text,
                rows.parameters[place],
            ):
                raise key_taken(rows.client_keys[place])
            known[place] = old
        return known

    def _has_query(self, old: KeyedRegistration, place: int) -> bool:
        """Tells whether a registration need not be replaced by the row at a place."""
        said = old.text, old.parameters, old.stream_id
        return not self.replace or said == (self.text, self.rows.parameters[place], self.stream_id)

    def _replace(self, draft: CommitDraft, handle: bytes, place: int) -> Position:
        key = self.rows.table.column("key")[place].as_py()
        leg = LegPredicate(
            self.stream_id, PredicateIds(draft.state).id_of(self.stream_id, key), key
        )
        parameters = self.rows.parameters[place]
        event = Replace(handle, (leg,), self.text, parameters, self.form, views=self.views)
        return draft.append(self.tenant, self.owner, event)

    def _append(self, draft: CommitDraft, new: Mask) -> Position:
        table, keys = self.rows.table, self.rows.encoded_keys
        if not new.all():
            table = table.filter(pa.array(new))
            keys = table.column("key").combine_chunks().dictionary_encode()
        ids = self._predicates(draft.state, keys)
        rows = table.append_column("predicate_id", pa.array(ids)).select(MANY.names)
        event = RegisterMany(self.stream_id, self.text, self.form, self.lease, rows, self.views)
        return draft.append(self.tenant, self.owner, event)

    def _predicates(self, state: State, encoded: pa.DictionaryArray) -> Int64s:
        """The ids of the predicates with these keys; new ones get the next ids in that order."""
        ids = state.predicates.find_all(self.stream_id, encoded.dictionary)
        new = np.flatnonzero(ids < 0)
        ids[new] = np.arange(len(new)) + state.next_predicate_id
        found: Int64s = ids[encoded.indices.to_numpy()]
        return found


def check_views(state: State, views: Sequence[int]) -> None:
    """Raises Stale where one of the views has ended."""
    if any(state.views[view_id].dropped for view_id in views):
        raise Stale


def _first_of_key(client_keys: Sequence[str], parameters: Sequence[str]) -> list[int]:
    seen: dict[str, int] = {}
    first = []
    for place, key in enumerate(client_keys):
        one = seen.setdefault(key, place) if key else place
        if parameters[one] != parameters[place]:
            raise key_taken(key)
        first.append(one)
    return first


def _new_handles(count: int) -> list[bytes]:
    """Random handles that ascend, so that registrations of one call are listed in its order."""
    noise = os.urandom(count * HANDLE_BYTES)
    return sorted(noise[at : at + HANDLE_BYTES] for at in range(0, len(noise), HANDLE_BYTES))


def key_taken(client_key: str) -> KeyTaken:
    return KeyTaken(
        f"the client key {client_key!r} belongs to another query",
        field="client_key",
        got=client_key[:100],
        hint="replace that query (`replace`), or use another key",
    )
