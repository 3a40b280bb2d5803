"""What quotas count: levels of buckets, and things that are open.

`LocalCounts` are those of a server by itself. `GroupCounts` are in a file that all servers of a
group map, so that a quota holds for all of them together. Each change happens under the lock of the
file: a member that is killed releases it, and leaves at most one number half changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol, TypeAlias

import numpy as np

# What is counted, and of whom.
Key: TypeAlias = tuple[str, ...]
Clock: TypeAlias = Callable[[], float]


class QuotaCounts(Protocol):
    """Levels and numbers by key. Any thread may call.

    A bucket fills with `rate` a second, and holds as much as one second brings. A negative level is
    a debt.
    """

    def level(self, key: Key, rate: float) -> float:
        """Return what may be taken from a bucket."""

    def take(self, key: Key, rate: float, units: float) -> None:
        """Take from a bucket, whatever is in it."""

    def number(self, key: Key) -> int:
        """Return how many are open."""

    def add(self, key: Key, change: int) -> int:
        """Change how many this server has open; return how many all have."""

    def units_of_others(self, tenant: str, units: int) -> int:
        """Note work that was done for a tenant; return what other servers of the group have done
        for it since the last call."""


@dataclass(slots=True)
class _Bucket:
    level: float
    filled_at: float


def _filled(level: float, rate: float, seconds: float) -> float:
    # The cap is one second's worth, so idle time is not saved up for a burst.
    return min(rate, level + rate * max(0.0, seconds))


class LocalCounts:
    """The counts of a server that is in no group."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: dict[Key, _Bucket] = {}
        self._numbers: Counter[Key] = Counter()

    def level(self, key: Key, rate: float) -> float:
        with self._lock:
            return self._bucket(key, rate).level

    def take(self, key: Key, rate: float, units: float) -> None:
        # Threads charge work while the event loop checks, and both read and write the level.
        with self._lock:
            self._bucket(key, rate).level -= units

    def _bucket(self, key: Key, rate: float) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.setdefault(key, _Bucket(rate, now))
        bucket.level = _filled(bucket.level, rate, now - bucket.filled_at)
        bucket.filled_at = now
        return bucket

    def number(self, key: Key) -> int:
        return self._numbers[key]

    def add(self, key: Key, change: int) -> int:
        with self._lock:
            self._numbers[key] += change
            number = self._numbers[key]
            if not number:
                del self._numbers[key]
            return number

    def units_of_others(self, tenant: str, units: int) -> int:
        return 0


# ---- of a group

# The file is a table of sets; a key may stand anywhere in the set that its hash chooses. Sets have
# four times as many entries as keys are expected, so none overflows.
_SET_ENTRIES = 64
_EXPECTED_SET_KEYS = 16
_SALT_BYTES = 16
_HEADER_BYTES = 64
# An entry that nothing is open in may be used for another key after this time.
_STALE_SECONDS = 60.0
_MAX_TENANTS_SEEN = 4096


def _entry_type(members: int) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("key", "<u8"),
            ("rate", "<f8"),
            ("level", "<f8"),
            ("changed_at", "<f8"),
            ("open", "<i4", (members,)),
        ]
    )


def make_table(descriptor: int, members: int, keys: int) -> None:
    """Make an empty table for about `keys` keys in an empty file, before the members open it."""
    sets = max(64, keys // _EXPECTED_SET_KEYS)
    entry_bytes = _entry_type(members).itemsize
    os.ftruncate(descriptor, _HEADER_BYTES + sets * _SET_ENTRIES * entry_bytes)
    # Without the salt a caller could choose a name whose hash is that of another.
    os.pwrite(descriptor, os.urandom(_SALT_BYTES), 0)


class GroupCounts:
    """The counts of one member of a group, in the table of an open file. The clock must be the same
    in all members, as that of a machine is."""

    def __init__(
        self, descriptor: int, member: int, members: int, clock: Clock = time.monotonic
    ) -> None:
        """`member` counts from 0."""
        self._descriptor = descriptor
        self._member = member
        self._clock = clock
        self._lock = threading.Lock()
        self._map = mmap.mmap(descriptor, 0)
        self._salt = bytes(self._map[:_SALT_BYTES])
        entries = np.frombuffer(self._map, _entry_type(members), offset=_HEADER_BYTES)
        self._entries = entries.reshape(-1, _SET_ENTRIES)
        self._units_seen: dict[str, float] = {}

    def level(self, key: Key, rate: float) -> float:
        with self._locked():
            return float(self._filled_entry(key, rate)["level"])

    def take(self, key: Key, rate: float, units: float) -> None:
        with self._locked():
            self._filled_entry(key, rate)["level"] -= units

    def number(self, key: Key) -> int:
        with self._locked():
            return int(self._entry(key)["open"].sum())

    def add(self, key: Key, change: int) -> int:
        with self._locked():
            entry = self._entry(key)
            entry["open"][self._member] += change
            entry["changed_at"] = self._clock()
            return int(entry["open"].sum())

    def units_of_others(self, tenant: str, units: int) -> int:
        with self._locked():
            entry = self._entry(("turns", tenant))
            total = float(entry["level"])
            # A total below the last one is that of an entry that was used for another key.
            missed = max(0.0, total - self._units_seen.get(tenant, total))
            entry["level"], entry["changed_at"] = total + units, self._clock()
            if len(self._units_seen) >= _MAX_TENANTS_SEEN:
                self._units_seen.clear()
            self._units_seen[tenant] = total + units
            return int(missed)

    def forget(self, member: int) -> None:
        """Forget what a member that has ended had open."""
        with self._locked():
            self._entries["open"][:, :, member] = 0

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # The lock of a file is the process's, so threads need one of their own.
        with self._lock:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def _filled_entry(self, key: Key, rate: float) -> np.void:
        now, entry = self._clock(), self._entry(key)
        if not entry["changed_at"]:
            entry["level"] = rate
        else:
            seconds = now - float(entry["changed_at"])
            entry["level"] = _filled(float(entry["level"]), rate, seconds)
        entry["rate"], entry["changed_at"] = rate, now
        return entry

    def _entry(self, key: Key) -> np.void:
        """Return the entry of a key; a new one is empty."""
        # repr quotes, so no two keys have the same text.
        digest = blake2b(repr(key).encode(), digest_size=8, key=self._salt).digest()
        number = int.from_bytes(digest, "little") or 1
        entries = self._entries[number % len(self._entries)]
        (places,) = np.nonzero(entries["key"] == number)
        if len(places):
            return entries[places[0]]  # type: ignore[no-any-return]
        entry: np.void = entries[self._free_place(entries)]
        entry["key"], entry["rate"], entry["level"], entry["changed_at"] = number, 0.0, 0.0, 0.0
        entry["open"][:] = 0
        return entry

    def _free_place(self, entries: np.ndarray[tuple[int], np.dtype[np.void]]) -> int:
        """Return the place of an entry of a set that a new key may take: one that has no key, or
        that would be the same if it began again, or the oldest that has nothing open."""
        idle_seconds = self._clock() - entries["changed_at"]
        is_closed = ~entries["open"].any(axis=1)
        rates = entries["rate"]
        is_full = (rates > 0) & (entries["level"] + rates * idle_seconds >= rates)
        is_stale = (rates == 0) & (idle_seconds > _STALE_SECONDS)
        for candidates in (entries["key"] == 0, is_closed & (is_full | is_stale), is_closed):
            if candidates.any():
                return int(np.argmax(np.where(candidates, idle_seconds, -1.0)))
        # A set full of keys with something open loses the oldest, and so the count of that key.
        return int(np.argmax(idle_seconds))
