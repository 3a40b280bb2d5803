"""All copies of one client, in one file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal

from client_sdk._async_client import AsyncClient
from client_sdk._client import Client
from client_sdk._exceptions import LocalQueryProblem
from client_sdk._grpc.drivers import async_drive, async_drive_each, drive, drive_each
from client_sdk._grpc.effects import Flow
from client_sdk._session import Closing, HandleLike, Session, handle_bytes
from client_sdk._wire.values import Scalar, to_value
from client_sdk.copies._changes.batch import ChangeBatch, leave_batch, open_batch
from client_sdk.copies._changes.reported import ALL_CHANGES, EVERY_POINT, WITH_OWN, WITHOUT_LEFT
from client_sdk.copies._eviction import evict, note_reads
from client_sdk.copies._file import catalog
from client_sdk.copies._file.catalog import Recovered, recover
from client_sdk.copies._file.clock import Clock, DeviceClock, machine_clock
from client_sdk.copies._file.encryption import Key, encrypt, key_bytes
from client_sdk.copies._file.file import CopyFile, SyncLock
from client_sdk.copies._file.records import Declaration
from client_sdk.copies._leaving import Leaving
from client_sdk.copies._query.answers import CopyClock, Reading
from client_sdk.copies._query.base_rows import require
from client_sdk.copies._query.reading import Copy, Parameters, run_query
from client_sdk.copies._queue.batches import Sent
from client_sdk.copies._queue.outbox import OnConflict
from client_sdk.copies._queue.queue import QUEUE_BYTES
from client_sdk.copies._sync.flow import SyncRun
from client_sdk.copies._sync.opening import SyncOptions, new_key
from client_sdk.copies._sync.result import Synced
from client_sdk.copies._sync.verify import Verified, verify_copies
from client_sdk.copies._sync.watch import WatchRun


class Copies(Leaving, Closing):
    """Answers in a SQLite file, brought up to date by `sync`, and read without a connection.

        with Client("localhost:7181") as client, Copies("phone.db") as copies:
            copies.keep("dear", "SELECT symbol, price FROM trades WHERE price > 100 "
                                "RANGE 10 MINUTES")
            copies.sync(client)
            copies["dear"].rows()

    Threads may share it and take turns; several processes may use one file at once. Everything
    raised is a PsoupError, except misuse, which is ValueError or TypeError.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock = machine_clock,
        queue_bytes: int = QUEUE_BYTES,
        most_bytes: int | None = None,
        key: Key | None = None,
    ) -> None:
        """Open the file, or create it. Raises CopyError.

        With a `key`, 32 random bytes or a function that returns them, the file is encrypted; that
        needs the extra `psoup[encrypted]`. Raises WrongKey if it has another key, or none.

        `queue_bytes` limits what may wait to be sent. If the file has more than `most_bytes` after
        a sync, the copies that were not read for the longest time are evicted: their rows are
        removed, their declarations stay. Copies that are kept as pinned, and the queue, stay.
        """
        if most_bytes is not None and most_bytes <= 0:
            raise ValueError(f"most_bytes is 1 or more, not {most_bytes}")
        self._most_bytes = most_bytes
        self._open(CopyFile(path, key_bytes(key)), clock, queue_bytes)

    @classmethod
    def in_memory(cls, *, clock: Clock = machine_clock, queue_bytes: int = QUEUE_BYTES) -> Copies:
        """Return copies without a file, which are gone when they are closed."""
        copies = cls.__new__(cls)
        copies._most_bytes = None
        copies._open(CopyFile(None), clock, queue_bytes)
        return copies

    @staticmethod
    def recover(path: str | os.PathLike[str], key: Key | None = None) -> Recovered:
        """Make a new file of what can be read of a damaged one, which is kept beside it.

        Copies are declared again, and received whole by the next sync. The queue is kept. Raises
        CopyError; WrongKey if the file is encrypted with another `key`.
        """
        return recover(path, key)

    @staticmethod
    def encrypt(path: str | os.PathLike[str], key: Key) -> None:
        """Encrypt a plain file, which no process may have open: a new file takes its place.

        If this is interrupted, the file is as it was, or encrypted. The disk may still have blocks
        of the plain file. Raises CopyError.
        """
        encrypt(path, key)

    def rekey(self, key: Key) -> None:
        """Encrypt the file with another key. Raises FileBusy if another process has it open.

        If this is interrupted, the old key or the new one opens the file.
        """
        secret = key_bytes(key)
        if secret is None:
            raise ValueError("rekey() takes a key")
        self._file.rekey(secret)

    def _open(self, file: CopyFile, clock: Clock, queue_bytes: int) -> None:
        device = clock if isinstance(clock, DeviceClock) else DeviceClock(clock)
        super().__init__(file, queue_bytes, device)
        self._now = CopyClock(file, self._clock)
        self._lock = SyncLock(file)

    # ---- declaring copies

    def keep(
        self,
        name: str,
        sql: str | None = None,
        *,
        handle: HandleLike | None = None,
        parameters: Mapping[str, Scalar] | None = None,
        lease: timedelta | None = None,
        window: str | None = None,
        priority: int = 0,
        base_rows: bool = False,
        changes: bool | Literal["without left", "with own", "every point"] = False,
        edits: bool = False,
        pinned: bool = False,
    ) -> Copy:
        """Declare a copy, by the text of its query or by the handle of a registration, and return
        it.

        This needs no connection: the next sync registers the query. Declaring the same copy again
        changes nothing. Another text, window or handle under its name replaces it, and it is empty
        until it is synced. Another text also replaces the registered query, whose handle stays,
        unless the lease differs.

        `parameters` and `lease` are those of `Client.register`. `window` replaces the window of the
        query. Copies with a higher `priority` are received first. `base_rows` keeps the rows that
        the answer is computed from, so that it can go on offline. With `changes`, changes of the
        answer are kept from the next sync on until `changes()` has returned them; "without left"
        leaves out rows that leave by time, and "with own" reports own edits too, once. "every
        point" is for a query with REFRESH: the changes of each refresh point since the last sync,
        not only those that are left of all. Such a copy takes no part in one position.

        With `edits`, rows that this file has queued are in the answer at once, and `Copy.pending`
        says which. If only the store can tell what they do to the answer, the first sync says so,
        and the copy is kept without edits. A `pinned` copy is never evicted.
        """
        if (sql is None) == (handle is None):
            raise ValueError("keep() takes the text of a query or a handle, and not both")
        _check_name(name)
        if base_rows or edits:
            require()
        if base_rows and changes:
            raise ValueError(
                "a copy of base rows has no changes: keep the answer too, without base_rows"
            )
        if changes == WITH_OWN and not edits:
            raise ValueError(f"changes={WITH_OWN!r} are of a copy that is kept with edits=True")
        declared = Declaration(
            copy_id=0,
            name=name,
            sql=sql or "",
            parameters=_in_hex(parameters),
            lease=None if lease is None else lease.total_seconds(),
            window=window or "",
            priority=priority,
            base_rows=base_rows,
            key=new_key(name),
            handle=b"" if handle is None else handle_bytes(handle),
            changes=_changes(changes),
            edits=edits,
            pinned=pinned,
        )
        with self._file.writing(durable=True) as connection:
            catalog.declare(connection, declared)
        return Copy(self._file, self._now, name)

    def forget(self, name: str) -> None:
        """Delete the copy. Its registration stays until its lease ends, or it is unregistered."""
        with self._file.writing(durable=True) as connection:
            catalog.forget(connection, name)

    @property
    def names(self) -> list[str]:
        """The names of the copies, in the order in which they were first declared."""
        with self._file.reading() as connection:
            return [record.name for record in catalog.records(connection)]

    def __getitem__(self, name: str) -> Copy:
        """Return the copy of that name. Raises UnknownCopy, which is a KeyError too."""
        with self._file.reading() as connection:
            catalog.find(connection, name)
        return Copy(self._file, self._now, name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    # ---- syncing

    def sync(
        self,
        client: Client,
        *,
        only: Sequence[str] | None = None,
        byte_budget: int | None = None,
        one_position: bool = False,
        away: timedelta | None = None,
        send: bool = True,
        on_conflict: OnConflict | None = None,
    ) -> Synced:
        """Bring the copies up to date, in one round trip if nothing is new or wrong.

        Batches in the queue are sent first, unless `send` is False; `Synced.sent` says what was
        sent. Queries without a registration are registered. Received rows are checked, and so are
        count and digest of each copy. On doubt, and once a day, every row is read first, and damage
        is repaired. A lost connection is made again, with the client's retries, and the transfer
        continues. Whatever is raised, each copy is an answer, the old or the new.

        `only` names the copies to sync. `byte_budget` ends the sync after about that many bytes:
        copies of high priority come first, and the next call continues. With `one_position` all
        copies change together, to answers of one position. `away` is how long the client expects to
        be offline, for windows with rows that will enter them later. `on_conflict` decides about
        conflicts of what is sent, as in `send`.
        """
        options = _options(only, byte_budget, one_position, away, send)
        return drive(self._sync(client._session, options, on_conflict), client._transport)

    async def sync_async(
        self,
        client: AsyncClient,
        *,
        only: Sequence[str] | None = None,
        byte_budget: int | None = None,
        one_position: bool = False,
        away: timedelta | None = None,
        send: bool = True,
        on_conflict: OnConflict | None = None,
    ) -> Synced:
        """Sync with an AsyncClient. The file is read and written on the event loop's thread."""
        options = _options(only, byte_budget, one_position, away, send)
        flow = self._sync(client._session, options, on_conflict)
        return await async_drive(flow, client._transport)

    def _sync(
        self, session: Session, options: SyncOptions, on_conflict: OnConflict | None
    ) -> Flow[Synced]:
        yield from self._lock.acquire(session.timeout)
        try:
            sent = (yield from self._sent(session, on_conflict)) if options.send else Sent()
            synced = yield from SyncRun(self._file, session, options, self._clock).flow()
            return replace(synced, sent=sent, evicted=self._evict())
        finally:
            self._lock.release()

    def _evict(self) -> tuple[str, ...]:
        """Remove rows of copies if the file is larger than it may be; return their names."""
        if self._most_bytes is None:
            return ()
        self._note_reads()
        return evict(self._file, self._most_bytes, self._clock.micros())

    def _note_reads(self) -> None:
        read_at, self._now.read_at = self._now.read_at, {}
        note_reads(self._file, read_at)

    def watch(
        self,
        client: Client,
        *,
        only: Sequence[str] | None = None,
        every: timedelta | None = None,
        away: timedelta | None = None,
    ) -> Generator[Synced, None, None]:
        """Sync whenever there is something new, for as long as you iterate.

            for synced in copies.watch(client):
                if "dear" in synced.changed:
                    show(copies["dear"].rows())

        Yield one `Synced` per round, with everything that changed in it; copies without news are
        there as "unchanged". There is a round as soon as there is something new, but at most one
        per `every`. A lost connection is made again, with the client's retries. The watch ends when
        every copy was refused. Closing the generator, or leaving the loop, ends the call.
        """
        options = _options(only, None, False, away)
        return drive_each(self._watch(client._session, options, every), client._transport)

    async def watch_async(
        self,
        client: AsyncClient,
        *,
        only: Sequence[str] | None = None,
        every: timedelta | None = None,
        away: timedelta | None = None,
    ) -> AsyncIterator[Synced]:
        """Watch with an AsyncClient, for `async for`."""
        flow = self._watch(client._session, _options(only, None, False, away), every)
        async with aclosing(async_drive_each(flow, client._transport, [])) as rounds:
            async for synced in rounds:
                yield synced

    def _watch(self, session: Session, options: SyncOptions, every: timedelta | None) -> Flow[None]:
        return WatchRun(self._file, session, options, self._clock, every).flow()

    def verify(self, only: Sequence[str] | None = None) -> dict[str, Verified]:
        """Read every row of the copies that have been synced, and return the result for each.

        This needs no connection and repairs nothing: the next sync does. Raises UnknownCopy, and
        FileDamaged if SQLite finds the file itself broken.
        """
        _check_names(only)
        return verify_copies(self._file, only, self._clock.micros())

    # ---- reading

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Make everything that this thread reads inside the block be of one moment, whatever is
        synced: each copy is at one position and one NOW.
        """
        with self._file.reading(), self._now.fixed():
            yield

    def query(
        self,
        sql: str,
        parameters: Parameters = (),
        *,
        now: datetime | None = None,
        queued: bool = True,
        rejected: bool = False,
    ) -> list[dict[str, Any]]:
        """Run one SELECT of SQLite. Every copy that has been synced is a table of its name.

        Copies that are kept with edits have their own edits as in `Copy.to_arrow`, and a column
        `_pending`. Raises LocalQueryProblem. See "SQL" in docs for how values look.
        """
        with self._file.reading() as connection:
            records = catalog.records(connection)
            synced = [record for record in records if record.version is not None]
            copies = [
                (record, Reading(self._now.moment(record, now), queued, rejected))
                for record in synced
            ]
            try:
                rows = run_query(connection, sql, parameters, copies)
            except LocalQueryProblem as problem:
                raise _explained(problem, records) from problem.__cause__
        # Which copies the text reads is not known exactly: those whose names are in it count.
        for record, _ in copies:
            if record.name.casefold() in sql.casefold():
                self._now.note_read(record)
        for record, reading in copies if now is None else ():
            self._now.note(record, reading.moment.now)
        return rows

    @contextlib.contextmanager
    def changes(self, name: str) -> Iterator[ChangeBatch]:
        """Yield what changed in the answer since the last batch that was left without an exception.

            with copies.changes("hot") as batch:
                for change in batch:
                    notify(change.tag, change.row, change.old, change.at, change.why)

        The changes of each sync are the fewest that lead from the answer before to the one after.
        Rows that have left or entered by time are among them. Every change is returned once: if an
        exception leaves the block, or the process dies in it, the next batch has the same changes
        again. Only one reader at a time may use it. This needs no connection. Raises UnknownCopy,
        and ValueError for a copy that is kept without changes.
        """
        batch = open_batch(self._file, self._now, name)
        with self._file.reading() as connection:
            self._now.note_read(catalog.find(connection, name))
        yield batch
        leave_batch(self._file, batch)

    def close(self) -> None:
        """Close the file. May be called twice."""
        if self._most_bytes is not None and not self._file.closed:
            self._note_reads()
        self._file.close()


def _explained(problem: LocalQueryProblem, records: Sequence[catalog.Record]) -> LocalQueryProblem:
    """Return a problem that says so if a missing table is a copy that has not been synced."""
    missing = problem.message.removeprefix("no such table: ")
    if any(missing == record.name and record.version is None for record in records):
        return LocalQueryProblem(f"{problem.message}: {missing} has not been synced yet")
    return problem


def _check_name(name: str) -> None:
    reserved = name.lower().startswith(("_psoup", "sqlite_"))
    if not name or reserved or "\0" in name:
        raise ValueError(f"{name!r} can't be the name of a copy")


def _in_hex(parameters: Mapping[str, Scalar] | None) -> dict[str, str]:
    values = {name: to_value(value) for name, value in (parameters or {}).items()}
    return {name: value.SerializeToString().hex() for name, value in values.items()}


def _changes(changes: bool | str) -> str:
    if changes is True or changes is False:
        return ALL_CHANGES if changes else ""
    kinds = WITHOUT_LEFT, WITH_OWN, EVERY_POINT
    if changes not in kinds:
        names = ", ".join(map(repr, kinds))
        raise ValueError(f"changes are True, False or one of {names}, not {changes!r}")
    return changes


def _options(
    only: Sequence[str] | None,
    byte_budget: int | None,
    one_position: bool,
    away: timedelta | None,
    send: bool = False,
) -> SyncOptions:
    _check_names(only)
    if byte_budget is not None and byte_budget <= 0:
        raise ValueError(f"a byte budget is 1 or more, not {byte_budget}")
    return SyncOptions(only, byte_budget, one_position, away, send)


def _check_names(only: Sequence[str] | None) -> None:
    if isinstance(only, str):
        raise TypeError("only is a list of names")
