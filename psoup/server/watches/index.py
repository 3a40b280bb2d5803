"""The sleepers of a server, and which of them an event of the log wakes.

A row wakes the sleepers it concerns, found by their predicates and the ts of their windows. A row
that concerns none costs one probe, however many sleep. Any other event wakes the sleepers it is
about, and their concern is forgotten until their next round.

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
    RowsErased,
    StreamAltered,
    StreamEnded,
    Unregister,
    ViewEnded,
    ZoneDefined,
)
from psoup.store.log.access_events import AccessEnded, AccessPut
from psoup.store.log.decoding import DecodedRows
from psoup.store.state.access import Grant, Policy

K = TypeVar("K")

_SECOND = 1_000_000
# How soon a timer rings. A clock may be set while all items sleep, so it rings at least this often.
_MIN_DELAY_SECONDS, _MAX_DELAY_SECONDS = 0.001, 1.0


class StreamSleepers:
    """The sleepers that rows of a stream concern, by the intervals of ts of their windows: PSoup's
    WindowsTable, one for each predicate."""

    def __init__(self, timed: bool) -> None:
        self.timed = timed
        self.members: dict[Sleeper, int] = {}
        self.tables: dict[int, IntervalTable[Sleeper]] = {}

    def insert(self, concern: RowConcern, sleeper: Sleeper) -> bool:
        """Add a concern; return whether it is the first of its predicate."""
        self.members[sleeper] = self.members.get(sleeper, 0) + 1
        is_new = concern.predicate_id not in self.tables
        table = self.tables.setdefault(concern.predicate_id, IntervalTable())
        table.insert(concern.begin, concern.end, sleeper)
        return is_new

    def remove(self, concern: RowConcern, sleeper: Sleeper) -> bool:
        """Remove a concern; return whether it was the last of its predicate."""
        self.members[sleeper] -= 1
        if not self.members[sleeper]:
            del self.members[sleeper]
        table = self.tables[concern.predicate_id]
        table.remove(concern.begin, concern.end, sleeper)
        if not len(table):
            del self.tables[concern.predicate_id]
        return not len(table)

    def wake(self, predicate_id: int, least: int, most: int) -> None:
        """Wake sleepers whose window can hold a row of the predicate with a ts in `[least,
        most]`."""
        table = self.tables.get(predicate_id)
        # The table holds half-open intervals, and `most` is inclusive.
        for sleeper in table.probe(least, most + 1) if table is not None else ():
            sleeper.wake()

    @property
    def is_probed(self) -> bool:
        """Whether rows must be matched to know which sleepers they wake."""
        # EVERY_ROW matches without a look at the rows, so it alone needs no probe.
        return len(self.tables) > (EVERY_ROW in self.tables)


class Watches:
    """All sleepers. `now` is the clock that `until` of a sleeper is measured by."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._prober = Prober(self._hear_matches, self.wake_all)
        self._timers = Timers()
        self._ringing: asyncio.TimerHandle | None = None
        self._streams: dict[int, StreamSleepers] = {}
        self._waiting: set[asyncio.Event] = set()
        # The sleepers without a concern, and all of them by three keys.
        self._unsettled: set[Sleeper] = set()
        self._by_handle: dict[bytes, set[Sleeper]] = {}
        self._by_tenant: dict[str, set[Sleeper]] = {}
        self._by_view: dict[int, set[Sleeper]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_handle.values()))

    # ---- who sleeps

    def open(self, news: asyncio.Event) -> None:
        """Add the event that a Watch waits for, which is set when the server ends."""
        self._waiting.add(news)

    def close(self, news: asyncio.Event) -> None:
        self._waiting.discard(news)

    def end(self) -> None:
        """End the waits of all watches."""
        for news in self._waiting:
            news.set()

    def insert(self, sleeper: Sleeper) -> None:
        """Add a sleeper, which every commit wakes from here on."""
        _put(self._by_handle, sleeper.handle, sleeper)
        _put(self._by_tenant, sleeper.tenant, sleeper)
        self._unsettled.add(sleeper)

    def ask(self, sleeper: Sleeper) -> None:
        """Note that a round of a sleeper begins: later events wake it again."""
        sleeper.stale = False

    def settle(self, sleeper: Sleeper, concern: Concern, until: int | None) -> None:
        """Set what concerns a sleeper, as its round has found. Do nothing if an event has come
        since the round began that may have changed it."""
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
        """Wake the sleepers that a commit concerns, which was just applied."""
        for sleeper in [*self._unsettled] if entries else ():
            sleeper.wake()
        for entry in entries:
            match entry.event:
                case Data() as event:
                    self._hear_rows(event, rows.get(entry.position.ordinal))
                case Replace(handle) | Unregister(handle) | Expire(handle):
                    self.wake_handle(handle)
                case StreamAltered(stream_id) | StreamEnded(stream_id) | RowsErased(stream_id):
                    self.wake_stream(stream_id)
                case ViewEnded(view_id):
                    self.wake_view(view_id)
                case ZoneDefined():
                    self.wake_all()
                case Accept(lost):
                    for value in lost:
                        self.wake_stream(value.stream_id)
                # Grants and policies decide which rows a watcher sees. Keys and quotas do not.
                case AccessPut(values) if any(
                    isinstance(value, Grant | Policy) for value in values
                ):
                    self.wake_tenant(entry.tenant)
                case AccessEnded(ids) if any(kind in ("grant", "policy") for kind, _ in ids):
                    self.wake_tenant(entry.tenant)
        # A stamp may be ahead of this server's clock.
        self._wake_due()

    def wake_handle(self, handle: bytes) -> None:
        """Wake the watchers of a registration that may have changed."""
        self._wake_unsettled(self._by_handle.get(handle, ()))

    def wake_tenant(self, tenant: str) -> None:
        """Wake the watchers of a tenant's registrations."""
        self._wake_unsettled(self._by_tenant.get(tenant, ()))

    def wake_stream(self, stream_id: int) -> None:
        """Wake the sleepers that a stream concerns, which may have changed."""
        if stream_id in self._streams:
            self._wake_unsettled(self._streams[stream_id].members)

    def wake_view(self, view_id: int) -> None:
        """Wake the watchers of queries that were bound through a view."""
        self._wake_unsettled(self._by_view.get(view_id, ()))

    def wake_all(self) -> None:
        """Wake all sleepers: it is not known what happened."""
        self._wake_unsettled(
            sleeper for sleepers in self._by_handle.values() for sleeper in sleepers
        )

    async def settled(self) -> None:
        """Return when the commits so far have woken their sleepers."""
        await self._prober.settled()

    def stop(self) -> None:
        self._prober.stop()
        if self._ringing is not None:
            self._ringing.cancel()

    def _wake_unsettled(self, sleepers: Iterable[Sleeper]) -> None:
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
        # With event time these rows move NOW, and every window over the stream moves with it.
        if stream.timed and _moves_now(event):
            _wake(stream.members)
        elif rows is not None:
            least, most = event.min_ts, event.max_ts
            assert least is not None and most is not None, "rows have a ts"
            stream.wake(EVERY_ROW, least, most)
            # Too many rows wait for the prober: wake all instead of missing one that matches.
            if stream.is_probed and not self._prober.probe(event.stream_id, rows.rows):
                _wake(stream.members)

    def _hear_matches(self, matches: Sequence[MatchedRows]) -> None:
        for match in matches:
            stream = self._streams.get(match.stream_id)
            if stream is not None:
                stream.wake(match.predicate_id, match.least, match.most)

    # ---- concerns

    def _change(self, sleeper: Sleeper, concern: Concern | None) -> None:
        """Replace the concern of a sleeper. A predicate that both have is not touched."""
        before, sleeper.concern = sleeper.concern, concern
        if concern is not None:
            self._unsettled.discard(sleeper)
        if before == concern:
            return
        old = frozenset() if before is None else before.rows
        new = frozenset() if concern is None else concern.rows
        # Insert before removing: a predicate that only gets another window stays in the prober.
        for rows in new - old:
            self._insert(rows, sleeper)
        for rows in old - new:
            self._remove(rows, sleeper)
        views = (before.views if before else (), concern.views if concern else ())
        for change, ids in zip((_take, _put), views, strict=True):
            for view_id in ids:
                change(self._by_view, view_id, sleeper)

    def _insert(self, concern: RowConcern, sleeper: Sleeper) -> None:
        stream = self._streams.setdefault(concern.stream_id, StreamSleepers(concern.timed))
        if stream.insert(concern, sleeper) and concern.where is not None:
            self._prober.insert(concern.stream_id, concern.predicate_id, concern.where)

    def _remove(self, concern: RowConcern, sleeper: Sleeper) -> None:
        stream = self._streams[concern.stream_id]
        if stream.remove(concern, sleeper) and concern.where is not None:
            self._prober.remove(concern.stream_id, concern.predicate_id)
        if not stream.members:
            del self._streams[concern.stream_id]

    # ---- time

    def _wake_due(self) -> None:
        _wake(self._timers.due(self._now()))

    def _ring(self) -> None:
        """Set the timer, unless it rings as soon already."""
        first, loop = self._timers.first, asyncio.get_running_loop()
        if first is None:
            return
        seconds = (first - self._now()) / _SECOND
        delay = min(max(seconds, _MIN_DELAY_SECONDS), _MAX_DELAY_SECONDS)
        if self._ringing is not None:
            # An early ring does no harm: it wakes what is due, and sets the timer again.
            if self._ringing.when() <= loop.time() + delay:
                return
            self._ringing.cancel()
        self._ringing = loop.call_later(delay, self._rung)

    def _rung(self) -> None:
        self._ringing = None
        self._wake_due()
        self._ring()

    def _check(self) -> None:
        """Assert every invariant; no probe may be under way."""
        sleepers = {sleeper for sleepers in self._by_handle.values() for sleeper in sleepers}
        assert sleepers == {
            sleeper for sleepers in self._by_tenant.values() for sleeper in sleepers
        }
        assert self._unsettled == {sleeper for sleeper in sleepers if sleeper.concern is None}
        pairs = {
            (sleeper, row)
            for sleeper in sleepers
            if sleeper.concern
            for row in sleeper.concern.rows
        }
        assert self._streams.keys() == {row.stream_id for _, row in pairs}
        for id_, stream in self._streams.items():
            rows = [(sleeper, row) for sleeper, row in pairs if row.stream_id == id_]
            assert stream.members.keys() == {sleeper for sleeper, _ in rows}
            assert sum(stream.members.values()) == len(rows)
            assert stream.tables.keys() == {row.predicate_id for _, row in rows}
            for sleeper, row in rows:
                table = stream.tables[row.predicate_id]
                table._check()
                assert row.begin >= row.end or sleeper in table.probe(row.begin, row.begin + 1)
        self._timers._check()
        predicate_ids = {
            id_: {*stream.tables} - {EVERY_ROW} for id_, stream in self._streams.items()
        }
        self._prober._check(predicate_ids)


def _moves_now(event: Data) -> bool:
    """Return whether an event takes NOW of a stream with event time further."""
    return event.reached is not None and (event.before is None or event.reached > event.before)


def _wake(sleepers: Iterable[Sleeper]) -> None:
    for sleeper in [*sleepers]:
        sleeper.wake()


def _put(index: dict[K, set[Sleeper]], key: K, sleeper: Sleeper) -> None:
    index.setdefault(key, set()).add(sleeper)


def _take(index: dict[K, set[Sleeper]], key: K, sleeper: Sleeper) -> None:
    index[key].discard(sleeper)
    if not index[key]:
        del index[key]
