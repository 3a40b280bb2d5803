"""The sleepers of a server, and whom an event of the log wakes.

A row wakes those whom it concerns, found by their predicates and the ts of their windows: a row
that concerns nobody costs one probe, however many sleep. Whatever else happens wakes whom it is
about, and what was known of their concern is forgotten until they were asked anew.

For the event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from datastem.blocks import SplitRows
from datastem.interval_table import IntervalTable
from psoup.answers.planning.concern import EVERY_ROW, Concern, RowConcern
from psoup.server.watches.prober import MatchedRows, Prober
from psoup.server.watches.sleeper import Sleeper
from psoup.server.watches.timers import Timers
from psoup.store import (
    Accept,
    Data,
    Entry,
    Expire,
    Hole,
    Replace,
    StreamEnded,
    Unregister,
    ViewEnded,
)
from psoup.store.log.access_events import AccessEnded, AccessPut
from psoup.store.log.decoding import DecodedRows
from psoup.store.state.access import Grant, Policy

K = TypeVar("K")

_SECOND = 1_000_000
# Seconds. A clock may be set while everybody sleeps, so it is looked at now and then.
_SOONEST, _LATEST = 0.001, 1.0


class StreamSleepers:
    """The sleepers whom rows of a stream concern, by the intervals of ts of their windows:
    PSoup's WindowsTable, one for each predicate."""

    def __init__(self, timed: bool) -> None:
        self.timed = timed
        self.members: dict[Sleeper, int] = {}
        self.tables: dict[int, IntervalTable[Sleeper]] = {}

    def insert(self, one: RowConcern, sleeper: Sleeper) -> bool:
        """Takes a concern; tells whether it is the first of its predicate."""
        self.members[sleeper] = self.members.get(sleeper, 0) + 1
        is_new = one.predicate_id not in self.tables
        table = self.tables.setdefault(one.predicate_id, IntervalTable())
        table.insert(one.begin, one.end, sleeper)
        return is_new

    def remove(self, one: RowConcern, sleeper: Sleeper) -> bool:
        """Gives up a concern; tells whether it was the last of its predicate."""
        self.members[sleeper] -= 1
        if not self.members[sleeper]:
            del self.members[sleeper]
        table = self.tables[one.predicate_id]
        table.remove(one.begin, one.end, sleeper)
        if not len(table):
            del self.tables[one.predicate_id]
        return not len(table)

    def wake(self, predicate_id: int, least: int, most: int) -> None:
        """Wakes whose window can hold a row of the predicate with a ts in `[least, most]`."""
        table = self.tables.get(predicate_id)
        for sleeper in table.probe(least, most + 1) if table is not None else ():
            sleeper.wake()

    @property
    def is_probed(self) -> bool:
        """Whether rows must be matched to know whom they wake."""
        return len(self.tables) > (EVERY_ROW in self.tables)


