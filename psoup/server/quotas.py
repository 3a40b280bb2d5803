"""Quotas of what tenants and owners do per second on this server.

Each rate has a bucket that fills with the limit per second, and holds as much as one second brings.
A call that finds it filled may go on, whatever that takes. A batch larger than the bucket leaves a
debt, and until that is paid back everything else is refused with the time it takes. So the rate
holds over time, and no batch is too large for it. Work is charged when it is done, in the units of
`querystem.pace`; a call that was admitted is not cut for it. Each server counts for itself, or the
servers of a group together (`group.counts`): work as well as rows and watches.

For one event loop, but for `charge_work`, which any thread may call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeAlias

from psoup.errors import QuotaExceeded
from psoup.server.follower import Follower
from psoup.server.group.counts import Key, LocalCounts, QuotaCounts
from psoup.store import State
from psoup.store.state.access import Quota
from psoup.write.quotas import OBJECTS, limits_on, quota_of

EVENTS, ROWS, WORK = "events_per_second", "rows_per_second", "work_per_second"
WATCHES, BYTES = "watches", "bytes"
_DONE = {
    EVENTS: ("written", "events"),
    ROWS: ("published", "rows"),
    WORK: ("computed", "units of work"),
}
_WATCH_RETRY = timedelta(seconds=10)
_BYTES_RETRY = timedelta(seconds=60)
_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.01, 3600.0
# How long a watch waits before it looks again: the quota may have changed.
_MAX_WAIT_SECONDS = 5.0

# A tenant, and an owner of it, or an empty text for the tenant itself.
Party: TypeAlias = tuple[str, str]


class Quotas:
    """The buckets and the open watches of a server, or of its group."""

    def __init__(self, follower: Follower, counts: QuotaCounts | None = None) -> None:
        self._follower = follower
        self._counts: QuotaCounts = counts or LocalCounts()

    # ---- rates

    def take_event(self, tenant: str, owner: str) -> None:
        """Count a call, or a batch of one, that is to write an event of the log. Raise
        QuotaExceeded if those before were too many."""
        state = self._follower.state
        if state.access.quotas:
            self._check(state, EVENTS, tenant, owner)
            self._charge(EVENTS, tenant, owner, 1)

    def charge_events(self, tenant: str, owner: str, events: int) -> None:
        """Count events that a call wrote beside the one that was taken for it."""
        self._charge(EVENTS, tenant, owner, events)

    def check_rows(self, tenant: str, owner: str) -> None:
        """Raise QuotaExceeded if the previous rows were too many, or the tenant stores as much as
        it may."""
        state = self._follower.state
        if state.access.quotas:
            self._check_bytes(state, tenant)
            self._check(state, ROWS, tenant, owner)

    def charge_rows(self, tenant: str, owner: str, rows: int) -> None:
        """Count the rows of a batch; one without rows, such as a heartbeat, counts as one."""
        self._charge(ROWS, tenant, owner, max(1, rows))

    def check_work(self, tenant: str, owner: str) -> None:
        """Raise QuotaExceeded if the previous calls took more than they may."""
        state = self._follower.state
        if state.access.quotas:
            self._check(state, WORK, tenant, owner)

    async def wait_for_work(self, tenant: str, owner: str) -> None:
        """Return when the previous calls are paid for: a watch waits if other calls are refused."""
        while True:
            try:
                return self.check_work(tenant, owner)
            except QuotaExceeded as full:
                wait: timedelta = full.detail["retry_after"]
            await asyncio.sleep(min(_MAX_WAIT_SECONDS, wait.total_seconds()))

    def charge_work(self, tenant: str, owner: str, units: int) -> None:
        """Count units of work that were done."""
        self._charge(WORK, tenant, owner, units)

    def _check(self, state: State, name: str, tenant: str, owner: str) -> None:
        for party, limit in limits_on(state, name, tenant, owner):
            level = self._counts.level((name, tenant, party), limit)
            # A bucket with anything in it admits a call of any size; the rest becomes a debt.
            if level > 0:
                continue
            seconds = -level / limit if limit else _MAX_RETRY_SECONDS
            done, units = _DONE[name]
            raise QuotaExceeded(
                f"{_called(party)} has {done} more than {limit:,} {units} a second",
                field=name,
                expected=f"at most {limit} {units} a second",
                retry_after=timedelta(
                    seconds=min(_MAX_RETRY_SECONDS, max(_MIN_RETRY_SECONDS, seconds))
                ),
                hint="wait as long as retry_after says, or ask for a larger quota",
            )

    def _charge(self, name: str, tenant: str, owner: str, units: int) -> None:
        for party, limit in limits_on(self._follower.state, name, tenant, owner):
            self._counts.take((name, tenant, party), limit, units)

    # ---- what there is

    def _check_bytes(self, state: State, tenant: str) -> None:
        limit = quota_of(state, tenant).get(BYTES)
        stored = 0 if limit is None else self.stored(state, tenant)
        if limit is not None and stored >= limit:
            raise QuotaExceeded(
                f"the tenant stores {stored:,} bytes, and may store {limit:,}",
                field=BYTES,
                expected=f"less than {limit} bytes",
                got=f"{stored} bytes",
                retry_after=_BYTES_RETRY,
                hint="drop a stream, wait until RETAIN lets rows go, or ask for a larger quota",
            )

    def stored(self, state: State, tenant: str) -> int:
        """Return the bytes of the log, the stems and the matches of a tenant's streams, as far as
        this server knows."""
        return sum(
            self._follower.stored_bytes(id_)
            for (stream_tenant, _), id_ in state.stream_names.items()
            if stream_tenant == tenant
        )

    @contextmanager
    def watching(self, tenant: str, owner: str) -> Iterator[None]:
        """Count an open watch. Raise QuotaExceeded if the quota is used up."""
        # Watches are counted also without a quota: one that is set later holds for those that are
        # open. They are counted first: of two servers of a group that look at once, none must take
        # the other's for free.
        keys: set[Key] = {(WATCHES, tenant, ""), (WATCHES, tenant, owner)}
        numbers = {key: self._counts.add(key, 1) for key in keys}
        try:
            for party, limit in limits_on(self._follower.state, WATCHES, tenant, owner):
                if numbers[WATCHES, tenant, party] > limit:
                    raise QuotaExceeded(
                        f"{_called(party)} has {limit:,} watches open, and may have no more",
                        field=WATCHES,
                        expected=f"at most {limit} watches on this server",
                        retry_after=_WATCH_RETRY,
                        hint="end one, or ask for a larger quota",
                    )
            yield
        finally:
            for key in keys:
                self._counts.add(key, -1)

    def used(self, state: State, quota: Quota) -> dict[str, int]:
        """Return what a tenant or owner has and does at present, for each limit of a quota."""
        party = quota.tenant, quota.owner
        return {name: self._used(state, name, party, limit) for name, limit in quota.limits}

    def _used(self, state: State, name: str, party: Party, limit: int) -> int:
        if name in OBJECTS:
            return state.owned_by(name, *party)
        if name == BYTES:
            return self.stored(state, party[0])
        if name == WATCHES:
            return self._counts.number((name, *party))
        # What was taken and has not been filled up again.
        return max(0, round(limit - self._counts.level((name, *party), limit)))


def _called(owner: str) -> str:
    return f"owner {owner}" if owner else "the tenant"
