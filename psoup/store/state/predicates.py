"""The predicates of a state, by id and by predicate key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s, Mask, UInt32s
from psoup.store.state.column_mapping import ColumnMapping
from psoup.store.state.columns import (
    InternedColumn,
    NumberColumn,
    TextColumn,
    same_texts,
    text_hashes,
)
from psoup.store.state.hash_index import HashIndex, hash_of

# Spreads consecutive ids over 32 bits (Knuth's multiplicative hash).
_HASH_MULTIPLIER = 2654435761
_CHUNK_ROWS = 1 << 16
# `latest` reads at most this many of the newest rows.
_NEWEST_SCAN_ROWS = 1 << 14
# If more ids than this are noted, `changed` reports that all may have changed.
_MAX_NOTED_IDS = 1 << 17


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate, matched once for all registrations that share it; it ends with the last."""

    id: int
    tenant: str
    stream_id: int
    key: str
    registrations: int


class Predicates(ColumnMapping[int, Predicate]):
    """The predicates of a state by id; no two of one stream have the same predicate key.

    It notes the predicates whose registrations changed, for one reader: `changed` returns each note
    once.
    """

    def __init__(self) -> None:
        self._changed: list[Int64s] = []
        self._changes = 0
        self._ids, self._streams, self._counts = NumberColumn(), NumberColumn(), NumberColumn()
        self._tenants, self._keys = InternedColumn(), TextColumn()
        super().__init__(
            {
                "predicate_id": self._ids,
                "tenant": self._tenants,
                "stream_id": self._streams,
                "key": self._keys,
                "registrations": self._counts,
            }
        )

    def find(self, stream_id: int, key: str) -> int | None:
        """Return the id of a stream's predicate with this predicate key; None if there is no such
        predicate."""
        for row in self._by_key.candidates(_key_hash(stream_id, key)):
            if self._streams[row] == stream_id and self._keys[row] == key:
                return self._ids[row]
        return None

    def find_all(self, stream_id: int, keys: pa.Array) -> Int64s:
        """Return the ids of a stream's predicates with these predicate keys, -1 for an unknown
        key."""
        if not len(self):
            return np.full(len(keys), -1, np.int64)
        same_key = same_texts(self._keys, keys)

        def same(places: Int64s, rows: Int64s) -> Mask:
            equal: Mask = same_key(places, rows) & (self._streams.values[rows] == stream_id)
            return equal

        hashes = text_hashes(keys) ^ np.uint32(_id_hash(stream_id))
        rows = self._by_key.find(hashes, same)
        # The row -1 reads the last id, which is not used.
        return np.where(rows < 0, -1, self._ids.values[rows])

    def rows_of(self, ids: Int64s) -> Int64s:
        """Return the rows of predicates by id, -1 for an unknown id."""
        return self._by_id.find(
            _id_hashes(ids), lambda places, rows: self._ids.values[rows] == ids[places]
        )

    def note(self, ids: Int64s) -> None:
        """Note that the registrations of these predicates have changed."""
        if self._changes <= _MAX_NOTED_IDS:
            self._changed.append(ids)
            self._changes += len(ids)

    def changed(self) -> Int64s | None:
        """Return the ids, ascending, noted since the last call; None if they were too many to
        note."""
        noted, many = self._changed, self._changes > _MAX_NOTED_IDS
        self._changed, self._changes = [], 0
        return None if many else np.unique(np.concatenate([np.empty(0, np.int64), *noted]))

    def having(self, ids: Int64s) -> pa.Table:
        """Return the predicates with these ids as a table; unknown ids are left out."""
        rows = self.rows_of(ids)
        return self.take(rows[rows >= 0])

    def last_within(self, ids: Int64s, most_bytes: int) -> Int64s:
        """Return as many of the last of these ids, which must be known, as have texts of at most
        so many bytes."""
        sizes = self._keys.sizes(self.rows_of(ids))[::-1].cumsum()
        return ids[len(ids) - int(np.searchsorted(sizes, most_bytes, side="right")) :]

    def count(self, ids: Int64s, more: Any) -> None:
        """Add `more` to the registrations of each of these predicates, which must be distinct and
        known."""
        self._counts.values[self.rows_of(ids)] += more
        self._cache.clear()
        self.note(ids)

    def count_one(self, id_: int, more: int) -> None:
        """Add `more` to the registrations of one predicate."""
        self._counts.room[self._row_of(id_)] += more
        self._cache.pop(id_, None)
        self.note(np.array([id_]))

    def __setitem__(self, key: int, value: Predicate) -> None:
        super().__setitem__(key, value)
        self.note(np.array([key]))

    def __delitem__(self, key: int) -> None:
        super().__delitem__(key)
        self.note(np.array([key]))

    def of_stream(self, stream_id: int) -> Int64s:
        """Return the ids of a stream's predicates, ascending."""
        of_stream = self._alive.values & (self._streams.values == stream_id)
        return np.sort(self._ids.values[of_stream])

    def containing(self, stream_id: int, text: str) -> Int64s:
        """Return the ids of a stream's predicates whose keys contain a text, ascending."""
        ids = self.of_stream(stream_id)
        table = self.having(ids)
        matches = pc.match_substring(table.column("key"), text).to_numpy()
        return np.sort(table.column("predicate_id").to_numpy()[matches])

    def naming(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the id and the key of each predicate whose key contains a text. It looks through
        all of them."""
        for lo in range(0, len(self._ids), _CHUNK_ROWS):
            keys = self._keys.slice(lo, min(lo + _CHUNK_ROWS, len(self._ids)))
            matches = pc.match_substring(keys, text).to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(matches & self._alive.values[lo : lo + len(keys)]).tolist():
                yield self._ids[lo + row], keys[row].as_py()

    def latest(self, stream_id: int, most: int) -> pa.Table:
        """Return at most `most` of a stream's newest predicates as a table, the newest first.

        It reads few rows, so it misses predicates that many newer ones of other streams follow.
        """
        begin = max(0, len(self._ids) - _NEWEST_SCAN_ROWS)
        of_stream = self._alive.values[begin:] & (self._streams.values[begin:] == stream_id)
        return self.take(np.flatnonzero(of_stream)[::-1][:most] + begin)

    def _row_of(self, key: int) -> int:
        rows = self._by_id.candidates(_id_hash(key))
        return next((row for row in rows if self._ids[row] == key), -1)

    def _key_at(self, row: int) -> int:
        return self._ids[row]

    def _value_at(self, row: int) -> Predicate:
        return Predicate(
            self._ids[row],
            self._tenants[row],
            self._streams[row],
            self._keys[row],
            self._counts[row],
        )

    def _parts(self, value: Predicate) -> tuple[Any, ...]:
        return value.id, value.tenant, value.stream_id, value.key, value.registrations

    def _index_all(self, begin: int, end: int) -> None:
        self._by_id.insert_all(_id_hashes(self._ids.values[begin:end]), np.arange(begin, end))
        for lo in range(begin, end, _CHUNK_ROWS):
            hi = min(lo + _CHUNK_ROWS, end)
            hashes = text_hashes(self._keys.slice(lo, hi))
            hashes ^= _id_hashes(self._streams.values[lo:hi])
            self._by_key.insert_all(hashes, np.arange(lo, hi))

    def _hashes_at(self, row: int) -> Iterator[tuple[HashIndex, int]]:
        yield self._by_id, _id_hash(self._ids[row])
        yield self._by_key, _key_hash(self._streams[row], self._keys[row])

    def _clear_indexes(self) -> list[HashIndex]:
        self._by_id, self._by_key = HashIndex(), HashIndex()
        return [self._by_id, self._by_key]


def _id_hash(id_: int) -> int:
    return id_ * _HASH_MULTIPLIER & 0xFFFFFFFF


def _id_hashes(ids: Int64s) -> UInt32s:
    return (ids.astype(np.uint64) * np.uint64(_HASH_MULTIPLIER)).astype(np.uint32)


def _key_hash(stream_id: int, key: str) -> int:
    return _id_hash(stream_id) ^ hash_of(key)