class Watches:
    """All sleepers. `now` is the clock that `until` of a sleeper is measured by."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._prober = Prober(self._told, self.wake_all)
        self._timers = Timers()
        self._ringing: asyncio.TimerHandle | None = None
        self._streams: dict[int, StreamSleepers] = {}
        self._waiting: set[asyncio.Event] = set()
        # Those without a concern, and all of them.
        self._unsettled: set[Sleeper] = set()
        self._by_handle: dict[bytes, set[Sleeper]] = {}
        self._by_tenant: dict[str, set[Sleeper]] = {}
        self._by_view: dict[int, set[Sleeper]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_handle.values()))

    # ---- who sleeps

    def open(self, news: asyncio.Event) -> None:
        """Takes the event that a Watch waits for, which is set when the server ends."""
        self._waiting.add(news)

    def close(self, news: asyncio.Event) -> None:
        self._waiting.discard(news)

    def end(self) -> None:
        """Ends the waiting of everyone."""
        for news in self._waiting:
            news.set()

    def insert(self, sleeper: Sleeper) -> None:
        """Takes a sleeper, which every commit wakes from here on."""
        _put(self._by_handle, sleeper.handle, sleeper)
        _put(self._by_tenant, sleeper.tenant, sleeper)
        self._unsettled.add(sleeper)

    def ask(self, sleeper: Sleeper) -> None:
        """Says that a sleeper is asked anew from here on: what happens later wakes it again."""
        sleeper.stale = False

    def settle(self, sleeper: Sleeper, concern: Concern, until: int | None) -> None:
        """Says what concerns a sleeper, as it was found since it was last asked.

        It does not count where something has happened meanwhile that may have changed it.
        """
        self._timers.put(sleeper, until)
        self._ring()
        if not sleeper.stale:
            self._change(sleeper, concern)

    def remove(self, sleeper: Sleeper) -> None:
        self._change(sleeper, None)
        self._timers.put(sleeper, None)
        self._unsettled.discard(sleeper)
        _take(self._by_handle, sleeper.handle, sleeper)
        _take(self._by_tenant, sleeper.tenant, sleeper)

    # ---- what happens

    def hear(self, entries: Sequence[Entry], rows: DecodedRows) -> None:
        """Takes a commit that was just applied, with its rows."""
        for sleeper in [*self._unsettled] if entries else ():
            sleeper.wake()
        for entry in entries:
            match entry.event:
                case Data() as event:
                    self._hear_rows(event, rows.get(entry.position.ordinal))
                case Replace(handle) | Unregister(handle) | Expire(handle):
                    self.wake_handle(handle)
                case StreamEnded(stream_id):
                    self.wake_stream(stream_id)
                case ViewEnded(view_id):
                    self.wake_view(view_id)
                case Accept(lost):
                    for one in lost:
                        self.wake_stream(one.stream_id)
                case AccessPut(values) if any(isinstance(one, Grant | Policy) for one in values):
                    self.wake_tenant(entry.tenant)
                case AccessEnded(ids) if any(kind in ("grant", "policy") for kind, _ in ids):
                    self.wake_tenant(entry.tenant)
        # A stamp may be ahead of this server's clock.
        self._wake_due()

    def wake_handle(self, handle: bytes) -> None:
        """Wakes whoever watches a registration about which something may be different."""
        self._wake_anew(self._by_handle.get(handle, ()))

    def wake_tenant(self, tenant: str) -> None:
        """Wakes whoever watches a registration of a tenant."""
        self._wake_anew(self._by_tenant.get(tenant, ()))

    def wake_stream(self, stream_id: int) -> None:
        """Wakes whom a stream concerns about which something may be different."""
        if stream_id in self._streams:
            self._wake_anew(self._streams[stream_id].members)

    def wake_view(self, view_id: int) -> None:
        """Wakes whoever watches a query that was bound through a view."""
        self._wake_anew(self._by_view.get(view_id, ()))

    def wake_all(self) -> None:
        """Wakes everybody: nobody knows what happened."""
        self._wake_anew(sleeper for some in self._by_handle.values() for sleeper in some)

    async def settled(self) -> None:
        """Returns when everybody was woken whom the commits so far wake."""
        await self._prober.settled()

    def stop(self) -> None:
        self._prober.stop()
        if self._ringing is not None:
            self._ringing.cancel()

    def _wake_anew(self, sleepers: Iterable[Sleeper]) -> None:
        for sleeper in [*sleepers]:
            sleeper.stale = True
            self._change(sleeper, None)
            self._unsettled.add(sleeper)
            sleeper.wake()

    # ---- rows

    def _hear_rows(self, event: Data, rows: SplitRows | Hole | None) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return
        if isinstance(rows, Hole):
            self.wake_stream(event.stream_id)
            return
        if stream.timed and _moves_now(event):
            _wake(stream.members)
        elif rows is not None:
            least, most = event.min_ts, event.max_ts
            assert least is not None and most is not None, "rows have a ts"
            stream.wake(EVERY_ROW, least, most)
            if stream.is_probed and not self._prober.probe(event.stream_id, rows.rows):
                _wake(stream.members)

    def _told(self, found: Sequence[MatchedRows]) -> None:
        for one in found:
            stream = self._streams.get(one.stream_id)
            if stream is not None:
                stream.wake(one.predicate_id, one.least, one.most)

    # ---- concerns

    def _change(self, sleeper: Sleeper, concern: Concern | None) -> None:
        """Gives a sleeper another concern. A predicate that both have is not touched."""
        before, sleeper.concern = sleeper.concern, concern
        if concern is not None:
            self._unsettled.discard(sleeper)
        if before == concern:
            return
        old, new = (frozenset() if one is None else one.rows for one in (before, concern))
        for one in new - old:
            self._insert(one, sleeper)
        for one in old - new:
            self._remove(one, sleeper)
        views = (() if one is None else one.views for one in (before, concern))
        for change, ids in zip((_take, _put), views, strict=True):
            for view_id in ids:
                change(self._by_view, view_id, sleeper)

    def _insert(self, one: RowConcern, sleeper: Sleeper) -> None:
        stream = self._streams.setdefault(one.stream_id, StreamSleepers(one.timed))
        if stream.insert(one, sleeper) and one.where is not None:
            self._prober.insert(one.stream_id, one.predicate_id, one.where)

    def _remove(self, one: RowConcern, sleeper: Sleeper) -> None:
        stream = self._streams[one.stream_id]
        if stream.remove(one, sleeper) and one.where is not None:
            self._prober.remove(one.stream_id, one.predicate_id)
        if not stream.members:
            del self._streams[one.stream_id]

    # ---- time

    def _wake_due(self) -> None:
        _wake(self._timers.due(self._now()))

    def _ring(self) -> None:
        """Sets the one timer that there is, unless it is set as soon."""
        first, loop = self._timers.first, asyncio.get_running_loop()
        if first is None:
            return
        left = (first - self._now()) / _SECOND
        delay = min(max(left, _SOONEST), _LATEST)
        if self._ringing is not None:
            if self._ringing.when() <= loop.time() + delay:
                return
            self._ringing.cancel()
        self._ringing = loop.call_later(delay, self._rung)

    def _rung(self) -> None:
        self._ringing = None
        self._wake_due()
        self._ring()

    def _check(self) -> None:
        """Asserts every invariant; no probe may be under way."""
        everybody = {one for some in self._by_handle.values() for one in some}
        assert everybody == {one for some in self._by_tenant.values() for one in some}
        assert self._unsettled == {one for one in everybody if one.concern is None}
        told = {(one, row) for one in everybody if one.concern for row in one.concern.rows}
        assert self._streams.keys() == {row.stream_id for _, row in told}
        for id_, stream in self._streams.items():
            rows = [(one, row) for one, row in told if row.stream_id == id_]
            assert stream.members.keys() == {one for one, _ in rows}
            assert sum(stream.members.values()) == len(rows)
            assert stream.tables.keys() == {row.predicate_id for _, row in rows}
            for one, row in rows:
                table = stream.tables[row.predicate_id]
                table._check()
                assert row.begin >= row.end or one in table.probe(row.begin, row.begin + 1)
        self._timers._check()
        held = {id_: {*stream.tables} - {EVERY_ROW} for id_, stream in self._streams.items()}
        self._prober._check(held)


def _moves_now(event: Data) -> bool:
    """Tells whether an event takes a stream whose rows bring their own ts to a later one."""
    return event.max_ts is not None and (event.before is None or event.max_ts > event.before)


def _wake(sleepers: Iterable[Sleeper]) -> None:
    for sleeper in [*sleepers]:
        sleeper.wake()


def _put(index: dict[K, set[Sleeper]], key: K, sleeper: Sleeper) -> None:
    index.setdefault(key, set()).add(sleeper)


def _take(index: dict[K, set[Sleeper]], key: K, sleeper: Sleeper) -> None:
    index[key].discard(sleeper)
    if not index[key]:
        del index[key]
