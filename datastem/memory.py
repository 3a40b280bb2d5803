"""A budget of bytes that several owners share for what they can read again.

The least recently used holding is evicted first. Pinned holdings count but are never evicted.
Thread-safe; an owner's `evict` is called without the lock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol


class Owner(Hashable, Protocol):
    """A holder of numbered things that it can read again."""

    def evict(self, number: int) -> None:
        """Forget holding `number`. It may have been forgotten already."""


Holding = tuple[Owner, int]


@dataclass(slots=True)
class _Size:
    nbytes: int
    pinned: bool


class Memory:
    """A budget of `limit` bytes for holdings, whose sizes their owners report."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._sizes: OrderedDict[Holding, _Size] = OrderedDict()
        self._used = 0

    @property
    def used(self) -> int:
        return self._used

    def hold(self, key: Holding, nbytes: int, pinned: bool = False) -> None:
        """Count a holding, or replace its size; nothing is evicted before the next `shrink`."""
        with self._lock:
            self._forget(key)
            self._sizes[key] = _Size(nbytes, pinned)
            self._used += nbytes

    def touch(self, key: Holding) -> None:
        with self._lock:
            if key in self._sizes:
                self._sizes.move_to_end(key)

    def unpin(self, key: Holding) -> None:
        with self._lock:
            if key in self._sizes:
                self._sizes[key].pinned = False

    def drop(self, key: Holding) -> None:
        with self._lock:
            self._forget(key)

    def shrink(self) -> None:
        """Evict until the budget is kept or only pinned holdings remain.

        The newest holding stays, so that a block larger than the budget can be read at all.
        """
        # Owners call `hold` under their own lock, so calling them under this one could deadlock.
        for owner, number in self._leaving():
            owner.evict(number)

    def _leaving(self) -> list[Holding]:
        with self._lock:
            excess, leaving = self._used - self.limit, []
            if excess > 0:
                newest = next(reversed(self._sizes), None)
                for key, holding in self._sizes.items():
                    if excess <= 0 or key == newest:
                        break
                    if not holding.pinned:
                        excess -= holding.nbytes
                        leaving.append(key)
            for key in leaving:
                self._forget(key)
        return leaving

    def _forget(self, key: Holding) -> None:
        holding = self._sizes.pop(key, None)
        if holding is not None:
            self._used -= holding.nbytes
