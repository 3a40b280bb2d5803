"""The registrations of a state, by handle and by client key, in the order they got their texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s, Mask, UInt32s
from psoup.store.log.position import Position
from psoup.store.state.column_mapping import ColumnMapping
from psoup.store.state.columns import (
    HANDLE_BYTES,
    HandleColumn,
    InternedColumn,
    NumberColumn,
    TextColumn,
    handle_halves,
    same_texts,
    text_hashes,
)
from psoup.store.state.hash_index import HashIndex, hash_of, hashes_of
from psoup.store.state.legs import LegsColumn, RegisteredComposite, RegisteredLeg
from psoup.store.state.registration import KeyedRegistration, Registration
from psoup.store.state.sparse import SparseColumn
from psoup.store.state.views import ViewIdsColumn

_CHUNK_ROWS = 1 << 16
# The rows of one page whose texts are searched at most.
_MAX_SEARCHED_ROWS = 1 << 16
_NO_TRIGGER = RegisteredLeg(0, 0)
# Legs of registrations with a composite: its id, the predicate over it, and the stream and the
# predicate of each leg.
ComposedLegs: TypeAlias = tuple[Int64s, Int64s, Int64s, Int64s]


class Registrations(ColumnMapping[bytes, Registration]):
    """The registrations of a state by handle, in the order of (position, handle), which `page`
    needs.

    Texts, owners and query forms that repeat are stored once.
    """

    def __init__(self) -> None:
        self._handles, self._client_keys = HandleColumn(), TextColumn()
        self._tenants, self._owners = InternedColumn(), InternedColumn()
        self._positions, self._contacts = NumberColumn(), NumberColumn()
        self._stamps, self._leases = NumberColumn(), NumberColumn()
        self._streams, self._more_legs = NumberColumn(), LegsColumn()
        self._predicates, self._more_triggers = NumberColumn(), LegsColumn()
        self._triggers, self._trigger_streams = NumberColumn(), NumberColumn()
        self._views = ViewIdsColumn()
        self._texts, self._parameters = InternedColumn(), TextColumn()
        self._forms = InternedColumn()
        self._composites, self._composite_predicates = SparseColumn(), SparseColumn()
        self._composed_legs: ComposedLegs | None = None
        super().__init__(
            {
                "handle": self._handles,
                "tenant": self._tenants,
                "owner": self._owners,
                "client_key": self._client_keys,
                "stream_id": self._streams,
                "predicate_id": self._predicates,
                "trigger_stream_id": self._trigger_streams,
                "trigger_id": self._triggers,
                "text": self._texts,
                "parameters": self._parameters,
                "query": self._forms,
                "lease": self._leases,
                "stamp": self._stamps,
                "position": self._positions,
                "contact": self._contacts,
                "more_legs": self._more_legs,
                "composite_id": self._composites,
                "composite_predicate_id": self._composite_predicates,
                "views": self._views,
                "more_triggers": self._more_triggers,
            }
        )

    def __setitem__(self, key: bytes, value: Registration) -> None:
        super().__setitem__(key, value)
        if value.composite is not None:
            self._composed_legs = None

    def extend(self, table: pa.Table) -> None:
        super().extend(table)
        self._composed_legs = None

    def _remove(self, row: int) -> None:
        if self._composites[row]:
            self._composed_legs = None
        super()._remove(row)

    def find(self, tenant: str, owner: str, client_key: str) -> bytes | None:
        """Return the handle of the owner's registration with a client key; None if the key is
        unknown."""
        for row in self._by_key.candidates(_key_hash(tenant, owner, client_key)):
            if self._key_parts(row) == (tenant, owner, client_key):
                return self._handles[row]
        return None

    def find_all(
        self, tenant: str, owner: str, client_keys: pa.Array
    ) -> dict[int, KeyedRegistration]:
        """Return the registrations with these client keys, by the place of the client key."""
        if not len(self._by_key):
            return {}
        # An unknown tenant or owner has the code -1, which no row has.
        codes = self._tenants.code_of(tenant), self._owners.code_of(owner)
        same_key = same_texts(self._client_keys, client_keys)

        def same(places: Int64s, rows: Int64s) -> Mask:
            same_owner = (self._tenants.codes[rows] == codes[0]) & (
                self._owners.codes[rows] == codes[1]
            )
            equal: Mask = same_owner & same_key(places, rows)
            return equal

        hashes = text_hashes(client_keys) ^ np.uint32(hash_of((tenant, owner)))
        rows = self._by_key.find(hashes, same)
        places = np.flatnonzero(rows >= 0)
        return dict(zip(places.tolist(), self._keyed(rows[places]), strict=True))

    def _keyed(self, rows: Int64s) -> Iterator[KeyedRegistration]:
        texts = self._texts.take(rows)
        distinct = texts.dictionary.to_pylist()
        return map(
            KeyedRegistration,
            self._handles.take(rows).to_pylist(),
            self._streams.values[rows].tolist(),
            map(distinct.__getitem__, texts.indices.to_pylist()),
            self._parameters.take(rows).to_pylist(),
            self._positions.values[rows].tolist(),
        )

    def rows_of(self, handles: pa.Array) -> Int64s:
        """Return the rows of registrations by handle, -1 for an unknown handle."""
        halves = handle_halves(handles)

        def same(places: Int64s, rows: Int64s) -> Mask:
            high, low = self._handles.high.values[rows], self._handles.low.values[rows]
            equal: Mask = (high == halves[places, 0]) & (low == halves[places, 1])
            return equal

        return self._by_handle.find(_handle_hashes(halves[:, 0], halves[:, 1]), same)

    def renew(self, handle: bytes, stamp: int) -> None:
        self._contacts.values[self._row_of(handle)] = stamp
        self._cache.pop(handle, None)

    def renew_all(self, handles: pa.Array, stamps: Int64s) -> None:
        """Renew the leases of registrations; unknown handles are skipped."""
        rows = self.rows_of(handles)
        self._contacts.values[rows[rows >= 0]] = stamps[rows >= 0]
        self._cache.clear()

    def leases(self) -> tuple[pa.Array, Int64s, Int64s]:
        """Return three arrays over all registrations: the handles, when each lease began, and its
        length."""
        rows = self.rows()
        since = np.maximum(self._contacts.values[rows], self._stamps.values[rows])
        return self._handles.take(rows), since, self._leases.values[rows]

    def by_stream(self) -> dict[int, int]:
        """Return the number of registrations per stream; one that reads a stream in several legs
        counts once."""
        alive, first = self._alive.values, self._streams.values
        # Later legs count only if their stream is not that of the first leg, and once for each pair
        # of row and stream.
        rows, streams = self._more_legs.streams
        more = alive[rows] & (first[rows] != streams)
        once = np.unique(np.stack([rows[more], streams[more]]), axis=1)[1]
        ids, counts = np.unique(np.concatenate([first[alive], once]), return_counts=True)
        return dict(zip(ids.tolist(), counts.tolist(), strict=True))

    def by_owner(self) -> dict[tuple[str, str], int]:
        """Return the number of registrations per (tenant, owner)."""
        rows = self.rows()
        if not len(rows):
            return {}
        codes = np.stack([self._tenants.codes[rows], self._owners.codes[rows]])
        # Columns of `codes` are pairs of codes; `first` has a row of each different pair.
        pairs, first, counts = np.unique(codes, axis=1, return_index=True, return_counts=True)
        names = [(self._tenants[row], self._owners[row]) for row in rows[first].tolist()]
        return dict(zip(names, counts.tolist(), strict=True))

    def _over(self, ids: Collection[int]) -> Mask:
        """Return a mask of the rows that read or are refreshed by these streams, or go through
        these views."""
        object_ids = np.array(list(ids), np.int64)
        mask: Mask = np.isin(self._streams.values, object_ids)
        mask |= np.isin(self._trigger_streams.values, object_ids) | self._views.naming(ids)
        for rows, streams in (self._more_legs.streams, self._more_triggers.streams):
            mask[rows[np.isin(streams, object_ids)]] = True
        return mask

    def over(
        self, ids: Collection[int], tenant: str, owner: str | None, limit: int
    ) -> tuple[int, list[Registration]]:
        """Return the number of registrations that read or are refreshed by these streams, or go
        through these views, and the first `limit` of them.

        Only those of the tenant count, and of the owner unless it is None. It scans all
        registrations.
        """
        mask = self._over(ids)
        mask &= self._alive.values & (self._tenants.codes == self._tenants.code_of(tenant))
        if owner is not None:
            mask &= self._owners.codes == self._owners.code_of(owner)
        matches = np.flatnonzero(mask)
        return len(matches), [self._value_at(row) for row in matches[:limit].tolist()]

    def by_form(self, stream_id: int) -> dict[str, list[bytes]]:
        """Return the handles of the registrations that read or are refreshed by a stream, by their
        query forms, of which few are different. It scans all registrations."""
        rows = np.flatnonzero(self._over([stream_id]) & self._alive.values)
        # Rows of one form are next to each other, and in their order.
        rows = rows[np.argsort(self._forms.codes[rows], kind="stable")]
        edges = np.flatnonzero(np.diff(self._forms.codes[rows])) + 1
        return {
            self._forms[int(members[0])]: [self._handles[row] for row in members.tolist()]
            for members in np.split(rows, edges)
            if len(members)
        }

    def using(
        self, stream_id: int, uses: Callable[[str], bool], predicate_ids: Int64s
    ) -> list[bytes]:
        """Return the handles of the registrations over a stream whose query forms satisfy `uses`,
        or that have one of these predicates. It scans all registrations."""
        over = self._over([stream_id]) & self._alive.values
        codes, first = np.unique(self._forms.codes[over], return_index=True)
        rows = np.flatnonzero(over)[first].tolist()
        using = [code for code, row in zip(codes, rows, strict=True) if uses(self._forms[row])]
        mask = np.isin(self._forms.codes, using)
        mask[self.with_predicates(predicate_ids)] = True
        return [self._handles[row] for row in np.flatnonzero(mask & over).tolist()]

    def having(self, predicate_ids: Int64s) -> list[bytes]:
        """Return the handles of the registrations that have one of these predicates."""
        return [self._handles[row] for row in self.with_predicates(predicate_ids).tolist()]

    @property
    def composed_legs(self) -> ComposedLegs:
        """The legs of all registrations that have a composite; the same object until they
        change."""
        if self._composed_legs is None:
            self._composed_legs = self._collect_composed_legs()
        return self._composed_legs

    def _collect_composed_legs(self) -> ComposedLegs:
        rows, composites = self._composites.nonzero
        # Both columns have a value for the same rows.
        _, predicates = self._composite_predicates.nonzero
        alive = self._alive.values[rows]
        rows, composites, predicates = rows[alive], composites[alive], predicates[alive]
        more = self._more_legs.take(rows)
        # `counts` has the number of later legs of each row, which `legs` lists row by row. The
        # result has all first legs, then all later ones.
        counts = more.value_lengths().fill_null(0).to_numpy()
        legs = more.flatten()
        firsts = self._predicates.values[rows]
        return (
            np.concatenate([composites, np.repeat(composites, counts)]),
            np.concatenate([predicates, np.repeat(predicates, counts)]),
            np.concatenate([self._streams.values[rows], legs.field("stream_id").to_numpy()]),
            np.concatenate([firsts, legs.field("predicate_id").to_numpy()]),
        )

    def with_predicates(self, ids: Int64s) -> Int64s:
        """Return the rows of registrations that have one of these predicates, in a leg, as a
        trigger or over a composite; ascending."""
        predicate_ids = pa.array(ids)

        def having(values: Int64s) -> Mask:
            mask: Mask = pc.is_in(pa.array(values), value_set=predicate_ids).to_numpy(
                zero_copy_only=False
            )
            return mask

        first = having(self._predicates.values) | having(self._triggers.values)
        rows = [np.flatnonzero(first)]
        for sparse_rows, predicates in (
            self._more_legs.predicates,
            self._more_triggers.predicates,
            self._composite_predicates.nonzero,
        ):
            rows.append(sparse_rows[having(predicates)])
        matches: Int64s = np.unique(np.concatenate(rows))
        alive: Mask = self._alive.values[matches]
        return matches[alive]

    def by_composite(self) -> dict[int, int]:
        """Return the number of registrations per composite."""
        rows, composites = self._composites.nonzero
        ids, counts = np.unique(composites[self._alive.values[rows]], return_counts=True)
        return dict(zip(ids.tolist(), counts.tolist(), strict=True))

    def page(
        self,
        tenant: str,
        owner: str,
        after: tuple[int, bytes],
        limit: int,
        over: Collection[int] | None = None,
        contains: str = "",
    ) -> tuple[list[Registration], tuple[int, bytes] | None]:
        """Return the next registrations after (packed position, handle), at most `limit`, and the
        place after which the next page begins; None after the last one.

        An empty owner means all owners. With `over` only those over one of these streams or views,
        with `contains` only those with this in their text or client key, in any case. The cost
        grows with the rows scanned: the page, and other registrations in between. Texts are
        searched in a bounded number of rows, so that a page may be short and yet not be the last.
        """
        codes = self._tenants.code_of(tenant), self._owners.code_of(owner) if owner else None
        chosen = None if over is None else self._over(over)
        matches: list[int] = []
        begin = first = self._first_after(*after)
        # One more than the page: it shows that there is a next one.
        while begin < len(self._positions) and len(matches) <= limit:
            if contains and begin - first >= _MAX_SEARCHED_ROWS:
                break
            # Rows are scanned chunk by chunk, so that a page does not cost as much as the whole
            # table.
            end = min(len(self._positions), begin + max(limit + 1, _CHUNK_ROWS // 16))
            mask = self._alive.values[begin:end] & (self._tenants.codes[begin:end] == codes[0])
            if codes[1] is not None:
                mask &= self._owners.codes[begin:end] == codes[1]
            if chosen is not None:
                mask &= chosen[begin:end]
            rows = np.flatnonzero(mask) + begin
            matches += (self._containing(rows, contains) if contains else rows).tolist()
            begin = end
        last = matches[limit - 1] if len(matches) > limit else begin - 1
        is_last = len(matches) <= limit and begin >= len(self._positions)
        place = None if is_last else (self._positions[last], self._handles[last])
        return [self._value_at(row) for row in matches[:limit]], place

    def _containing(self, rows: Int64s, part: str) -> Int64s:
        """Return those of some rows that have a part in their text or client key."""
        texts = self._texts.take(rows)
        # Each different text is searched once.
        has_part = pc.match_substring(texts.dictionary, part, ignore_case=True)
        keys = pc.match_substring(self._client_keys.take(rows), part, ignore_case=True)
        mask = pc.or_(has_part.take(texts.indices), keys).to_numpy(zero_copy_only=False)
        containing: Int64s = rows[mask]
        return containing

    def has_predicate(self, tenant: str, owner: str, predicate_id: int) -> bool:
        """Return True if a registration of an owner has this predicate in its first leg. It scans
        all registrations."""
        column = self._columns["predicate_id"]
        assert isinstance(column, NumberColumn)
        rows = np.flatnonzero(self._alive.values & (column.values == predicate_id))
        codes = self._tenants.code_of(tenant), self._owners.code_of(owner)
        same_owner = (self._tenants.codes[rows] == codes[0]) & (
            self._owners.codes[rows] == codes[1]
        )
        return bool(same_owner.any())

    def _first_after(self, position: int, handle: bytes) -> int:
        # Rows ascend by (position, handle). A RegisterMany gives many rows one position. Among
        # those the upper half of the handle is searched, and the loop passes equal halves.
        begin, end = np.searchsorted(self._positions.values, [position, position + 1])
        high = np.uint64(int.from_bytes(handle[:8]))
        row = begin + int(np.searchsorted(self._handles.high.values[begin:end], high))
        while row < end and self._handles[row] <= handle:
            row += 1
        return int(row)

    def _key_parts(self, row: int) -> tuple[str, str, str]:
        return self._tenants[row], self._owners[row], self._client_keys[row]

    def _row_of(self, key: bytes) -> int:
        if not isinstance(key, bytes) or len(key) != HANDLE_BYTES:
            return -1
        rows = self._by_handle.candidates(_handle_hash(key))
        return next((row for row in rows if self._handles[row] == key), -1)

    def _key_at(self, row: int) -> bytes:
        return self._handles[row]

    def _value_at(self, row: int) -> Registration:
        parts = {name: column[row] for name, column in self._columns.items()}
        parts["position"] = Position.unpack(parts["position"])
        first = RegisteredLeg(parts.pop("stream_id"), parts.pop("predicate_id"))
        trigger = RegisteredLeg(parts.pop("trigger_stream_id"), parts.pop("trigger_id"))
        legs, triggers = (first, *parts.pop("more_legs")), (trigger, *parts.pop("more_triggers"))
        composite = RegisteredComposite(
            parts.pop("composite_id"), parts.pop("composite_predicate_id")
        )
        return Registration(
            legs=legs,
            triggers=() if trigger == _NO_TRIGGER else triggers,
            composite=composite if composite.composite_id else None,
            **parts,
        )

    def _parts(self, value: Registration) -> tuple[Any, ...]:
        trigger = value.triggers[0] if value.triggers else _NO_TRIGGER
        return (
            value.handle,
            value.tenant,
            value.owner,
            value.client_key,
            value.stream_id,
            value.predicate_id,
            trigger.stream_id,
            trigger.predicate_id,
            value.text,
            value.parameters,
            value.query,
            value.lease,
            value.stamp,
            value.position.packed,
            value.contact,
            value.legs[1:],
            value.composite.composite_id if value.composite else 0,
            value.composite.predicate_id if value.composite else 0,
            value.views,
            value.triggers[1:],
        )

    def _index_all(self, begin: int, end: int) -> None:
        halves = self._handles.high.values[begin:end], self._handles.low.values[begin:end]
        self._by_handle.insert_all(_handle_hashes(*halves), np.arange(begin, end))
        for lo in range(begin, end, _CHUNK_ROWS):
            self._index_keys(lo, min(lo + _CHUNK_ROWS, end))

    def _index_keys(self, begin: int, end: int) -> None:
        lengths = pc.binary_length(self._client_keys.slice(begin, end)).to_numpy()
        # An empty client key names nothing, and is not indexed.
        keyed = np.flatnonzero(lengths) + begin
        if len(keyed):
            hashes = text_hashes(self._client_keys.take(keyed)) ^ self._owner_hashes(keyed)
            self._by_key.insert_all(hashes, keyed)

    def _owner_hashes(self, rows: Int64s) -> UInt32s:
        """Return the hashes of the tenants and owners of rows, each pair hashed once."""
        codes = self._tenants.codes[rows].astype(np.int64) << 32 | self._owners.codes[rows]
        _, first, places = np.unique(codes, return_index=True, return_inverse=True)
        pairs = [(self._tenants[row], self._owners[row]) for row in rows[first].tolist()]
        hashes: UInt32s = hashes_of(pairs)[places]
        return hashes

    def _hashes_at(self, row: int) -> Iterator[tuple[HashIndex, int]]:
        yield self._by_handle, _handle_hash(self._handles[row])
        if self._client_keys[row]:
            yield self._by_key, _key_hash(*self._key_parts(row))

    def _clear_indexes(self) -> list[HashIndex]:
        self._by_handle, self._by_key = HashIndex(), HashIndex()
        return [self._by_handle, self._by_key]

    def _check(self) -> None:
        super()._check()
        composed = self._collect_composed_legs()
        assert all(map(np.array_equal, self.composed_legs, composed))
        handles = [self._handles[row] for row in range(len(self._positions))]
        order = list(zip(self._positions.values.tolist(), handles, strict=True))
        assert order == sorted(order)


def _key_hash(tenant: str, owner: str, client_key: str) -> int:
    return hash_of((tenant, owner)) ^ hash_of(client_key)


def _handle_hash(handle: bytes) -> int:
    """Return the hash of a handle. Handles are random, so that combining their halves suffices."""
    return (int.from_bytes(handle[:8]) ^ int.from_bytes(handle[8:])) & 0xFFFFFFFF


def _handle_hashes(high: Any, low: Any) -> UInt32s:
    hashes: UInt32s = (high ^ low).astype(np.uint32)
    return hashes
