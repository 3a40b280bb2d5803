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
from client_sdk.copies._changes.told import ALL_CHANGES, WITHOUT_LEFT
from client_sdk.copies._file import catalog
from client_sdk.copies._file.catalog import Recovered, recover
from client_sdk.copies._file.clock import Clock, DeviceClock, machine_clock
from client_sdk.copies._file.file import CopyFile, SyncLock
from client_sdk.copies._file.records import Declaration
from client_sdk.copies._query.answers import CopyClock
from client_sdk.copies._query.base_rows import require
from client_sdk.copies._query.reading import Copy, Parameters, run_query
from client_sdk.copies._queue.batches import Sent
from client_sdk.copies._queue.outbox import Outbox
from client_sdk.copies._queue.queue import QUEUE_BYTES
from client_sdk.copies._sync.flow import Synced, SyncOptions, SyncRun, WatchRun, new_key
from client_sdk.copies._sync.verify import Verified, verify_copies


class Copies(Outbox, Closing):
    """Answers are kept in a SQLite file, brought up to date by `sync`, and read without a
    connection.

        with Client("localhost:7181") as client, Copies("phone.db") as copies:
            copies.keep("dear", "SELECT symbol, price FROM trades WHERE price > 100 "
                                "RANGE 10 MINUTES")
            copies.sync(client)
            copies["dear"].rows()

    Usable from several threads, which take turns, and by several processes at once. Everything it
    raises is a PsoupError, except misuse, which is ValueError or TypeError.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock = machine_clock,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        """Open the file, or makes it. Raises CopyError.

        `queue_bytes` is how much may wait to be sent.
        """
        self._open(CopyFile(path), clock, queue_bytes)

    @classmethod
    def in_memory(cls, *, clock: Clock = machine_clock, queue_bytes: int = QUEUE_BYTES) -> Copies:
        """Keep copies without a file: they are gone when this is closed."""
        copies = cls.__new__(cls)
        copies._open(CopyFile(None), clock, queue_bytes)
        return copies

    @staticmethod
    def recover(path: str | os.PathLike[str]) -> Recovered:
        """Make a new file of what can be read of a damaged one, which is kept beside it.

        Copies are declared again, and come whole with the next sync; what waits in the queue waits
        on.
        """
        return recover(path)

    def _open(self, file: CopyFile, clock: Clock, queue_bytes: int) -> None:
        super().__init__(file, queue_bytes)
        self._clock = clock if isinstance(clock, DeviceClock) else DeviceClock(clock)
        self._now = CopyClock(file, self._clock)
        self._lock = SyncLock(file)

    # ---- what is kept

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
        changes: bool | Literal["without left"] = False,
    ) -> Copy:
        """Declare a copy, by the text of its query or by the handle it is registered with.

        Needs no connection: the next sync registers it. The same again changes nothing; another
        text, window or handle under the same name replaces the copy, which is then empty until it
        is synced. Another text replaces the registered one too, unless its lease is another: the
        handle stays. With `changes` what changes in the answer is kept until `changes()` has given
        it, from the next sync on; "without left" leaves out rows that leave with time.
        """
        if (sql is None) == (handle is None):
            raise ValueError("keep() takes the text of a query, or a handle")
        _check_name(name)
        if base_rows:
            require()
        if base_rows and changes:
            raise ValueError("changes are of an answer: keep it once more, without base_rows")
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
        )
        with self._file.writing(durable=True) as connection:
            catalog.declare(connection, declared)
        return Copy(self._file, self._now, name)

    def forget(self, name: str) -> None:
        """Drop the copy. Its registration stays until its lease ends, or it is unregistered."""
        with self._file.writing(durable=True) as connection:
            catalog.forget(connection, name)

    @property
    def names(self) -> list[str]:
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

    # ---- the store

    def sync(
        self,
        client: Client,
        *,
        only: Sequence[str] | None = None,
        byte_budget: int | None = None,
        one_position: bool = False,
        away: timedelta | None = None,
        send: bool = True,
    ) -> Synced:
        """Bring the copies up to date, in one round trip where nothing is new or wrong.

        What waits in the queue is sent first, unless `send` is False; `Synced.sent` tells of it.
        What is not registered is registered. Rows that come are checked, and so are count and
        digest of each copy; on doubt, and once a day, every row is read first, and what is damaged
        is repaired. A connection that is lost is taken up where it was, with the client's retries;
        whatever is raised, each copy is an answer, the old or the new.

        `byte_budget` ends it after about so many bytes: the most important copies first, the rest
        goes on in the next call. With `one_position` all copies change together, to answers of one
        position. `away` says how long the client expects to be away, if a window has rows that
        are yet to enter.
        """
        options = _options(only, byte_budget, one_position, away, send)
        return drive(self._sync(client._session, options), client._transport)

    async def sync_async(
        self,
        client: AsyncClient,
        *,
        only: Sequence[str] | None = None,
        byte_budget: int | None = None,
        one_position: bool = False,
        away: timedelta | None = None,
        send: bool = True,
    ) -> Synced:
        """Sync with an AsyncClient. The file is read and written on the event loop's thread."""
        options = _options(only, byte_budget, one_position, away, send)
        return await async_drive(self._sync(client._session, options), client._transport)

    def _sync(self, session: Session, options: SyncOptions) -> Flow[Synced]:
        yield from self._lock.acquire(session.timeout)
        try:
            sent = (yield from self._sent(session)) if options.send else Sent()
            synced = yield from SyncRun(self._file, session, options, self._clock).flow()
            return replace(synced, sent=sent)
        finally:
            self._lock.release()

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
        """Read every row of the copies that have been synced, and says of each what was found.

        Needs no connection and repairs nothing: the next sync does that. Raises FileDamaged if
        SQLite finds the file itself broken, and UnknownCopy.
        """
        _check_names(only)
        return verify_copies(self._file, only, self._clock.micros())

    # ---- reading

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Has all that this thread reads inside be of one moment, whatever other processes sync."""
        with self._file.reading():
            yield

    def query(
        self, sql: str, parameters: Parameters = (), *, now: datetime | None = None
    ) -> list[dict[str, Any]]:
        """Run one SELECT of SQLite's; every copy that has been synced is a table of its name."""
        with self._file.reading() as connection:
            records = catalog.records(connection)
            there = [record for record in records if record.version is not None]
            copies = [(record, self._now.now(record, now)) for record in there]
            try:
                found = run_query(connection, sql, parameters, copies)
            except LocalQueryProblem as problem:
                raise _explained(problem, records) from problem.__cause__
        for record, moment in copies if now is None else ():
            self._now.note(record, moment)
        return found

    @contextlib.contextmanager
    def changes(self, name: str) -> Iterator[ChangeBatch]:
        """Return what changed in the answer since the last batch that was left without an
        exception.

            with copies.changes("hot") as batch:
                for change in batch:
                    notify(change.tag, change.row, change.old, change.at, change.why)

        The changes of each sync are the least that leads from the answer before to the one after.
        Rows that have left or entered with time by now are among them. Every change is given once;
        if an exception leaves the block, or the process dies in it, the next batch has the same
        changes again. For one reader at a time. Needs no connection. Raises UnknownCopy, and
        ValueError for a copy that is kept without changes.
        """
        batch = open_batch(self._file, self._now, name)
        yield batch
        leave_batch(self._file, batch)

    def close(self) -> None:
        """May be called twice."""
        self._file.close()


def _explained(problem: LocalQueryProblem, records: Sequence[catalog.Record]) -> LocalQueryProblem:
    """Says where a table that is not there is a copy that has not come."""
    missing = problem.message.removeprefix("no such table: ")
    if any(missing == record.name and record.version is None for record in records):
        return LocalQueryProblem(f"{problem.message}: {missing} has not been synced yet")
    return problem


def _check_name(name: str) -> None:
    reserved = name.lower().startswith(("_psoup", "sqlite_"))
    if not name or reserved or "\0" in name:
        raise ValueError(f"{name!r} can't be the name of a copy")


def _in_hex(parameters: Mapping[str, Scalar] | None) -> dict[str, str]:
    found = {name: to_value(value) for name, value in (parameters or {}).items()}
    return {name: value.SerializeToString().hex() for name, value in found.items()}


def _changes(wanted: bool | str) -> str:
    if wanted is True or wanted is False:
        return ALL_CHANGES if wanted else ""
    if wanted != WITHOUT_LEFT:
        raise ValueError(f"changes are True, False or {WITHOUT_LEFT!r}, not {wanted!r}")
    return WITHOUT_LEFT


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
