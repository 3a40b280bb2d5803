"""Follows the store: the state at the tail of the log, and the files of the newest epoch.

Everything here changes on the event loop only; disk and decoding happen in threads. Between two
awaits of its caller nothing moves, so state, stems and view fit together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from datastem.codec import decode, stem_schema
from datastem.errors import DecodeError
from datastem.memory import Memory
from datastem.schema import StreamSchema
from datastem.stem import DataStem
from psoup.server.files import StemFiles
from psoup.server.keyed import KeyedStream
from psoup.server.recent import Recent
from psoup.server.settings import Settings
from psoup.server.view import EMPTY, EpochView, open_view
from psoup.store import (
    CorruptStore,
    CreateStream,
    Data,
    DropStream,
    Entry,
    LogTrimmed,
    State,
    Store,
)

log = logging.getLogger("psoup.server")

T = TypeVar("T")

_OPEN_ATTEMPTS = 5
_POLLS_PER_LOOK = 200


@dataclass(frozen=True, slots=True)
class Opened:
    """Everything at an epoch, as read from the tables."""

    state: State
    view: EpochView


class Follower:
    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.state = State()
        self.view = EMPTY
        self.version = 0
        self.stems: dict[int, DataStem] = {}
        self.keyed: dict[int, KeyedStream] = {}
        self.recent = Recent()
        self.memory = Memory(settings.memory * 3 // 4)
        self._poll = settings.poll
        self._files: dict[int, StemFiles] = {}
        self._threads = ThreadPoolExecutor(2, "follower")
        self._looking = asyncio.Lock()
        self._catching = asyncio.Lock()
        self._moved = asyncio.Event()
        self._unconsumed: deque[tuple[int, int]] = deque()
        self._behind = (-1, -1), 0

    async def start(self) -> None:
        """Reads the newest epoch and the log after it. Raises StoreError."""
        await self._reopen()
        await self.catch_up()

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self) -> None:
        """Polls until cancelled. A look that fails is logged and tried again."""
        polls = 0
        while True:
            await asyncio.sleep(self._poll)
            polls += 1
            try:
                await self._look(thorough=polls % _POLLS_PER_LOOK == 0)
            except Exception:
                log.exception("could not read the store; trying again")
                await asyncio.sleep(1)

    async def catch_up(self) -> None:
        """Returns with every commit applied that was there when it was called."""
        async with self._catching:
            try:
                while await self._next():
                    pass
            except LogTrimmed:
                log.info("the log was trimmed past version %d; opening anew", self.version)
                await self._reopen()
                while await self._next():
                    pass

    def apply(self, version: int, entries: Sequence[Entry], rows: Rows) -> None:
        """Takes the next commit. One that was applied already is left alone."""
        if version != self.version + 1:
            return
        for entry in entries:
            self.state.apply(entry)
            self.recent.insert(entry)
            self._apply_rows(entry, rows)
        if entries:
            self._unconsumed.append((version, entries[0].stamp))
        self.version = version
        self._notify()

    async def moved(self, timeout: float) -> bool:
        """Waits for any change; False where none came in time."""
        try:
            await asyncio.wait_for(self._moved.wait(), timeout)
        except TimeoutError:
            return False
        return True

    async def refresh(self) -> None:
        """Reads the newest epoch now: what a reader does who misses a file."""
        async with self._looking, self._catching:
            await self._reopen()
        await self.catch_up()

    def behind(self, clock: int) -> tuple[int, int]:
        """How far the engine is: rows, and the age in microseconds of the oldest of them."""
        moment = self.version, self.view.epoch.number
        if self._behind[0] != moment:
            self._behind = moment, self._rows_behind()
        rows = self._behind[1]
        age = max(0, clock - self._unconsumed[0][1]) if self._unconsumed else 0
        return rows, age

    def _rows_behind(self) -> int:
        marks = self.view.epoch.streams
        return sum(
            stream.high - (marks[stream.id].high if stream.id in marks else 0)
            for stream in self.state.streams.values()
            if not stream.dropped
        )

    # ---- the log

    async def _next(self) -> bool:
        """Reads and applies one commit, if there is one."""
        version, read = self.version + 1, self.store.log.folder.read_commit
        if read(version) is None:
            if self.store.log.latest_version(self.version) < version:
                return False
            # It may have been made between the two looks, and then it is there now.
            if read(version) is None:
                raise LogTrimmed(f"version {version} of the log is gone")
        entries, rows = await self._in_thread(self._read, version, self.state)
        self.apply(version, entries, rows)
        return True

    def _read(self, version: int, state: State) -> tuple[list[Entry], Rows]:
        entries = self.store.log.read(version)
        return entries, decode_rows(entries, state)

    def _apply_rows(self, entry: Entry, rows: Rows) -> None:
        match entry.event:
            case CreateStream(stream_id, schema):
                self._open_stem(stream_id, schema)
            case DropStream(stream_id):
                self.stems.pop(stream_id).forget()
                del self._files[stream_id]
                if keyed := self.keyed.pop(stream_id, None):
                    keyed.forget()
            case Data() as event if event.rows:
                batch = rows[entry.position.ordinal]
                self.stems[event.stream_id].insert(batch, event.first_row_id + event.rows)

    # ---- the epochs

    async def _look(self, thorough: bool) -> None:
        async with self._looking:
            newer = self.store.epochs.folder.read_commit(self.view.version + 1) is not None
            if thorough or newer:
                await self._look_at_epochs()
        if thorough or self.store.log.folder.read_commit(self.version + 1) is not None:
            await self.catch_up()

    async def _look_at_epochs(self) -> None:
        before = self.view
        version, epoch = await self._in_thread(self.store.epochs.latest, before.version)
        if epoch.number != before.epoch.number:
            await self._show(await self._in_thread(open_view, self.store, version, epoch, before))

    async def _show(self, view: EpochView) -> None:
        """Makes a newer view the current one, once the log is as far as it."""
        if view.epoch.number < self.view.epoch.number:
            return
        if view.epoch.log_version > self.version:
            await self.catch_up()
        await self._cover(view)
        self.view = view
        while self._unconsumed and self._unconsumed[0][0] <= view.epoch.log_version:
            self._unconsumed.popleft()
        self._notify()

    async def _cover(self, view: EpochView) -> None:
        before = self.view
        for stream_id, snapshot in view.stems.items():
            seen = before.stems.get(stream_id)
            if stream_id not in self.stems or (seen and seen.version == snapshot.version):
                continue
            stem, files = self.stems[stream_id], self._files[stream_id]
            segments = await self._in_thread(files.segments, snapshot.files.values())
            stem.cover(view.epoch.streams[stream_id].high, segments)

    # ---- opening

    async def _reopen(self) -> None:
        opened = await self._in_thread(open_newest, self.store)
        for stem in self.stems.values():
            stem.forget()
        self.stems, self._files, self.view = {}, {}, EMPTY
        self.state = opened.state
        self.version = opened.view.epoch.log_version
        self._unconsumed.clear()
        for stream in opened.state.streams.values():
            if not stream.dropped:
                self._open_stem(stream.id, stream.schema)
        for gone in self.keyed.keys() - self.stems.keys():
            self.keyed.pop(gone).forget()
        await self._show(opened.view)

    def _open_stem(self, stream_id: int, schema: StreamSchema) -> None:
        files = StemFiles(self.store.stem(stream_id), schema)
        self._files[stream_id] = files
        self.stems[stream_id] = DataStem(self.memory, files.read)
        if schema.key and stream_id not in self.keyed:
            # What is known of its rows stays true when the stem is opened anew.
            self.keyed[stream_id] = KeyedStream(self.memory)

    def wake(self) -> None:
        """Ends the waiting of everyone."""
        self._notify()

    def _notify(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def _in_thread(self, work: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)


# The decoded rows of a commit, by the ordinal of their event.
Rows = dict[int, pa.RecordBatch]


def decode_rows(entries: Sequence[Entry], state: State) -> Rows:
    """A payload that does not decode, or not to the rows its event says, gives none.

    `state` is the one before the commit. It is only looked at, so it may move on meanwhile.
    """
    created: dict[int, StreamSchema] = {}
    rows: Rows = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, CreateStream):
            created[event.stream_id] = event.schema
        elif isinstance(event, Data) and event.rows:
            schema = created.get(event.stream_id) or state.streams[event.stream_id].schema
            rows[entry.position.ordinal] = _decode(entry, event, schema)
    return rows


def _decode(entry: Entry, event: Data, schema: StreamSchema) -> pa.RecordBatch:
    try:
        place = entry.position.packed
        batch = decode(schema, event.payload, event.first_row_id, entry.stamp, place, event.before)
        if batch.num_rows != event.rows:
            raise DecodeError(f"{batch.num_rows} rows where the log says {event.rows}")
    except DecodeError as error:
        log.error("position %s: %s; its row ids stay empty", entry.position, error)
        return pa.RecordBatch.from_pylist([], schema=stem_schema(schema))
    return batch


def open_newest(store: Store) -> Opened:
    """Reads the newest epoch; again where the engine has moved on under the reader."""
    for attempt in range(_OPEN_ATTEMPTS):
        version, epoch = store.epochs.latest()
        try:
            return Opened(store.state(epoch), open_view(store, version, epoch))
        except (CorruptStore, FileNotFoundError):
            if attempt == _OPEN_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")
