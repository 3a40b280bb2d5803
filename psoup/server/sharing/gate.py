"""The gate of a kind of calls: how many may be under way at once, and how many of one tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from psoup.errors import Overloaded


class Gate:
    """A count of the calls of one kind that are under way, up to `limit`. For the event loop only.

    A party is a tenant, and three quarters of the calls may be of any. The last quarter is shared
    by those that have few, so that a tenant always finds a place, whatever another does. A call
    without a party counts for none. With `limit_per_party` every party has that many places
    instead.
    """

    def __init__(
        self, limit: int, name: str, flag: str, retry_after: int, limit_per_party: int | None = None
    ) -> None:
        self._limit = limit
        self._name = name
        self._flag = flag
        self._retry_after = timedelta(seconds=retry_after)
        self._limit_per_party = limit_per_party
        self._under_way = 0
        self._of_parties: Counter[str] = Counter()

    @property
    def under_way(self) -> int:
        return self._under_way

    @contextmanager
    def entered(self, party: str) -> Iterator[None]:
        """Count a call while it is under way. Raise Overloaded if it finds no place."""
        if self._under_way >= self._limit or (party and not self._has_place(party)):
            raise self._refusal()
        self._under_way += 1
        self._of_parties[party] += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._of_parties[party] -= 1
            if not self._of_parties[party]:
                del self._of_parties[party]

    def _has_place(self, party: str) -> bool:
        if self._limit_per_party is not None:
            return self._of_parties[party] < self._limit_per_party
        reserved = self._limit // 4
        if self._under_way < self._limit - reserved:
            return True
        # The reserve is split between the parties present and this one, with a place at least for
        # each.
        other_parties = len(self._of_parties) - (party in self._of_parties)
        return self._of_parties[party] < max(1, reserved // (other_parties + 1))

    def _refusal(self) -> Overloaded:
        """Make the error. One that is raised again and again would keep every traceback."""
        limit, name = self._limit, self._name
        return Overloaded(
            f"this server has {limit:,} {name} under way, and takes no more"
            if self._under_way >= limit
            else f"this server has as many {name} of this caller under way as it takes",
            retry_after=self._retry_after,
            expected=f"at most {limit} {name} at once{self._flag and f' ({self._flag})'}",
            hint="try again after a while, or another server of the store",
        )
