"""Row numbers by the hash of their key, eight bytes a slot: a dictionary without objects.

A slot holds the hash in its upper 32 bits and the row number plus one in the lower ones, so 0 is
empty. Probing is linear. Different keys may have equal hashes: the caller compares the candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import numpy as np

from datastem.arrays import Int64s, Mask, UInt32s

_MIN_SLOTS = 16
_LOW = (1 << 32) - 1
# The slot of a removed entry. As an entry it would be row 2^32 - 2, which no table has.
_REMOVED = (1 << 64) - 1


def hash_of(key: Hashable) -> int:
    """Return a hash of 32 bits, equal for equal keys within this process only."""
    return hash(key) & _LOW


def hashes_of(keys: Iterable[Hashable]) -> UInt32s:
    return (np.fromiter(map(hash, keys), np.int64) & _LOW).astype(np.uint32)


class HashIndex:
    """A hash table from 32-bit hashes to row numbers."""

    def __init__(self) -> None:
        self._slots = np.zeros(_MIN_SLOTS, np.uint64)
        self._filled = 0
        self._removed = 0

    def __len__(self) -> int:
        return self._filled - self._removed

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes

    def candidates(self, hash_: int) -> Iterator[int]:
        """Yield the rows under a hash."""
        slots, mask = self._slots, len(self._slots) - 1
        at = hash_ & mask
        while slot := int(slots[at]):
            if slot >> 32 == hash_ and slot != _REMOVED:
                yield (slot & _LOW) - 1
            at = (at + 1) & mask

    def find(self, hashes: UInt32s, same: Callable[[Int64s, Int64s], Mask]) -> Int64s:
        """Return the row of each key, -1 for an unknown key.

        `same(places, rows)` returns a mask: true where row n has the key at place n.
        """
        # Each round compares every undecided key with one slot. `places` are these keys, `at` their
        # slots. An empty slot ends a search, a removed entry does not.
        key_rows = np.full(len(hashes), -1, np.int64)
        mask = len(self._slots) - 1
        places = np.arange(len(hashes))
        at = hashes.astype(np.int64) & mask
        while len(places):
            slots = self._slots[at]
            hits = np.flatnonzero(
                (slots >> 32 == hashes[places]) & (slots != _REMOVED) & (slots != 0)
            )
            if len(hits):
                rows = (slots[hits] & _LOW).astype(np.int64) - 1
                matches = same(places[hits], rows)
                key_rows[places[hits[matches]]] = rows[matches]
            unresolved = (slots != 0) & (key_rows[places] < 0)
            places, at = places[unresolved], (at[unresolved] + 1) & mask
        return key_rows

    def insert(self, hash_: int, row: int) -> None:
        self._reserve(1)
        slots, mask = self._slots, len(self._slots) - 1
        at = hash_ & mask
        while slots[at]:
            at = (at + 1) & mask
        slots[at] = hash_ << 32 | (row + 1)
        self._filled += 1

    def insert_all(self, hashes: UInt32s, rows: Int64s) -> None:
        """Add rows, which must be distinct and new."""
        self._reserve(len(rows))
        self._place(hashes.astype(np.uint64) << 32 | (rows + 1).astype(np.uint64))

    def remove(self, hash_: int, row: int) -> None:
        """Remove a row, which must be there under that hash."""
        slots, mask = self._slots, len(self._slots) - 1
        entry = hash_ << 32 | (row + 1)
        at = hash_ & mask
        while int(slots[at]) != entry:
            at = (at + 1) & mask
        # Not emptied: searches for entries further on must not end here.
        slots[at] = _REMOVED
        self._removed += 1

    def _reserve(self, more: int) -> None:
        """Keep a third of the slots empty, so that a search ends soon."""
        if 3 * (self._filled + more) <= 2 * len(self._slots):
            return
        # Removed entries are dropped here, so the new table may even be smaller.
        entries = self._slots[(self._slots != 0) & (self._slots != _REMOVED)]
        size = _MIN_SLOTS
        while 3 * (len(entries) + more) > 2 * size:
            size *= 2
        self._slots = np.zeros(size, np.uint64)
        self._filled = self._removed = 0
        self._place(entries)

    def _place(self, entries: Any) -> None:
        """Put entries into free slots, in rounds: all try their next slot at once, and one of those
        that share a slot gets it."""
        slots, mask = self._slots, len(self._slots) - 1
        self._filled += len(entries)
        at = (entries >> 32).astype(np.int64) & mask
        while len(entries):
            # Of several entries that write to one free slot the last stays; the others see that and
            # go on.
            free = slots[at] == 0
            slots[at[free]] = entries[free]
            waiting = slots[at] != entries
            entries, at = entries[waiting], (at[waiting] + 1) & mask

    def _check(self) -> None:
        """Assert that every entry can be reached from the slot of its hash."""
        assert len(self._slots) & (len(self._slots) - 1) == 0
        assert self._filled == np.count_nonzero(self._slots)
        assert self._removed == np.count_nonzero(self._slots == _REMOVED)
        assert 3 * self._filled <= 2 * len(self._slots)
        for slot in self._slots[(self._slots != 0) & (self._slots != _REMOVED)].tolist():
            assert (slot & _LOW) - 1 in list(self.candidates(slot >> 32))
