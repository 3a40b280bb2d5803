"""The work of a server for each registration in the last minute.

It is kept in slices of some seconds, and each slice knows a bounded number of registrations: those
with little work are forgotten when it is full. So the figures of the heaviest are nearly exact, and
the memory does not grow with the registrations.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter

from psoup.store import Registration

_SLICES, _SLICE_SECONDS = 6, 10.0
# The registrations of a slice. When there are more, half of them are forgotten.
_MAX_ENTRIES = 1000


@dataclass(slots=True)
class WorkEntry:
    """The units of work (`querystem.pace`) for a registration, and the pieces it was done in."""

    handle: bytes
    tenant: str
    owner: str
    client_key: str
    units: int = 0
    pieces: int = 0


class RecentWork:
    """What was done for registrations in the last minute. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # By the number of the slice, which counts from the clock's zero.
        self._slices: dict[int, dict[bytes, WorkEntry]] = {}

    def add(self, registration: Registration, units: int) -> None:
        """Count units of work for a registration."""
        with self._lock:
            entries = self._slice()
            entry = entries.get(registration.handle)
            if entry is None:
                if len(entries) >= _MAX_ENTRIES:
                    self._forget_half(entries)
                entry = entries[registration.handle] = WorkEntry(
                    registration.handle,
                    registration.tenant,
                    registration.owner,
                    registration.client_key,
                )
            entry.units += units
            entry.pieces += 1

    def top(
        self, count: int, tenant: str | None = None, owner: str | None = None
    ) -> list[WorkEntry]:
        """Return the registrations with the most work, at most `count`, the most first; None stands
        for all tenants, or all owners of a tenant."""
        totals: dict[bytes, WorkEntry] = {}
        with self._lock:
            self._slice()
            for entries in self._slices.values():
                for entry in entries.values():
                    if tenant not in (None, entry.tenant) or owner not in (None, entry.owner):
                        continue
                    total = totals.get(entry.handle)
                    if total is None:
                        totals[entry.handle] = replace(entry)
                    else:
                        total.units += entry.units
                        total.pieces += entry.pieces
        return heapq.nlargest(count, totals.values(), key=attrgetter("units"))

    def _slice(self) -> dict[bytes, WorkEntry]:
        """Return the slice of now, and forget those of more than a minute ago."""
        number = int(self._clock() // _SLICE_SECONDS)
        if number not in self._slices:
            for old in [old for old in self._slices if old <= number - _SLICES]:
                del self._slices[old]
            self._slices[number] = {}
        return self._slices[number]

    @staticmethod
    def _forget_half(entries: dict[bytes, WorkEntry]) -> None:
        lightest = heapq.nsmallest(len(entries) // 2, entries.values(), key=attrgetter("units"))
        for entry in lightest:
            del entries[entry.handle]
