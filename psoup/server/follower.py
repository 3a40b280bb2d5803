"""Follows the store: the state at the tail of the log, and the files of the newest epoch.

Everything here changes on the event loop only; disk and decoding happen in threads. Between two
awaits of its caller nothing moves, so state, stems and view fit together. They never go back: if
the store must be opened again, answers come from the old replica until the new one is as far.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from datastem.keyed_rows import KeyedRows
from datastem.memory import Memory
from psoup.answers import Replica, View
from psoup.answers.replicas.epoch_files import EpochView, open_epoch_view
from psoup.answers.replicas.keyed_history import read_keyed
from psoup.answers.replicas.replica import read_commit, read_epoch
from psoup.server.settings import Settings
from psoup.server.watches import Watches
from psoup.store import CorruptStore, Entry, LogTrimmed, Losses, State, Store
from psoup.store.audit import AuditRecord
from psoup.store.delta.arrivals import Arrivals
from psoup.store.delta.reading import DataFileGone
from psoup.store.log.decoding import DecodedRows
from psoup.store.presence import PulseWatch
from psoup.write.draft import RecentBatches
from psoup.write.timepiece import system_clock

log = logging.getLogger("psoup.server")

T = TypeVar("T")

_OPEN_ATTEMPTS = 5
_READ_ATTEMPTS = 5
_POLLS_PER_THOROUGH_LOOK = 200
# Without calls and news for this long, polls are this far apart, if there are any.
_IDLE_AFTER_SECONDS = 1.0
_IDLE_POLL_SECONDS = 0.1
_LOOKS_PER_PROOF = 30


class Follower:
    """The newest replica of a store. `hear` and `watches` are given every commit that is applied;
    `clock` gives microseconds UTC."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        hear: Callable[[Sequence[Entry]], None] = lambda entries: None,
        clock: Callable[[], int] = system_clock,
        watches: Watches | None = None,
    ) -> None:
        self.store = store
        self._clock = clock
        self._hear = hear
        self._watches = Watches(lambda: self.now) if watches is None else watches
        self.recent = RecentBatches()
        self.memory = Memory(settings.memory * 3 // 4)
        self._replica = Replica(store, self.memory, State(), 0)
        self._poll = settings.poll
        self._threads = ThreadPoolExecutor(2, "follower")
        self._looking = asyncio.Lock()
        # The task that holds `_catching` reads the log, and no other one replaces the replica.
        self._catching = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._openings = 0
        self._moved = asyncio.Event()
        self._calls = 0
        self._called = asyncio.Event()
        self._idle_from = 0.0
        self._arrivals: Arrivals | None = None
        self._arrived = asyncio.Event()
        self._looked_at = 0.0
        self._read_at = 0.0
        self._appends = 0
        self.pulse = PulseWatch(store.root)

    @property
    def state(self) -> State:
        return self._replica.state

    @property
    def version(self) -> int:
        """The last commit of the log that is applied."""
        return self._replica.version

    @property
    def view(self) -> View:
        """The store as it is now. It is true until the next await."""
        return View.at(self._replica, self._clock())

    @property
    def now(self) -> int:
        """The time, in microseconds UTC; never less than the last stamp of the log."""
        return max(self._clock(), self.state.clock)

    @property
    def epoch(self) -> EpochView:
        """The files of the newest epoch that was read."""
        return self._replica.epoch

    @property
    def losses(self) -> Losses:
        """Rows that are lost, as far as this server knows."""
        return self._replica.losses

    @property
    def unread_seconds(self) -> float:
        """How long ago the store was last read without an error."""
        return time.monotonic() - self._read_at

    async def start(self) -> None:
        """Read the newest epoch and the log after it. Raise StoreError."""
        # Before anything is read: what arrives in the meantime is looked at afterwards.
        self._arrivals = Arrivals.open(
            table.log for table in (self.store.log.folder, self.store.epochs.folder)
        )
        if self._arrivals is not None:
            asyncio.get_running_loop().add_reader(self._arrivals.fileno(), self._arrive)
        await self.refresh()
        await self._in_thread(self.store.log.prove_end, self.version)
        await self._in_thread(self.pulse.look)
        self._read_at = time.monotonic()

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._arrivals is not None:
            asyncio.get_running_loop().remove_reader(self._arrivals.fileno())
            self._arrivals.close()
            self._arrivals = None

    async def run(self) -> None:
        """Look for news until cancelled. A look that fails is logged and tried again."""
        looks, looked = 0, time.monotonic()
        interval = _POLLS_PER_THOROUGH_LOOK * self._poll
        while True:
            await self._pause(looked + interval)
            self._looked_at = time.monotonic()
            is_due = self._looked_at - looked >= interval
            try:
                if await self._look(thorough=is_due):
                    self._stay_awake()
                self._read_at = time.monotonic()
                if is_due:
                    looks, looked = looks + 1, time.monotonic()
                    if looks % _LOOKS_PER_PROOF == 0:
                        await self._in_thread(self.store.log.prove_end, self.version)
            except Exception:
                log.exception("could not read the store; trying again")
                await asyncio.sleep(1)

    async def attend(self) -> None:
        """Prepare for a call: if polls were rare, apply every commit that is there."""
        is_idle = self._is_idle
        self._stay_awake()
        self._called.set()
        if is_idle and self.store.log.folder.has_commit(self.version + 1):
            try:
                await self.catch_up()
            except Exception:
                # The next poll meets the same error. The call is answered as far as this is.
                log.exception("could not read the store; trying again")

    @contextmanager
    def attending(self) -> Iterator[None]:
        """Poll often while a call is under way."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._stay_awake()

    @property
    def _is_idle(self) -> bool:
        return not self._calls and time.monotonic() >= self._idle_from

    def _stay_awake(self) -> None:
        self._idle_from = time.monotonic() + _IDLE_AFTER_SECONDS

    async def _pause(self, deadline: float) -> None:
        """Wait until the next look is due, at the latest at `deadline`. If arrivals are reported,
        one makes it due, otherwise polls are; a call that comes ends the long ones."""
        if self._arrivals is not None:
            await self._pause_for_arrival(deadline)
        elif not self._is_idle:
            await asyncio.sleep(self._poll)
        else:
            self._called.clear()
            await _within(max(_IDLE_POLL_SECONDS, self._poll), self._called)

    async def _pause_for_arrival(self, deadline: float) -> None:
        await _within(max(0.0, deadline - time.monotonic()), self._arrived)
        # Looks are no closer to each other than polls. A server that appends sees its own commit
        # arrive before it is durable, and applies it by itself soon after.
        since = time.monotonic() if self._appends else self._looked_at
        await asyncio.sleep(max(0.0, since + self._poll - time.monotonic()))
        self._arrived.clear()

    def _arrive(self) -> None:
        assert self._arrivals is not None
        self._arrivals.clear()
        self._arrived.set()

    @contextmanager
    def appending(self) -> Iterator[None]:
        """Leave the next commit to this server's appender for a while."""
        self._appends += 1
        try:
            yield
        finally:
            self._appends -= 1

    async def catch_up(self) -> None:
        """Return with every commit applied that was there when it was called."""
        async with self._catching:
            while True:
                try:
                    while await self._next():
                        pass
                    return
                except LogTrimmed:
                    stood = self.version
                    log.info("the log was trimmed past version %d; opening the store again", stood)
                    await self._take(await self._open(), self._replica)
                    # The store that was opened again is no further, so another attempt would find
                    # the same gap.
                    if self.version == stood:
                        raise

    def apply(self, version: int, entries: Sequence[Entry], rows: DecodedRows, nbytes: int) -> None:
        """Apply the next commit, whose file has `nbytes` bytes; do nothing if it was applied
        before."""
        if version != self.version + 1:
            return
        # The replica first: whatever is woken below plans with the state after this commit.
        self._replica.apply(version, entries, rows, nbytes)
        for entry in entries:
            self.recent.insert(entry)
        self._hear(entries)
        self._watches.hear(entries, rows)
        self._notify()

    async def keyed_rows(self, stream_id: int, low: int) -> KeyedRows:
        """Return the rows of a keyed stream with ids from `low` on, in a thread if there are any.
        Raise StoreError."""

        async def attempt() -> KeyedRows:
            stem = self.view.stem(stream_id)
            if stem.high <= low:
                return KeyedRows.joined([])
            return await self._in_thread(read_keyed, stem, low)

        return await self.read(attempt)

    async def moved(self, timeout: float) -> bool:
        """Wait for any change; return False if none came in time."""
        try:
            await asyncio.wait_for(self._moved.wait(), timeout)
        except TimeoutError:
            return False
        return True

    async def refresh(self) -> None:
        """Open the store again, for a reader that misses a file.

        Other calls go on. Readers that wait at once share one opening that began after they came:
        one under way may have read an epoch whose files they missed.
        """
        # A caller that finds the count raised once it has the lock shares the opening that began
        # meanwhile.
        begun = self._openings
        async with self._opening:
            if self._openings == begun:
                self._openings += 1
                previous, replica = self._replica, await self._open()
                async with self._catching:
                    await self._take(replica, previous)
        await self.catch_up()

    async def read(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the outcome of `attempt`, which plans again at each call and then reads files.

        If a file is gone the store is opened again, as often as the engine moves on under the
        reader. Raise CorruptStore if no epoch came in between, and any other error that is raised
        twice at one epoch.
        """
        failed = -1
        for _ in range(_READ_ATTEMPTS):
            epoch = self.epoch.number
            try:
                return await attempt()
            except CorruptStore:
                # It stays damaged until an epoch names it no more.
                if self.epoch.number == epoch:
                    raise
                continue
            except (FileNotFoundError, LogTrimmed) as error:
                # The first failure at an epoch means an outdated view. A second one, after a
                # refresh, is a loss.
                if epoch == failed and isinstance(error, DataFileGone):
                    raise CorruptStore(str(error), error.file) from error
                if epoch == failed:
                    raise
            failed = epoch
            await self.refresh()
        return await attempt()

    def behind(self) -> tuple[int, int]:
        """Return how far the engine is behind in the whole store, of all tenants: rows, and the age
        in microseconds of the oldest commit that it has not consumed."""
        rows, _ = self.behind_in(self.state.streams)
        oldest = self._replica.backlog.oldest
        return rows, 0 if oldest is None else max(0, self.now - oldest)

    def behind_in(self, stream_ids: Iterable[int]) -> tuple[int, int]:
        """Return how far the engine is behind in some streams: rows, and the age in microseconds of
        the oldest of them."""
        # Row ids of a stream are dense, so the distance of two `high` marks is a number of rows.
        marks, backlog = self.epoch.epoch.streams, self._replica.backlog
        rows, oldest, now = 0, [], self.now
        for stream in map(self.state.streams.__getitem__, stream_ids):
            mark = marks.get(stream.id)
            lacking = 0 if stream.dropped else stream.high - (mark.high if mark else 0)
            if lacking:
                rows += lacking
                oldest.append(backlog.oldest_of(stream.id))
        return rows, now - min((stamp for stamp in oldest if stamp is not None), default=now)

    @property
    def backlog_bytes(self) -> int:
        """How much of the log the engine has not consumed."""
        return self._replica.backlog.nbytes

    def stored_bytes(self, stream_id: int) -> int:
        """Return the bytes that a stream takes: its rows in the log, its stem, and what was
        matched."""
        return sum(self.stored_parts(stream_id))

    def stored_parts(self, stream_id: int) -> tuple[int, int, int]:
        """Return the bytes that a stream takes in the log, in its stem, and in matches."""
        epoch = self.epoch
        log_bytes = self._replica.backlog.of_streams[stream_id]
        return log_bytes, epoch.stem_bytes.get(stream_id, 0), epoch.match_bytes.get(stream_id, 0)

    @property
    def audit(self) -> Sequence[AuditRecord]:
        """The records of the audit that the engine has not written yet, in the order of the log."""
        return self._replica.audit

    # ---- the log

    async def _next(self) -> bool:
        """Read and apply one commit; return whether there is one."""
        version, read = self.version + 1, self.store.log.folder.read_commit
        if read(version) is None:
            if self.store.log.latest_version(self.version) < version:
                return False
            # It may have been made between the two reads, and then it can be read now.
            if read(version) is None:
                raise LogTrimmed(f"version {version} of the log is gone")
        self.apply(version, *await self._in_thread(read_commit, self.store, version, self.state))
        return True

    # ---- the epochs

    async def _look(self, thorough: bool) -> bool:
        """Take over commits and epochs that are new; return whether there were any."""
        version, epoch = self.version, self.epoch.number
        async with self._looking:
            # An ordinary look tries only the next commit, by its number. A thorough one also finds
            # later commits if a checkpoint has replaced that one.
            if thorough or self.store.epochs.folder.has_commit(self.epoch.version + 1):
                await self._look_at_epochs()
        if thorough:
            await self._in_thread(self.pulse.look)
        if thorough or self.store.log.folder.has_commit(self.version + 1):
            await self.catch_up()
        return (version, epoch) != (self.version, self.epoch.number)

    async def _look_at_epochs(self) -> None:
        before = self.epoch
        version, epoch = await self._in_thread(self.store.epochs.latest, before.version)
        if epoch.number != before.epoch.number:
            await self._show(
                await self._in_thread(open_epoch_view, self.store, version, epoch, before)
            )

    async def _show(self, view: EpochView) -> None:
        """Make a newer view the current one, once the log is as far as it."""
        if view.epoch.log_version > self.version:
            await self.catch_up()
        replica = self._replica
        if replica.is_outdated(view):
            await self.refresh()
            return
        indexes = await self._in_thread(replica.reader(view))
        # While the indexes were read, the replica may have been replaced, or a newer epoch shown.
        if replica is self._replica and view.epoch.number > self.epoch.number:
            has_changed = view.epoch.quarantine != self.epoch.epoch.quarantine
            replica.show(view, indexes)
            # Quarantine changes answers without an event of the log, so no watch would hear of it.
            if has_changed:
                self._watches.wake_all()
            self._notify()

    # ---- opening

    async def _open(self) -> Replica:
        """Make a replica beside the current one, as far as that.

        It tries again if the engine has moved on under the reader.
        """
        for _ in range(_OPEN_ATTEMPTS - 1):
            with suppress(CorruptStore, LogTrimmed, FileNotFoundError):
                return await self._open_newest()
        return await self._open_newest()

    async def _open_newest(self) -> Replica:
        state, view = await self._in_thread(read_epoch, self.store)
        replica = Replica(self.store, self.memory, state, view.epoch.log_version)
        try:
            replica.show(view, await self._in_thread(replica.reader(view)))
            await self._follow(replica)
        except BaseException:
            # A replica that is not used must give back what it holds in the shared memory budget.
            replica.forget()
            raise
        return replica

    async def _take(self, replica: Replica, previous: Replica) -> None:
        """Make a replica the current one, unless another one than `previous` is current already.

        The caller holds `_catching`, so it ends: only a commit of this server's own and an epoch
        can come in between.
        """
        try:
            if self._replica is previous:
                await self._follow(replica)
                # Nothing is awaited from here on: no answer sees the one without the other.
                is_same = replica.version == previous.version and replica.losses == previous.losses
                self._replica = replica
                replica.replace(previous)
                if not is_same:
                    self._watches.wake_all()
                self._notify()
        finally:
            if self._replica is not replica:
                replica.forget()

    async def _follow(self, replica: Replica) -> None:
        """Bring a replica to the version and epoch of the current one, however that moves."""
        while replica.is_behind(self._replica):
            if replica.version < self.version:
                version = replica.version + 1
                read = await self._in_thread(read_commit, self.store, version, replica.state)
                replica.apply(version, *read)
            else:
                view = self.epoch
                replica.show(view, await self._in_thread(replica.reader(view)))

    def wake(self) -> None:
        """End the waits of all calls."""
        self._notify()

    def _notify(self) -> None:
        # A new event for later waiters: this change ends only the waits that have begun.
        self._moved.set()
        self._moved = asyncio.Event()

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Wait for an event, but no longer than this."""
    # Not `wait_for`: in Python 3.11 it drops a cancellation that comes together with the event.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
